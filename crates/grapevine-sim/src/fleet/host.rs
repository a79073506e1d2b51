//! What the mesh asks of a simulated router.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grapevine_mesh::{FetchError, Host, Incoming, LoadReport, Outgoing, Snapshot, entry_len};
use grapevine_tree::{Millis, ReplicaHistory, SnapshotPage};

use super::admin::Admins;
use super::clock::Clock;
use super::journal::Journal;
use super::router::Router;
use super::witness::Witness;
use crate::replay::engine::Micros;

/// What all routers of a world share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) journal: Arc<Journal>,
    pub(super) witness: Arc<Mutex<Witness>>,
    pub(super) admins: Arc<Admins>,
    /// Bytes of entries that all routers handed to their meshes.
    pub(super) delta_bytes: Arc<AtomicU64>,
}

impl Shared {
    /// The witness. One thread runs a world, so nobody ever waits here.
    pub(super) fn witness(&self) -> MutexGuard<'_, Witness> {
        self.witness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One life of router `index`.
pub(super) struct SimHost {
    index: usize,
    /// When it started: its own clock counts from there.
    born: Micros,
    shared: Shared,
    router: Mutex<Router>,
}

impl SimHost {
    pub(super) fn new(index: usize, router: Router, shared: Shared) -> Self {
        Self { index, born: shared.clock.now(), shared, router: Mutex::new(router) }
    }

    /// Lets `what` use the router, with the time on its own clock.
    pub(super) fn with<T>(&self, what: impl FnOnce(&mut Router, Millis) -> T) -> T {
        let now = (self.shared.clock.now() - self.born) / 1_000;
        what(&mut self.router.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

impl Host for SimHost {
    async fn collect(&self, budget: usize) -> Outgoing {
        let outgoing = self.with(|router, now| router.outgoing(budget, now));
        let bytes: usize = outgoing.entries.iter().map(entry_len).sum();
        self.shared.delta_bytes.fetch_add(bytes as u64, Relaxed);
        outgoing
    }

    fn loads(&self) -> Vec<LoadReport> {
        self.with(|router, _| router.busy_loads())
    }

    fn deliver(&self, incoming: Incoming) {
        let at = self.shared.clock.now();
        let entries = incoming.entries.len();
        self.shared.journal.note(at, format_args!("deliver {} {:?} {entries}", self.index, incoming.origin));
        self.with(|router, now| {
            router.incoming(incoming, now);
            if entries > 0 {
                self.shared.witness().heard(self.index, at, |key, replica| router.knows(key, replica, now));
            }
        });
    }

    async fn fetch(&self, url: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
        self.shared.admins.fetch(self.index, url, &body, limit).await
    }

    async fn histories(&self) -> Option<Vec<ReplicaHistory>> {
        Some(self.with(|router, _| router.histories()))
    }

    async fn snapshot(&self, cursor: u64, budget: usize) -> Option<SnapshotPage> {
        Some(self.with(|router, now| router.snapshot(cursor, budget, now)))
    }

    async fn restore(&self, snapshot: Snapshot) {
        let (at, teacher) = (self.shared.clock.now(), snapshot.teacher);
        self.shared.journal.note(at, format_args!("restore {} {teacher:?}", self.index));
        self.with(|router, now| router.restore(&snapshot, now));
    }
}
