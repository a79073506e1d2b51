//! Engine paths that administer the engine or show its metrics: closed on the public port.
//!
//! A deny list (of each kind in [`crate::engine::kinds`]), because allow lists of API paths age badly: every
//! other path is forwarded and the engine answers. Paths are compared in a canonical form (decoded, lower
//! case, no doubled or trailing slashes), since engines and the HTTP client both normalise, each in its own
//! way. A path that they might disagree about is closed too.

use std::borrow::Cow;

use http::Method;

use crate::engine::kinds::administers;
use crate::percent;

/// Percent-decodings until a path must be stable: an engine decodes once, a hop between may too.
const MAX_DECODINGS: usize = 3;

/// What nearly all requests ask for. On no list of any kind of engine, so those need not be gone through.
const USUAL: [&str; 4] = ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"];

/// Whether `path` administers an engine, or hides where it leads.
pub fn denied(method: &Method, path: &str) -> bool {
    !USUAL.contains(&path) && canonical(path).is_none_or(|path| administers(method, &path))
}

/// The form that is compared. `None` for what no API needs and everybody reads differently: a segment `..`
/// however it is escaped, a control character (Python's `$` matches before a final line break), and
/// more decodings than there are hops.
fn canonical(path: &str) -> Option<Cow<'_, str>> {
    if is_plain(path) {
        return Some(Cow::Borrowed(path));
    }
    let path = decoded(path)?;
    if path.iter().any(u8::is_ascii_control) {
        return None;
    }
    let text = String::from_utf8_lossy(&path).to_ascii_lowercase().replace('\\', "/");
    let mut canonical = String::with_capacity(text.len());
    // What a hop that decodes would take for the end of the path.
    let text = text.split(['?', '#']).next().unwrap_or_default();
    for segment in text.split('/') {
        // Parameters of a segment are ignored by some servers.
        match segment.split(';').next().unwrap_or(segment) {
            "" | "." => {}
            ".." => return None,
            name => canonical.extend(["/", name]),
        }
    }
    if canonical.is_empty() {
        canonical.push('/');
    }
    Some(Cow::Owned(canonical))
}

/// `path` with every escape resolved, also those within escapes.
fn decoded(path: &str) -> Option<Vec<u8>> {
    let mut path = path.as_bytes().to_vec();
    for _ in 0..=MAX_DECODINGS {
        let next = percent::decode(&path);
        if next == path {
            return Some(path);
        }
        path = next;
    }
    None
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_paths_are_on_no_list() {
        for path in USUAL {
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                assert!(!administers(&method, &canonical(path).unwrap()), "{method} {path}");
            }
        }
    }

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
            "/metrics",
            "/Metrics/",
            "/reset_prefix_cache",
            "/abort_request",
            "/abort_requests",
            "/sleep",
            "/update_weights_from_disk",
            "/shutdown",
            "/v1/load_lora_adapter",
            "/%25252525252566lush_cache",
            // The client library resolves `..` before an engine decodes: this reaches it as /flush_cache.
            "/a%2fb/../flush_cache",
            "/x;y/%2e%2E;z/flush_cache",
            // Python's `$` matches before a final line break.
            "/flush_cache%0a",
            "/flush_cache%250A",
            "/flush_cache%00",
            "/flush_cache%3fx",
            "/;x/flush_cache",
            // Looks like a Triton generation.
            "/v2/models/../../flush_cache/generate",
        ] {
            assert!(denied(&Method::POST, path), "{path}");
            assert!(denied(&Method::GET, path), "{path}");
        }
    }

    #[test]
    fn reading_is_open_where_only_writing_administers() {
        assert!(!denied(&Method::GET, "/props"));
        assert!(denied(&Method::POST, "/props"));
        assert!(!denied(&Method::GET, "/is_sleeping"));
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
            "/health",
            "/v1/metrics",
            "/v1/sleepy",
            "/generate",
            "/100%",
            "/v1/models/my%20model",
            "/v1/files/a..b",
            "/v1/models/a%3Fb",
        ] {
            assert!(!denied(&Method::POST, path), "{path}");
        }
    }
}
