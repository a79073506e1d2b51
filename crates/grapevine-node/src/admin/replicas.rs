//! Replicas by hand: added, removed, drained. Of this router alone, and until it restarts.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use grapevine_tree::ReplicaId;
use serde_json::json;

use super::Admin;
use super::status::ReplicaStatus;
use crate::discovery::entry::Fields;
use crate::discovery::{Order, OrderError};

/// Largest body, bytes: a replica with thousands of adapters.
const MAX_BODY: usize = 1 << 20;

/// The routes. Who may see what is decided around them.
pub(super) fn router() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/replicas", get(list).post(add))
        .route("/api/v1/replicas/{replica}", get(show).delete(remove))
        .route("/api/v1/replicas/{replica}/drain", post(hold).delete(release))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

async fn list(State(admin): State<Arc<Admin>>) -> Json<Vec<ReplicaStatus>> {
    Json(admin.observatory.status().replicas)
}

async fn show(State(admin): State<Arc<Admin>>, Path(replica): Path<String>) -> Response {
    let Some(id) = admin.id_of(&replica) else { return refuse(&OrderError::Unknown) };
    admin.answer(StatusCode::OK, id)
}

async fn add(State(admin): State<Arc<Admin>>, body: Result<Json<Fields>, JsonRejection>) -> Response {
    let fields = match body {
        Ok(Json(fields)) => fields,
        Err(rejection) => return error(rejection.status(), &rejection.body_text()),
    };
    match fields.spec() {
        Ok(spec) => admin.order(Order::Add(Box::new(spec)), StatusCode::CREATED).await,
        Err(problem) => error(StatusCode::BAD_REQUEST, &problem),
    }
}

async fn remove(State(admin): State<Arc<Admin>>, Path(replica): Path<String>) -> Response {
    admin.order_about(&replica, Order::Remove).await
}

async fn hold(State(admin): State<Arc<Admin>>, Path(replica): Path<String>) -> Response {
    admin.order_about(&replica, Order::Hold).await
}

async fn release(State(admin): State<Arc<Admin>>, Path(replica): Path<String>) -> Response {
    admin.order_about(&replica, Order::Release).await
}

impl Admin {
    /// The replica with this name or id.
    fn id_of(&self, replica: &str) -> Option<ReplicaId> {
        let set = self.observatory.replicas.replicas().load();
        let called =
            |r: &&Arc<crate::replica::Replica>| r.name == replica || format!("{:?}", r.id) == replica;
        set.replicas.iter().find(called).map(|found| found.id)
    }

    async fn order_about(&self, replica: &str, order: fn(ReplicaId) -> Order) -> Response {
        match self.id_of(replica) {
            Some(id) => self.order(order(id), StatusCode::OK).await,
            None => refuse(&OrderError::Unknown),
        }
    }

    async fn order(&self, order: Order, done: StatusCode) -> Response {
        match self.observatory.replicas.order(order).await {
            Some(Ok(Some(replica))) => (done, Json(self.observatory.one_replica(&replica))).into_response(),
            Some(Ok(None)) => StatusCode::NO_CONTENT.into_response(),
            Some(Err(problem)) => refuse(&problem),
            None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        }
    }

    fn answer(&self, status: StatusCode, id: ReplicaId) -> Response {
        match self.observatory.replicas.replicas().load().get(id) {
            Some(replica) => (status, Json(self.observatory.one_replica(replica))).into_response(),
            None => refuse(&OrderError::Unknown),
        }
    }
}

fn refuse(problem: &OrderError) -> Response {
    let status = match problem {
        OrderError::Unknown => StatusCode::NOT_FOUND,
        OrderError::Elsewhere(_) | OrderError::TooMany => StatusCode::CONFLICT,
        OrderError::Bad(_) => StatusCode::BAD_REQUEST,
    };
    error(status, &problem.to_string())
}

fn error(status: StatusCode, problem: &str) -> Response {
    (status, Json(json!({ "error": problem }))).into_response()
}
