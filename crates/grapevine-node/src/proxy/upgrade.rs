//! WebSocket: a handshake is passed on, and then bytes both ways until one side ends.
//!
//! HTTP/1.1 only, as engines serve `/v1/realtime`. A session holds its place and its replica like any other
//! request, and a drain that runs out of time ends it.

use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode, Version};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use axum::body::Body;
use axum::response::Response;

use super::body::Upload;
use super::exchange::Exchange;
use super::forward::{Answer, Outbound};
use super::pick::Pick;
use super::place::Job;
use super::{Proxy, headers};
use crate::error::RouterError;
use crate::metrics::outcome::Outcome;

/// The client's side of a WebSocket handshake, if this is one.
pub(super) fn wanted(parts: &mut Parts) -> Option<OnUpgrade> {
    let named = |name, token: &[u8]| {
        let values = parts.headers.get_all(name).iter();
        let mut tokens = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        tokens.any(|given| given.trim_ascii().eq_ignore_ascii_case(token))
    };
    let asked = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && named(header::UPGRADE, b"websocket")
        && named(header::CONNECTION, b"upgrade");
    if asked { parts.extensions.remove() } else { None }
}

impl Proxy {
    /// Passes a handshake on. An engine that refuses it is relayed like any other answer.
    pub(super) async fn open_socket(
        &self,
        exchange: &Exchange,
        parts: &mut Parts,
        turn: u64,
    ) -> Result<(Pick, Answer), RouterError> {
        headers::prepare_request(&mut parts.headers, self.settings.keep_credentials);
        ask_for_socket(&mut parts.headers);
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let body = Upload::default();
        let outbound = Outbound { method: &parts.method, target, headers: &parts.headers, body: &body };
        self.forward(&mut Job::new(exchange, turn), &outbound).await
    }
}

fn ask_for_socket(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
}

/// The answer that opens the session, which lives on in a task of its own.
pub(super) fn answer(client: OnUpgrade, mut exchange: Exchange, pick: Pick, answer: Answer) -> Response {
    let Answer { mut response, span, .. } = answer;
    exchange.answered(response.status());
    let engine = hyper::upgrade::on(&mut response);
    let mut opened = Response::new(Body::empty());
    *opened.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *opened.headers_mut() = std::mem::take(response.headers_mut());
    headers::prepare_response(opened.headers_mut(), false);
    opened.headers_mut().insert(headers::REPLICA, pick.replica.name_header.clone());
    ask_for_socket(opened.headers_mut());
    tokio::spawn(async move {
        // Held until the session ends.
        let (_pick, _span) = (pick, span);
        let session = async { Some((client.await.ok()?, engine.await.ok()?)) };
        let Some((client, engine)) = session.await else { return };
        let outcome = tokio::select! {
            outcome = relay(client, engine) => outcome,
            () = exchange.proxy.stop.wait() => Outcome::Drained,
        };
        exchange.conclude(outcome);
    });
    opened
}

async fn relay(client: Upgraded, engine: Upgraded) -> Outcome {
    let (mut client, mut engine) = (TokioIo::new(client), TokioIo::new(engine));
    match copy_bidirectional(&mut client, &mut engine).await {
        Ok(_) => Outcome::Ok,
        Err(_) => Outcome::EngineCut,
    }
}
