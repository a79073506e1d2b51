//! Header fields on their way through (RFC 9110, 7.6.1).
//!
//! End-to-end fields pass as they are, unknown ones too. Removed, both ways: the hop-by-hop set and
//! whatever `Connection` names. Towards the engine also: `Host` (the client library names the
//! engine), `Content-Length` (set anew from the body that was read) and `Expect` (already answered).
//! No `X-Forwarded-*` or `Via` is added: engines make nothing of them, and what a proxy in front has
//! set passes through.

use http::Version;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::auth::X_API_KEY;

/// Carries the request's id, from the client or minted here, to the engine and back.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names the replica that answered.
pub(super) const REPLICA: HeaderName = HeaderName::from_static("x-grapevine-replica");

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    KEEP_ALIVE,
    PROXY_CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Whether it is clear which host is meant: HTTP/1.1 names one, other versions may leave it to the target.
pub(super) fn names_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = hosts.next().is_some();
    hosts.next().is_none() && (named || version != Version::HTTP_11)
}

/// Makes a client's header fields fit for an engine. Credentials go with them only where they are meant
/// for it.
pub(super) fn prepare_request(headers: &mut HeaderMap, keep_credentials: bool) {
    strip_hop_by_hop(headers);
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    headers.remove(header::TRAILER);
    if !keep_credentials {
        headers.remove(header::AUTHORIZATION);
        headers.remove(X_API_KEY);
    } else if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        // It is a single field: the first line is the one that counts.
        let first = headers.remove(header::AUTHORIZATION);
        headers.extend(first.map(|value| (header::AUTHORIZATION, value)));
    }
}

/// Makes fields that a client sent after its body fit for an engine, and says before the body which they
/// are. Nothing that frames a message or opens a door may come so late.
pub(super) fn prepare_trailers(trailers: &mut HeaderMap, headers: &mut HeaderMap) {
    strip_hop_by_hop(trailers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::TRAILER, header::AUTHORIZATION, X_API_KEY] {
        trailers.remove(name);
    }
    for name in trailers.keys() {
        headers.append(header::TRAILER, HeaderValue::from(name.clone()));
    }
}

/// Makes an engine's header fields fit for the client. `event_stream`: its length is never known,
/// and nobody on the way may buffer it.
pub(super) fn prepare_response(headers: &mut HeaderMap, event_stream: bool) {
    strip_hop_by_hop(headers);
    if event_stream {
        headers.remove(header::CONTENT_LENGTH);
        set_if_absent(headers, ACCEL_BUFFERING, HeaderValue::from_static("no"));
        set_if_absent(headers, header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    }
}

/// A redirect to the replica's own address becomes one to this router: a client could not follow
/// the other, and it tells what is inside.
pub(super) fn hide_replica(headers: &mut HeaderMap, url: &str) {
    let Some(location) = headers.get(header::LOCATION) else { return };
    let Some(rest) = location.as_bytes().strip_prefix(url.as_bytes()) else { return };
    if matches!(rest.first(), None | Some(b'/')) {
        let path = if rest.is_empty() { &b"/"[..] } else { rest };
        if let Ok(path) = HeaderValue::from_bytes(path) {
            headers.insert(header::LOCATION, path);
        }
    }
}

/// Sets a field that the other side has not set.
pub(super) fn set_if_absent(headers: &mut HeaderMap, name: HeaderName, value: HeaderValue) {
    headers.entry(name).or_insert(value);
}

/// Whether the body is an event stream that can be read on the way.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    content_type_is(headers, "text/event-stream")
}

/// Whether the body is JSON that can be read on the way.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    content_type_is(headers, "application/json")
}

/// Whether the body is a form with files.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    content_type_is(headers, "multipart/form-data")
}

/// Whether the body is encoded, so that nothing can be read in it or added to it.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|e| !e.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn content_type_is(headers: &HeaderMap, wanted: &str) -> bool {
    let given = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let Some(start) = given.get(..wanted.len()) else { return false };
    let ends = matches!(given.get(wanted.len()), None | Some(b';' | b' '));
    ends && start.eq_ignore_ascii_case(wanted.as_bytes())
}

fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in named_by_connection(headers) {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        for token in value.as_bytes().split(|b| *b == b',') {
            let token = token.trim_ascii();
            let stays = token.eq_ignore_ascii_case(b"close") || token.eq_ignore_ascii_case(b"keep-alive");
            if !stays {
                names.extend(HeaderName::from_bytes(token));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let line = |(n, v): &(&str, &str)| (n.parse::<HeaderName>().unwrap(), v.parse().unwrap());
        HeaderMap::from_iter(lines.iter().map(line))
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        headers.keys().map(HeaderName::as_str).collect()
    }

    #[test]
    fn a26_hop_by_hop_and_connection_named_fields_go_both_ways() {
        let hops = [
            ("connection", "close, X-Foo"),
            ("connection", "x-bar"),
            ("x-foo", "1"),
            ("x-bar", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("proxy-authorization", "x"),
            ("x-my-tenant", "a"),
        ];
        let mut request = map(&hops);
        prepare_request(&mut request, true);
        assert_eq!(names(&request), ["x-my-tenant"]);
        let mut response = map(&hops);
        prepare_response(&mut response, false);
        assert_eq!(names(&response), ["x-my-tenant"]);
    }

    #[test]
    fn a23_one_authorization_line_reaches_the_engine() {
        let mut headers = HeaderMap::new();
        headers.append("authorization", "Bearer a".parse().unwrap());
        headers.append("authorization", "Bearer b".parse().unwrap());
        prepare_request(&mut headers, true);
        let lines: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(lines, ["Bearer a"]);
    }

    #[test]
    fn trailers_are_announced_and_cannot_smuggle() {
        let mut trailers = map(&[("x-sum", "1"), ("authorization", "Bearer b"), ("transfer-encoding", "x")]);
        let mut headers = HeaderMap::new();
        prepare_trailers(&mut trailers, &mut headers);
        assert_eq!((names(&trailers), &headers["trailer"]), (vec!["x-sum"], &"x-sum".parse().unwrap()));
    }

    #[test]
    fn a3_event_streams_say_that_nobody_may_buffer_them() {
        let mut headers =
            map(&[("content-type", "text/event-stream; charset=utf-8"), ("content-length", "7")]);
        assert!(is_event_stream(&headers));
        prepare_response(&mut headers, true);
        assert_eq!(headers["x-accel-buffering"], "no");
        assert_eq!(headers["cache-control"], "no-cache");
        assert!(!headers.contains_key("content-length"), "a4");
        let mut set = map(&[("x-accel-buffering", "yes"), ("cache-control", "private")]);
        prepare_response(&mut set, true);
        assert_eq!(
            (&set["x-accel-buffering"], &set["cache-control"]),
            (&"yes".parse().unwrap(), &"private".parse().unwrap())
        );
    }

    #[test]
    fn a30_a_redirect_to_the_replica_itself_becomes_relative() {
        for (location, expected) in [
            ("http://10.0.0.1:8000/v1/x/?a=1", "/v1/x/?a=1"),
            ("http://10.0.0.1:8000", "/"),
            ("http://10.0.0.1:80001/v1", "http://10.0.0.1:80001/v1"),
            ("https://elsewhere/", "https://elsewhere/"),
        ] {
            let mut headers = map(&[("location", location)]);
            hide_replica(&mut headers, "http://10.0.0.1:8000");
            assert_eq!(headers["location"], expected);
        }
    }

    #[test]
    fn content_types_are_compared_without_parameters_and_case() {
        assert!(is_json(&map(&[("content-type", "Application/JSON;charset=utf-8")])));
        assert!(!is_json(&map(&[("content-type", "application/jsonl")])));
        assert!(!is_event_stream(&HeaderMap::new()));
        assert!(is_encoded(&map(&[("content-encoding", "gzip")])));
    }
}
