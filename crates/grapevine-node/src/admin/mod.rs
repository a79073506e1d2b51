//! The admin listener: probes, metrics, status, and what peers ask. Never on the public port.

mod exchange;
mod fleet;
pub mod status;
pub mod survey;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::{Router, routing::get};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use status::Status;
use survey::Observatory;

/// What the admin listener shows.
pub struct Admin {
    /// Everything that can be looked at.
    pub observatory: Arc<Observatory>,
    /// Every metric.
    pub registry: Registry,
}

/// The admin listener's routes.
pub fn router(admin: Admin) -> Router {
    let exchange = exchange::router(admin.observatory.mesh.clone(), admin.observatory.answers_peers);
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/status", get(status_of))
        .with_state(Arc::new(admin))
        .merge(exchange)
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    if admin.observatory.ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    let mut text = String::new();
    match prometheus_text::encode(&mut text, &admin.registry) {
        Ok(()) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn status_of(State(admin): State<Arc<Admin>>) -> Json<Status> {
    Json(admin.observatory.status())
}
