//! How many connections a listener takes. Without a limit those who connect would take every descriptor, and
//! none would be left to reach an engine with.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Between two warnings that there is no room for more connections.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Most connections to the admin listener: peers, a monitor, a few who look. Whoever else can reach it must
/// not take the descriptors that clients and engines need.
const MOST_OF_ADMIN: usize = 1_024;

/// Connections that clients may have at a time: half of what this process may open, as each of their
/// requests needs one to an engine.
pub fn of_clients() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit / 2).ok()).unwrap_or(usize::MAX)
}

/// Connections that the admin listener may have at a time: an eighth of what this process may open, or less.
pub fn of_admin() -> usize {
    MOST_OF_ADMIN.min(of_clients() / 4)
}

/// The connections that there may be at a time.
pub(super) struct Room {
    places: Arc<Semaphore>,
    warned: Option<Instant>,
}

impl Room {
    pub(super) fn new(connections: usize) -> Self {
        let places = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
        Self { places, warned: None }
    }

    /// The next connection, when there is room for it.
    pub(super) async fn next(
        &mut self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        if self.places.available_permits() == 0 && self.warned.is_none_or(|at| at.elapsed() > WARN_INTERVAL) {
            self.warned = Some(Instant::now());
            let addr = listener.local_addr().ok();
            tracing::warn!(?addr, "as many connections as file descriptors allow; further ones wait");
        }
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| io::ErrorKind::Other)?;
        let (stream, _) = listener.accept().await?;
        Ok((stream, place))
    }
}
