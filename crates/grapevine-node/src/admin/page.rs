//! The page at `/`: files that are part of the binary. They hold no data, so anyone who reaches the
//! listener may have them; what they show comes from the API, which asks for the token.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use xxhash_rust::xxh3::xxh3_64;

/// Only our own files, only our own listener, no frame around them, and no text that becomes code.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

const INDEX: File = File { name: "index.html", kind: HTML, body: include_str!("page/index.html") };

/// Files under `/page/`.
const FILES: [File; 20] = [
    File { name: "style.css", kind: CSS, body: include_str!("page/style.css") },
    File { name: "icon.svg", kind: SVG, body: include_str!("page/icon.svg") },
    script("app.js", include_str!("page/app.js")),
    script("decisions.js", include_str!("page/decisions.js")),
    script("dom.js", include_str!("page/dom.js")),
    script("explain.js", include_str!("page/explain.js")),
    script("format.js", include_str!("page/format.js")),
    script("grid.js", include_str!("page/grid.js")),
    script("icicle.js", include_str!("page/icicle.js")),
    script("model.js", include_str!("page/model.js")),
    script("palette.js", include_str!("page/palette.js")),
    script("rates.js", include_str!("page/rates.js")),
    script("replicas.js", include_str!("page/replicas.js")),
    script("routers.js", include_str!("page/routers.js")),
    script("sign-in.js", include_str!("page/sign-in.js")),
    script("stream.js", include_str!("page/stream.js")),
    script("summary.js", include_str!("page/summary.js")),
    script("theme.js", include_str!("page/theme.js")),
    script("votes.js", include_str!("page/votes.js")),
    script("warnings.js", include_str!("page/warnings.js")),
];

/// What is at `/` for those who do not ask for HTML.
const DIRECTORY: File = File {
    name: "",
    kind: TEXT,
    body: "\
grapevine, the admin listener. A browser gets a page here; `grapevine top` shows the same in a terminal.

  /livez               it runs
  /readyz              it may be given requests
  /metrics             Prometheus
  /api/v1/status       this router, JSON
  /api/v1/fleet        all routers, JSON
  /api/v1/tree         the heaviest prefixes, JSON
  /api/v1/decisions    the latest decisions, JSON
  /api/v1/events       the fleet and its decisions as they change, server-sent events
  /api/v1/explain      POST a request body: where it would go and why, JSON
",
};

struct File {
    name: &'static str,
    kind: &'static str,
    body: &'static str,
}

const fn script(name: &'static str, body: &'static str) -> File {
    File { name, kind: JAVASCRIPT, body }
}

/// The page and its files.
pub(super) fn router() -> Router {
    Router::new().route("/", get(root)).route("/page/{name}", get(file))
}

async fn root(headers: HeaderMap) -> Response {
    let file = if wants_html(&headers) { INDEX } else { DIRECTORY };
    let mut answer = file.answer(&headers);
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    answer
}

async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => file.answer(&headers),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Browsers name HTML; curl and scripts take anything.
fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT);
    accept.iter().filter_map(|value| value.to_str().ok()).any(|value| value.contains("text/html"))
}

impl File {
    /// The file, or that the sender has it already.
    fn answer(&self, headers: &HeaderMap) -> Response {
        let tag = format!("\"{:016x}\"", xxh3_64(self.body.as_bytes()));
        let has_it =
            headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
        let always: [(HeaderName, &str); 6] = [
            (header::ETAG, &tag),
            // Kept, but asked about each time: a new version of the router has new files.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        if has_it {
            return (StatusCode::NOT_MODIFIED, always).into_response();
        }
        (always, [(header::CONTENT_TYPE, self.kind)], self.body).into_response()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use http::Request;
    use tower::ServiceExt;

    use super::*;

    /// All of the page, many times over.
    const MAX_BYTES: usize = 4 << 20;

    async fn get_with(path: &str, name: HeaderName, value: &str) -> (StatusCode, HeaderMap, String) {
        let request = Request::get(path).header(name, value).body(Body::empty()).unwrap();
        let answer = router().oneshot(request).await.unwrap();
        let (parts, body) = answer.into_parts();
        let body = to_bytes(body, MAX_BYTES).await.unwrap();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn browsers_get_the_page_and_scripts_a_directory() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        let (status, headers, page) = get_with("/", header::ACCEPT, browser).await;
        assert_eq!((status, headers[header::CONTENT_TYPE].to_str().unwrap()), (StatusCode::OK, HTML));
        assert!(page.starts_with("<!doctype html>"));
        let (status, headers, text) = get_with("/", header::ACCEPT, "*/*").await;
        assert_eq!((status, headers[header::CONTENT_TYPE].to_str().unwrap()), (StatusCode::OK, TEXT));
        assert!(text.contains("/api/v1/status"), "{text}");
    }

    #[tokio::test]
    async fn what_has_not_changed_is_not_sent_again() {
        let (_, headers, body) = get_with("/page/app.js", header::ACCEPT, "*/*").await;
        assert!(!body.is_empty());
        let tag = headers[header::ETAG].to_str().unwrap();
        let (status, _, body) = get_with("/page/app.js", header::IF_NONE_MATCH, tag).await;
        assert_eq!((status, body.as_str()), (StatusCode::NOT_MODIFIED, ""));
        let (status, ..) = get_with("/page/app.js", header::IF_NONE_MATCH, "\"other\"").await;
        assert_eq!(status, StatusCode::OK);
        assert_eq!(get_with("/page/nothing.js", header::ACCEPT, "*/*").await.0, StatusCode::NOT_FOUND);
    }

    /// What the page's files name: `from "./x.js"`, `src="page/x.js"`, `href="page/x.css"`.
    fn named(file: &File) -> Vec<&str> {
        let after =
            |start: &'static str| file.body.split(start).skip(1).filter_map(|rest| rest.split('"').next());
        ["from \"./", "src=\"page/", "href=\"page/"].into_iter().flat_map(after).collect()
    }

    #[test]
    fn every_file_is_there_and_none_comes_from_elsewhere() {
        for file in FILES.iter().chain([&INDEX]) {
            for name in named(file) {
                assert!(FILES.iter().any(|other| other.name == name), "{} names {name}", file.name);
            }
            let outside = file.body.replace("http://www.w3.org/", "").contains("://");
            assert!(!outside, "{} names another host", file.name);
        }
        for file in &FILES {
            let used = FILES.iter().chain([&INDEX]).any(|other| named(other).contains(&file.name));
            assert!(used, "nothing uses {}", file.name);
        }
    }

    #[test]
    fn nothing_turns_text_into_code() {
        for file in FILES.iter().chain([&INDEX]) {
            for banned in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                " style=",
                " onclick=\"",
            ] {
                assert!(!file.body.contains(banned), "{} uses {banned}", file.name);
            }
        }
    }

    /// The page is small enough to be read as a whole.
    #[test]
    fn the_page_stays_small() {
        let all: usize = FILES.iter().map(|file| file.body.len()).sum();
        assert!(all < 120 * 1024, "{all} bytes");
    }
}
