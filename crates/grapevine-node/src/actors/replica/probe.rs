//! One health probe.

use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::ReplicaId;
use http::StatusCode;

use crate::proxy::failure::{no_sockets, refused};
use crate::replica::Replica;
use crate::replica::health::Probe;

/// Asks `replica` whether it lives, where its kind says that.
pub(super) async fn probe(
    client: reqwest::Client,
    replica: Arc<Replica>,
    limit: Duration,
) -> (ReplicaId, Probe) {
    let asked = replica.get(&client, replica.kind().health_path()).send();
    let found = match tokio::time::timeout(replica.kind().health_limit(limit), asked).await {
        Err(_) => Probe::Silent,
        Ok(Err(error)) if refused(&error) => Probe::Refused,
        Ok(Err(error)) if no_sockets(&error) => Probe::NotAsked,
        Ok(Err(_)) => Probe::Silent,
        Ok(Ok(response)) => judge(&replica, response.status()),
    };
    (replica.id, found)
}

fn judge(replica: &Replica, status: StatusCode) -> Probe {
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        tracing::warn!(replica = replica.name, %status, "health endpoint asks for credentials");
    }
    if status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED {
        Probe::NotReady
    } else {
        Probe::Alive
    }
}
