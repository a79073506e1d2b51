//! Which path is answered how.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::body::EngineBody;
use super::control;
use super::error::ApiError;
use super::fault::Plan;
use super::generate::{Call, generate};
use super::metrics;
use super::prompt::{Message, render_chat, render_prompts};
use super::request::Api;
use super::server::Restarter;
use super::state::{Core, Received};
use super::text::{TOKEN_BYTES, digest};
use super::wire::WireControl;

/// Largest request body: more than any model's context, less than memory.
const MAX_BODY_BYTES: usize = 256 << 20;

/// The version that the answers' shapes were recorded from.
const VLLM_VERSION: &str = "0.32.0";

/// What all requests of a connection share.
pub(crate) struct Conn {
    pub(crate) core: Arc<Core>,
    pub(crate) restarter: Restarter,
    pub(crate) wire: Arc<WireControl>,
}

type Answer = Result<Response<EngineBody>, ApiError>;

/// Answers one request; errors become their response here.
pub(crate) async fn answer(
    conn: Arc<Conn>,
    request: Request<Incoming>,
) -> Result<Response<EngineBody>, Infallible> {
    let arrived = Instant::now();
    let (head, body) = request.into_parts();
    let mut response = match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => route(&conn, &head, body.to_bytes(), arrived).await.unwrap_or_else(refused),
        Err(_) => refused(ApiError::detail(StatusCode::BAD_REQUEST, "There was an error parsing the body")),
    };
    response.headers_mut().insert(header::SERVER, HeaderValue::from_static("uvicorn"));
    Ok(response)
}

async fn route(conn: &Conn, head: &Parts, body: Bytes, arrived: Instant) -> Answer {
    let path = head.uri.path();
    if control::is_control(path) {
        return control::answer(conn, head, &body);
    }
    let core = &conn.core;
    let generation = generation_of(head);
    if generation.is_some() {
        core.count(|stats| stats.requests += 1);
    }
    core.record(|| received(head, &body));
    let plan = core.faults.plan(path);
    if plan.any {
        core.count(|stats| stats.faulted += 1);
        if let Some(response) = suffer(&plan, &conn.wire).await? {
            return Ok(response);
        }
    }
    let (gzip, hop_by_hop) = (plan.gzip, plan.hop_by_hop);
    check_key(core, head)?;
    let mut response = match generation {
        Some(api) => {
            let call = Call { core, wire: &conn.wire, plan, headers: &head.headers, body, arrived };
            generate(api, call).await?
        }
        None => small(core, head, &body)?,
    };
    if gzip && generation.is_some() {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if hop_by_hop {
        add_hop_by_hop(&mut response);
    }
    Ok(response)
}

fn generation_of(head: &Parts) -> Option<Api> {
    match (&head.method, head.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => Some(Api::Chat),
        (&Method::POST, "/v1/completions") => Some(Api::Completions),
        _ => None,
    }
}

/// What strikes before the request is looked at.
async fn suffer(plan: &Plan, wire: &WireControl) -> Result<Option<Response<EngineBody>>, ApiError> {
    if plan.trickle {
        wire.trickle();
    }
    if let Some(time) = plan.slow_headers {
        sleep(time).await;
    }
    if let Some(how) = plan.cut_now {
        wire.cut(how);
        std::future::pending::<()>().await;
    }
    if plan.hang {
        std::future::pending::<()>().await;
    }
    if let Some(code) = plan.status {
        return Err(ApiError::of_status(
            StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        ));
    }
    Ok(plan.redirect.as_ref().map(|(code, location)| redirect(*code, location)))
}

fn redirect(code: u16, location: &str) -> Response<EngineBody> {
    let mut response = Response::new(EngineBody::whole(""));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::TEMPORARY_REDIRECT);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn add_hop_by_hop(response: &mut Response<EngineBody>) {
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("x-engine-hop"));
    headers.insert("keep-alive", HeaderValue::from_static("timeout=5, max=100"));
    headers.insert("x-engine-hop", HeaderValue::from_static("only for the next hop"));
    headers.insert("proxy-authenticate", HeaderValue::from_static("Basic"));
}

