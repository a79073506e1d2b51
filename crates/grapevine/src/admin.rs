//! Asking a router's admin listener, with the token of this environment.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use grapevine_node::admin::access::CLOSED;
use grapevine_node::bounded::{self, ReadError};
use grapevine_testkit::load::{ClientError, HttpClient, http_client};
use serde::de::DeserializeOwned;

use crate::health::reachable;

/// Where a router's admin listener is unless somebody moved it.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9090);

/// A fleet of 32 routers and 200 replicas is a tenth of that.
const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Longest message that is shown of an answer that is no error of ours.
const MAX_WHY: usize = 200;

/// Longest token file: the setting's own limit is 4096 bytes.
const MAX_TOKEN_BYTES: u64 = 4096 + 2;

/// Why a router's admin listener did not say what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("wants a token: set GRAPEVINE_ADMIN_TOKEN or GRAPEVINE_ADMIN_TOKEN_FILE, as the router has it")]
    Token,
    #[error("does not accept this GRAPEVINE_ADMIN_TOKEN: its router has another")]
    OtherToken,
    /// The listener is off loopback, and its router has no token.
    #[error("shows nothing off loopback until that router has a GRAPEVINE_ADMIN_TOKEN")]
    Closed,
    #[error("does not answer")]
    Silent,
    #[error("answered {status}: {why}")]
    Refused { status: u16, why: String },
    #[error("answered more than it should")]
    TooLong,
    #[error("answered as no admin listener of this version does")]
    NotOurs(#[source] serde_json::Error),
}

/// A router that did not say what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{from} {said}")]
pub(crate) struct NoAnswer {
    /// Its admin address.
    pub(crate) from: String,
    /// What it said instead.
    pub(crate) said: AskError,
}

/// The same, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{no_answer}: {what_to_do}")]
pub(crate) struct Hinted {
    no_answer: NoAnswer,
    what_to_do: &'static str,
}

impl NoAnswer {
    /// Says what to do as well, where nobody was reached who could.
    pub(crate) fn hinting(self, what_to_do: &'static str) -> Box<dyn Error> {
        match self.said {
            AskError::Silent | AskError::NotOurs(_) => Box::new(Hinted { no_answer: self, what_to_do }),
            _ => Box::new(self),
        }
    }
}

/// Why nobody can be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot read {path}, the GRAPEVINE_ADMIN_TOKEN_FILE")]
    TokenFile { path: String, source: std::io::Error },
}

/// Asks admin listeners.
#[derive(Clone)]
pub(crate) struct AdminClient {
    http: HttpClient,
    token: Option<String>,
}

impl AdminClient {
    /// With the token of this environment; no answer may take longer than `limit`.
    pub(crate) fn from_env(limit: Duration) -> Result<Self, AdminError> {
        Ok(Self { http: http_client(1, limit)?, token: token_from_env()? })
    }

    /// Without a token, for routers on this machine.
    pub(crate) fn open(limit: Duration) -> Result<Self, ClientError> {
        Ok(Self { http: http_client(1, limit)?, token: None })
    }

    /// Whether the router at `base` may be given requests.
    pub(crate) async fn is_ready(&self, base: &str) -> bool {
        let answer = self.http.get(format!("{base}/readyz")).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// What is at `path` of the listener at `base`.
    pub(crate) async fn get<T: DeserializeOwned>(&self, base: &str, path: &str) -> Result<T, AskError> {
        self.ask("GET", base, path, Vec::new()).await
    }

    /// What it answers to `body`, which is JSON.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        base: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        self.ask("POST", base, path, body).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &'static str,
        base: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Result<T, AskError> {
        let url = format!("{base}{path}");
        let mut request = match method {
            "POST" => self.http.post(url).header("content-type", "application/json").body(body),
            _ => self.http.get(url),
        };
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let mut answer = request.send().await.map_err(|_| AskError::Silent)?;
        let status = answer.status().as_u16();
        let body = bounded::read(&mut answer, MAX_ANSWER_BYTES).await.map_err(|error| match error {
            ReadError::TooLong => AskError::TooLong,
            ReadError::Broken(_) => AskError::Silent,
        })?;
        match status {
            200 => serde_json::from_slice(&body).map_err(AskError::NotOurs),
            401 if *body == *CLOSED.as_bytes() => Err(AskError::Closed),
            401 if self.token.is_some() => Err(AskError::OtherToken),
            401 => Err(AskError::Token),
            status => Err(AskError::Refused { status, why: why(&body) }),
        }
    }
}

/// The message of an error's body: `{"error": "..."}`, or the beginning of what else it is.
fn why(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Body {
        error: String,
    }
    let plain = || String::from_utf8_lossy(body).trim().chars().take(MAX_WHY).collect();
    serde_json::from_slice(body).map_or_else(|_| plain(), |body: Body| body.error)
}

fn token_from_env() -> Result<Option<String>, AdminError> {
    use std::io::Read;
    let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(token) = named("GRAPEVINE_ADMIN_TOKEN") {
        return Ok(Some(token));
    }
    let Some(path) = named("GRAPEVINE_ADMIN_TOKEN_FILE") else { return Ok(None) };
    let mut token = String::new();
    let read = std::fs::File::open(&path).and_then(|f| f.take(MAX_TOKEN_BYTES).read_to_string(&mut token));
    read.map_err(|source| AdminError::TokenFile { path, source })?;
    Ok(Some(token.trim_end_matches(['\n', '\r']).to_owned()))
}

/// The admin listener of this environment's router, or the usual one.
pub(crate) fn local_base() -> String {
    let listen = std::env::var("GRAPEVINE_ADMIN_LISTEN").ok().and_then(|text| text.parse().ok());
    format!("http://{}", reachable(listen.unwrap_or(DEFAULT_LISTEN)))
}

/// A base URL as people write it: `10.0.0.1`, `router-1:9090`, `https://routers.example`.
pub(crate) fn base_url(text: &str) -> Result<String, String> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.trim_end_matches('/');
    if !matches!(scheme, "" | "http" | "https") || rest.is_empty() || rest.contains(char::is_whitespace) {
        return Err("an admin address is host:port or an http(s) URL".to_owned());
    }
    if !scheme.is_empty() {
        return Ok(format!("{scheme}://{rest}"));
    }
    let after_host = rest.rsplit(']').next().unwrap_or(rest);
    let port = if after_host.contains(':') { String::new() } else { format!(":{}", DEFAULT_LISTEN.port()) };
    Ok(format!("http://{rest}{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for (written, base) in [
            ("10.0.0.1", "http://10.0.0.1:9090"),
            ("router-1:9191", "http://router-1:9191"),
            ("[::1]", "http://[::1]:9090"),
            ("[::1]:9191", "http://[::1]:9191"),
            ("https://routers.example/r1/", "https://routers.example/r1"),
        ] {
            assert_eq!(base_url(written).as_deref(), Ok(base));
        }
        for wrong in ["", "ftp://a", "http://", "a b"] {
            assert!(base_url(wrong).is_err(), "{wrong}");
        }
    }
}
