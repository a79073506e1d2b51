//! What all of a router's HTTP clients have in common: those for engines, other routers and collectors.

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

/// A client that goes where it is told and nowhere else: proxies of the environment are for others, and nobody
/// is redirected.
pub(crate) fn builder() -> ClientBuilder {
    // Another router of this process may have set it: any will do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().redirect(Policy::none())
}

/// The innermost cause says what happened; the outer ones repeat the URL.
pub(crate) fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
