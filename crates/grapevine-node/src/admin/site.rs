//! Requests that a browser sends for somebody else's page.
//!
//! On loopback no token is needed, but a browser on this machine runs other sites' pages too, and they can
//! send requests here. Either from their own origin, which the browser says; or, after their own name has
//! come to lead to this address, as if this were their site (DNS rebinding), which `Host` alone tells.

use axum::extract::Request;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, header};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// What to do about a name that is not ours.
pub(super) const BY_ADDRESS: &str =
    "without a token this listener answers to an IP address or localhost only: set GRAPEVINE_ADMIN_TOKEN\n";

/// Whether a page of another site sent it. Following a link from there is what people do themselves.
pub(super) fn is_of_another(request: &Request) -> bool {
    let headers = request.headers();
    if let Some(site) = headers.get(FETCH_SITE) {
        let follows = request.method() == Method::GET
            && headers.get(FETCH_MODE).is_some_and(|mode| mode.as_bytes() == b"navigate");
        return !matches!(site.as_bytes(), b"same-origin" | b"none") && !follows;
    }
    // Older browsers, and all where there is neither TLS nor loopback.
    let Some(origin) = headers.get(header::ORIGIN) else { return false };
    let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, rest)| rest);
    authority != host_field(headers)
}

/// Whether it was sent to a name that anybody may let lead here. Programs that name no host are no browsers.
pub(super) fn is_by_foreign_name(request: &Request) -> bool {
    let named = match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => match request.headers().get(header::HOST) {
            Some(host) => match Authority::try_from(host.as_bytes()) {
                Ok(authority) => Some(authority),
                Err(_) => return true,
            },
            None => None,
        },
    };
    named.is_some_and(|named| !is_local(named.host()))
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

fn host_field(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::HOST).and_then(|host| host.to_str().ok())
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: Method, fields: &[(&str, &str)]) -> Request {
        let builder = Request::builder().method(method).uri("/");
        let builder = fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
        builder.body(Body::empty()).unwrap()
    }

    #[test]
    fn only_a_browsers_page_of_another_site_is_of_another() {
        let here = ("host", "127.0.0.1:9090");
        let sent =
            |fields: &[(&str, &str)]| is_of_another(&request(Method::POST, &[&[here], fields].concat()));
        assert!(!sent(&[]), "no browser");
        assert!(!sent(&[("origin", "http://127.0.0.1:9090")]));
        assert!(sent(&[("origin", "http://evil.example")]));
        assert!(sent(&[("origin", "null")]));
        assert!(sent(&[("sec-fetch-site", "cross-site")]));
        assert!(sent(&[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:3000")]));
        assert!(sent(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]), "a form");
        // A proxy in front may have put another name into Host.
        assert!(!sent(&[("sec-fetch-site", "same-origin"), ("origin", "https://routers.example")]));
    }

    #[test]
    fn a_link_from_another_site_may_be_followed() {
        let follow = |mode| [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
        assert!(!is_of_another(&request(Method::GET, &follow("navigate"))));
        assert!(is_of_another(&request(Method::GET, &follow("no-cors"))));
    }

    #[test]
    fn only_addresses_and_localhost_are_names_of_this_machine() {
        for (host, foreign) in [
            ("127.0.0.1:9090", false),
            ("[::1]:9090", false),
            ("[::1]", false),
            ("LocalHost:9090", false),
            ("10.0.0.7", false),
            ("evil.example:9090", true),
            ("localhost.evil.example", true),
            ("127.0.0.1.evil.example", true),
            ("127.0.0.1@evil.example", true),
            ("", true),
            ("a b", true),
        ] {
            assert_eq!(is_by_foreign_name(&request(Method::GET, &[("host", host)])), foreign, "{host}");
        }
        assert!(!is_by_foreign_name(&request(Method::GET, &[])), "HTTP/1.0");
        let absolute = Request::get("http://evil.example:9090/").header("host", "localhost");
        assert!(is_by_foreign_name(&absolute.body(Body::empty()).unwrap()));
    }
}