fn check_key(core: &Core, head: &Parts) -> Result<(), ApiError> {
    let Some(key) = core.config.api_key.as_ref().filter(|_| head.uri.path().starts_with("/v1")) else {
        return Ok(());
    };
    let given = head.headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    match given.and_then(|v| v.strip_prefix("Bearer ")) {
        Some(token) if key.matches(token) => Ok(()),
        _ => Err(ApiError::unauthorized()),
    }
}

/// Everything that is answered at once.
fn small(core: &Core, head: &Parts, body: &[u8]) -> Answer {
    let path = head.uri.path();
    let allowed = match path {
        "/health" | "/ping" | "/version" | "/v1/models" | "/metrics" | "/load" => Method::GET,
        "/tokenize" | "/v1/chat/completions" | "/v1/completions" => Method::POST,
        _ if path == "/echo" || path.starts_with("/echo/") => {
            return Ok(json_response(&serde_json::to_value(received(head, body)).unwrap_or_default()));
        }
        _ => return Err(ApiError::detail(StatusCode::NOT_FOUND, "Not Found")),
    };
    if head.method != allowed {
        return Ok(wrong_method(&allowed));
    }
    match path {
        "/version" => Ok(json_response(&json!({ "version": VLLM_VERSION }))),
        "/v1/models" => Ok(json_response(&models(core))),
        "/load" => Ok(json_response(&json!({ "server_load": load(core) }))),
        "/metrics" => Ok(text(core.metrics(), metrics::CONTENT_TYPE)),
        "/tokenize" => tokenize(core, body),
        _ => Ok(Response::new(EngineBody::whole(""))),
    }
}

fn load(core: &Core) -> u64 {
    let stats = core.stats();
    stats.running + stats.waiting
}

fn models(core: &Core) -> Value {
    let entry = |name: &String| {
        json!({
            "id": name, "object": "model", "created": core.started_seconds(), "owned_by": "vllm",
            "root": name, "parent": null, "max_model_len": core.config.max_model_tokens,
        })
    };
    json!({ "object": "list", "data": core.config.models.iter().map(entry).collect::<Vec<_>>() })
}

fn tokenize(core: &Core, body: &[u8]) -> Answer {
    let value: Value = serde_json::from_slice(body)
        .map_err(|_| ApiError::invalid("json_invalid", "body", "JSON decode error"))?;
    let text = match value.get("messages") {
        Some(messages) => {
            let text = messages.to_string();
            let messages: Vec<Message<'_>> = serde_json::from_str(&text)
                .map_err(|error| ApiError::invalid("value_error", "body", &error.to_string()))?;
            render_chat(&messages, &Value::Null)
        }
        None => render_prompts(value.get("prompt").unwrap_or(&Value::Null)).unwrap_or_default().concat(),
    };
    let token = |bytes: &[u8]| {
        bytes.iter().fold(17u32, |id, b| id.wrapping_mul(16_777_619) ^ u32::from(*b)) % 150_000
    };
    let tokens: Vec<u32> = text.chunks(TOKEN_BYTES).map(token).collect();
    Ok(json_response(&json!({
        "count": tokens.len(), "max_model_len": core.config.max_model_tokens, "tokens": tokens,
        "token_strs": null,
    })))
}

fn received(head: &Parts, body: &[u8]) -> Received {
    let header = |(name, value): (&header::HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    Received {
        method: head.method.to_string(),
        target: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
        headers: head.headers.iter().map(header).collect(),
        body_bytes: body.len() as u64,
        body_digest: digest(body),
    }
}

fn wrong_method(allowed: &Method) -> Response<EngineBody> {
    let mut response = refused(ApiError::detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed"));
    if let Ok(allowed) = HeaderValue::from_str(allowed.as_str()) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

fn refused(error: ApiError) -> Response<EngineBody> {
    let mut response = text(error.body, "application/json");
    *response.status_mut() = error.status;
    response
}

pub(crate) fn json_response(value: &Value) -> Response<EngineBody> {
    text(value.to_string(), "application/json")
}

fn text(body: String, kind: &'static str) -> Response<EngineBody> {
    let mut response = Response::new(EngineBody::whole(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// A restart asked for over HTTP waits for its own answer to leave.
pub(crate) const RESTART_DELAY: Duration = Duration::from_millis(20);
