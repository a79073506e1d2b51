//! Engine paths that administer the engine: closed on the public port.
//!
//! A deny list (of each kind in [`crate::engine::kinds`]), because allow lists of API paths age badly: every
//! other path is forwarded and the engine answers. Paths are compared in a canonical form (decoded, lower case, no dot segments, no
//! doubled or trailing slashes), since engines and the HTTP client both normalise.

use std::borrow::Cow;

use http::Method;

use crate::engine::kinds::administers;

/// Percent-decodings until a path must be stable: an engine decodes once, a hop between may too.
const MAX_DECODINGS: usize = 3;

/// Whether `path` administers an engine.
pub fn denied(method: &Method, path: &str) -> bool {
    let Some(path) = canonical(path) else { return true };
    administers(method, &path)
}

/// The form that is compared; `None` when decoding does not come to an end.
fn canonical(path: &str) -> Option<Cow<'_, str>> {
    if is_plain(path) {
        return Some(Cow::Borrowed(path));
    }
    let mut path = path.as_bytes().to_vec();
    let mut decodings = 0;
    while path.contains(&b'%') {
        let decoded = decode(&path);
        if decoded == path {
            break;
        }
        path = decoded;
        decodings += 1;
        if decodings > MAX_DECODINGS {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&path).to_ascii_lowercase().replace('\\', "/");
    let mut segments: Vec<&str> = Vec::new();
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            // Parameters of a segment are ignored by some servers.
            _ => segments.push(segment.split(';').next().unwrap_or(segment)),
        }
    }
    Some(Cow::Owned(format!("/{}", segments.join("/"))))
}

/// Nothing to normalise: the usual case, without an allocation.
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    let mut last = 0;
    for &byte in bytes {
        let odd = matches!(byte, b'%' | b'\\' | b';' | b'A'..=b'Z')
            || !byte.is_ascii()
            || (last == b'/' && matches!(byte, b'/' | b'.'));
        if odd {
            return false;
        }
        last = byte;
    }
    last != b'/' || bytes.len() == 1
}

fn decode(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        let escape = (first == b'%').then(|| tail.get(..2).and_then(hex)).flatten();
        out.push(escape.unwrap_or(first));
        rest = if escape.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    out
}

fn hex(pair: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a120_engine_admin_paths_are_closed_however_they_are_written() {
        for path in [
            "/flush_cache",
            "//flush_cache",
            "/flush_cache/",
            "/FLUSH_cache",
            "/%66lush_cache",
            "/%2566lush_cache",
            "/v1/../flush_cache",
            "/v1/%2e%2e/flush_cache",
            "/v1/..%2fflush_cache",
            "/v1\\..\\flush_cache",
            "/./flush_cache",
            "/flush_cache;x=1",
            "/reset_prefix_cache",
            "/abort_request",
            "/abort_requests",
            "/sleep",
            "/update_weights_from_disk",
            "/shutdown",
            "/v1/load_lora_adapter",
            "/%25252525252566lush_cache",
        ] {
            assert!(denied(&Method::POST, path), "{path}");
            assert!(denied(&Method::GET, path), "{path}");
        }
    }

    #[test]
    fn reading_is_open_where_only_writing_administers() {
        assert!(!denied(&Method::GET, "/props"));
        assert!(denied(&Method::POST, "/props"));
        assert!(!denied(&Method::GET, "/slots/3"));
        assert!(denied(&Method::POST, "/slots/3"));
        assert!(denied(&Method::DELETE, "/models"));
    }

    #[test]
    fn a117_every_other_path_is_open() {
        for path in [
            "/",
            "/v1/chat/completions",
            "/v1/models",
            "/v1/rerank",
            "/score",
            "/tokenize",
            "/v2/embed",
            "/v1/files/a%20b",
            "/v1/x;y",
            "/metrics",
            "/health",
            "/v1/sleepy",
            "/generate",
            "/100%",
        ] {
            assert!(!denied(&Method::POST, path), "{path}");
        }
    }
}
