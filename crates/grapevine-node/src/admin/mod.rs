//! The admin listener: probes, metrics, status, and what peers ask. Never on the public port.

pub mod access;
pub mod ask;
pub mod decisions;
mod events;
#[cfg(test)]
mod examples;
mod exchange;
mod fleet;
pub mod fleet_view;
pub mod heaviest;
mod merge;
mod page;
mod replicas;
mod sample;
mod site;
pub mod status;
pub mod survey;
mod views;
pub mod warnings;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use prometheus_client::registry::Registry;

use tokio::sync::Semaphore;

use access::Access;
use events::Subscribers;
use survey::Observatory;

use crate::metrics::text;

/// What the admin listener shows.
pub struct Admin {
    /// Everything that can be looked at.
    pub observatory: Arc<Observatory>,
    /// Every metric.
    pub registry: Arc<Registry>,
    /// Who may see them.
    pub access: Access,
    /// Largest body that is explained, bytes.
    pub body_limit: usize,
    explain_places: Semaphore,
    subscribers: Subscribers,
}

impl Admin {
    /// Shows `observatory` and `registry` to those who may.
    pub fn new(
        observatory: Arc<Observatory>,
        registry: Arc<Registry>,
        access: Access,
        body_limit: usize,
    ) -> Self {
        let (explain_places, subscribers) = (views::explain_places(), Subscribers::default());
        Self { observatory, registry, access, body_limit, explain_places, subscribers }
    }
}

/// The admin listener's routes.
pub fn router(admin: Admin) -> Router {
    let exchange = exchange::router(admin.observatory.mesh.clone(), admin.observatory.answers_peers);
    let admin = Arc::new(admin);
    let guarded = Router::new()
        .route("/metrics", get(metrics))
        .route("/api/v1/events", get(events::subscribe))
        .merge(views::router(admin.body_limit))
        .merge(replicas::router())
        .route_layer(from_fn_with_state(Arc::clone(&admin), only_who_may));
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .merge(guarded)
        .with_state(admin)
        // Peers know each other by address; without a secret their questions are as open as the listener.
        .merge(exchange.route_layer(from_fn(only_by_address)))
        .merge(page::router())
}

async fn only_who_may(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    if let Err(what_to_do) = admin.access.check(request.headers()) {
        return (StatusCode::UNAUTHORIZED, what_to_do).into_response();
    }
    if site::is_of_another(&request) {
        return (StatusCode::FORBIDDEN, "not from another site's page\n").into_response();
    }
    if admin.access.is_open() {
        return only_by_address(request, next).await;
    }
    next.run(request).await
}

async fn only_by_address(request: Request, next: Next) -> Response {
    if site::is_by_foreign_name(&request) {
        return (StatusCode::FORBIDDEN, site::BY_ADDRESS).into_response();
    }
    next.run(request).await
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    if admin.observatory.ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    const KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, KIND)], text(&admin.registry)).into_response()
}
