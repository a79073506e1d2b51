//! What peers ask this router: missing segments, pages of its tree. The mesh seals and understands it;
//! here it is only limited.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use grapevine_mesh::{EXCHANGE_PATH, MAX_QUESTION_BYTES, MeshHandle, Refused};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Questions that are answered at once.
const MAX_RUNNING: usize = 4;

/// Questions that wait for that, at most: a fleet that misses the same segment asks at once.
const MAX_WAITING: usize = 64;

/// Longest wait. The asker gives up after 2 s and has others to ask.
const WAIT: Duration = Duration::from_secs(1);

struct Desk {
    mesh: MeshHandle,
    running: Semaphore,
    waiting: Semaphore,
}

/// The one route. Without a seal it answers only on loopback: `open` says whether it may.
pub(super) fn router(mesh: MeshHandle, open: bool) -> Router {
    if !open {
        return Router::new().route(EXCHANGE_PATH, post(|| async { refuse(Refused::Foreign) }));
    }
    let desk = Desk { mesh, running: Semaphore::new(MAX_RUNNING), waiting: Semaphore::new(MAX_WAITING) };
    Router::new()
        .route(EXCHANGE_PATH, post(answer))
        .layer(DefaultBodyLimit::max(MAX_QUESTION_BYTES))
        .with_state(Arc::new(desk))
}

async fn answer(State(desk): State<Arc<Desk>>, question: Bytes) -> Response {
    let Ok(_place) = desk.waiting.try_acquire() else { return refuse(Refused::Busy) };
    let Ok(Ok(_turn)) = timeout(WAIT, desk.running.acquire()).await else { return refuse(Refused::Busy) };
    match desk.mesh.answer(&question).await {
        Ok(answer) => answer.into_response(),
        Err(refused) => refuse(refused),
    }
}

fn refuse(why: Refused) -> Response {
    let status = StatusCode::from_u16(why.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    (status, format!("{why}\n")).into_response()
}
