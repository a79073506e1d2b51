//! Admin ports of the routers: how a mesh asks a peer for what gossip did not bring. HTTP over TCP, so
//! loss only delays, and a cut in either direction stops it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grapevine_mesh::{FetchError, MeshHandle};
use tokio::time::sleep;

use super::network::Network;

/// How long a connection is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Head of a request and of an answer, bytes.
const HTTP_BYTES: usize = 300;

/// Who answers where.
pub(super) struct Admins {
    network: Arc<Network>,
    handles: Mutex<BTreeMap<String, (usize, MeshHandle)>>,
    bytes: AtomicU64,
}

/// Where router `index` says that its admin port is.
pub(super) fn url(index: usize) -> String {
    format!("http://router-{index}:9091")
}

impl Admins {
    /// Nobody answers yet.
    pub(super) fn new(network: Arc<Network>) -> Arc<Self> {
        Arc::new(Self { network, handles: Mutex::default(), bytes: AtomicU64::new(0) })
    }

    /// Router `index` answers from now on.
    pub(super) fn open(&self, index: usize, mesh: &MeshHandle) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.insert(url(index), (index, mesh.clone()));
    }

    /// Router `index` is gone.
    pub(super) fn close(&self, index: usize) {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&url(index));
    }

    /// Bytes of all questions and answers so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Router `from` asks at `url`.
    pub(super) async fn fetch(
        &self,
        from: usize,
        url: &str,
        body: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, FetchError> {
        let known = self.handles.lock().unwrap_or_else(PoisonError::into_inner).get(url).cloned();
        let (to, mesh) = known.ok_or(FetchError::Unreachable("connection refused".to_owned()))?;
        if !self.network.connects(from, to) {
            sleep(CONNECT_TIMEOUT).await;
            return Err(FetchError::Unreachable("timed out".to_owned()));
        }
        // A handshake and a question, then the answer.
        sleep(self.network.delay() * 3).await;
        let answer = mesh.answer(body).await.map_err(|refused| FetchError::Refused(refused.status()))?;
        sleep(self.network.delay()).await;
        self.bytes.fetch_add((2 * HTTP_BYTES + body.len() + answer.len()) as u64, Relaxed);
        if answer.len() > limit { Err(FetchError::TooLong) } else { Ok(answer) }
    }
}
