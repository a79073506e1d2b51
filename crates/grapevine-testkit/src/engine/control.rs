//! What a real engine does not have: looking at and steering the simulation over HTTP.
//!
//! | path | does |
//! |---|---|
//! | `GET /stats` | counters, JSON |
//! | `/reset` | empties the cache, counters start again |
//! | `GET`, `POST`, `DELETE /faults` | lists, replaces (a rule or a list), clears the fault rules |
//! | `POST /restart` | as if the process was restarted; `{"down_ms": 500}` |
//! | `GET /requests` | heads and body digests of the last requests, with `--record-requests` |
//!
//! Faults never strike here.

use std::time::Duration;

use http::request::Parts;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::body::EngineBody;
use super::error::ApiError;
use super::fault::FaultRule;
use super::routes::{Conn, RESTART_DELAY, json_response};

/// Is `path` for the simulation and not for the engine?
pub(crate) fn is_control(path: &str) -> bool {
    matches!(path, "/stats" | "/reset" | "/faults" | "/restart" | "/requests")
}

pub(crate) fn answer(conn: &Conn, head: &Parts, body: &[u8]) -> Result<Response<EngineBody>, ApiError> {
    let core = &conn.core;
    match head.uri.path() {
        "/stats" => Ok(json_response(&json!(core.stats()))),
        "/requests" => Ok(json_response(&json!(core.received()))),
        "/restart" => restart(conn, body),
        "/faults" => faults(conn, &head.method, body),
        _ => {
            core.reset();
            Ok(json_response(&json!({})))
        }
    }
}

fn faults(conn: &Conn, method: &Method, body: &[u8]) -> Result<Response<EngineBody>, ApiError> {
    let faults = &conn.core.faults;
    match *method {
        Method::POST | Method::PUT => faults.set(read_rules(body)?),
        Method::DELETE => faults.clear(),
        _ => {}
    }
    Ok(json_response(&json!(faults.list())))
}

fn read_rules(body: &[u8]) -> Result<Vec<FaultRule>, ApiError> {
    let one = |value: Value| serde_json::from_value::<FaultRule>(value);
    let rules = serde_json::from_slice(body).and_then(|value: Value| match value {
        Value::Array(list) => list.into_iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    });
    rules.map_err(|error| ApiError::detail(StatusCode::BAD_REQUEST, &error.to_string()))
}

fn restart(conn: &Conn, body: &[u8]) -> Result<Response<EngineBody>, ApiError> {
    let value: Value = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body)
            .map_err(|error| ApiError::detail(StatusCode::BAD_REQUEST, &error.to_string()))?
    };
    let down = Duration::from_millis(value.get("down_ms").and_then(Value::as_u64).unwrap_or(0));
    let restarter = conn.restarter.clone();
    tokio::spawn(async move {
        tokio::time::sleep(RESTART_DELAY).await;
        restarter.restart(down).await;
    });
    Ok(json_response(&json!({})))
}
