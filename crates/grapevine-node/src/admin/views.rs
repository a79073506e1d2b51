//! The JSON endpoints for people who look: status, fleet, tree, decisions, explain.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get, routing::post};
use http::Method;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Admin;
use super::decisions::DecisionList;
use super::fleet_view::Fleet;
use super::heaviest::{MAX_PREFIXES, PREFIXES, TreeView};
use super::status::Status;
use crate::clock::unix_ms;
use crate::error::{Refused, RouterError};

/// Decisions shown, at most.
const MAX_DECISIONS: usize = 256;

/// Decisions shown unless asked.
const DECISIONS: usize = 100;

/// Bodies explained at once: each may be as large as a request.
const EXPLAINED_AT_ONCE: usize = 4;

/// Longest time for the body of one to come.
const UPLOAD_LIMIT: Duration = Duration::from_secs(30);

/// What is explained unless a path is named.
const CHAT: &str = "/v1/chat/completions";

/// The routes. Bodies to be explained are at most `body_limit` bytes.
pub(super) fn router(body_limit: usize) -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/status", get(status))
        .route("/api/v1/fleet", get(fleet))
        .route("/api/v1/tree", get(tree))
        .route("/api/v1/decisions", get(decisions))
        .route("/api/v1/explain", post(explain).layer(DefaultBodyLimit::max(body_limit)))
}

/// How many may be explained at once.
pub(super) fn explain_places() -> Semaphore {
    Semaphore::new(EXPLAINED_AT_ONCE)
}

async fn status(State(admin): State<Arc<Admin>>) -> Json<Status> {
    Json(admin.observatory.status())
}

async fn fleet(State(admin): State<Arc<Admin>>) -> Json<Arc<Fleet>> {
    Json(admin.observatory.fleet().await)
}

#[derive(Deserialize)]
struct HowMany {
    limit: Option<usize>,
    #[serde(default)]
    after: u64,
}

async fn tree(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<HowMany>, QueryRejection>,
) -> Result<Json<TreeView>, Response> {
    let Query(how_many) = query.map_err(|error| refuse(error.status(), &error.body_text()))?;
    let limit = how_many.limit.unwrap_or(PREFIXES).clamp(1, MAX_PREFIXES);
    Ok(Json(admin.observatory.heaviest(limit).await))
}

async fn decisions(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<HowMany>, QueryRejection>,
) -> Result<Json<DecisionList>, Response> {
    let Query(how_many) = query.map_err(|error| refuse(error.status(), &error.body_text()))?;
    let limit = how_many.limit.unwrap_or(DECISIONS).clamp(1, MAX_DECISIONS);
    Ok(Json(admin.observatory.decisions(how_many.after, limit)))
}

#[derive(Deserialize)]
struct What {
    path: Option<String>,
}

async fn explain(
    State(admin): State<Arc<Admin>>,
    query: Result<Query<What>, QueryRejection>,
    request: Request,
) -> Response {
    // Before the body is read: it may be as large as a request.
    let Ok(_place) = admin.explain_places.try_acquire() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many are being explained: try again");
    };
    let path = match query {
        Ok(Query(what)) => what.path.unwrap_or_else(|| CHAT.to_owned()),
        Err(error) => return refuse(error.status(), &error.body_text()),
    };
    let body = match timeout(UPLOAD_LIMIT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            return refuse_as(&RouterError::BodyTooLarge.into());
        }
        Ok(Err(error)) => return refuse(error.status(), &error.body_text()),
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    if !path.starts_with('/') {
        return refuse(StatusCode::BAD_REQUEST, "path must begin with `/`");
    }
    match admin.observatory.proxy.explain_request(&Method::POST, &path, &body).await {
        Ok(explained) => Json(admin.observatory.explained(&path, &explained, unix_ms())).into_response(),
        Err(refused) => refuse_as(&refused),
    }
}

fn refuse_as(refused: &Refused) -> Response {
    refuse(refused.error.facts().status, &refused.text())
}

/// An error as these endpoints answer it.
pub(super) fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(serde_json::json!({ "error": why }))).into_response()
}
