//! What the mesh actor asks of this router, and where it delivers what peers said.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use grapevine_mesh::{FetchError, Host, Incoming, LoadReport, MeshConfig, Outgoing, ReplicaEpoch, Snapshot};
use grapevine_route::{OwnLoads, PeerLoad, ReportedLoad};
use grapevine_tree::{ReplicaHistory, SnapshotPage};

use crate::actors::replica::{PeerReport, ReplicaHandle};
use crate::actors::tree::{Drained, TreeHandle};
use crate::config::Config;

mod fetch;

pub use fetch::Fetcher;
pub use grapevine_mesh::codec::WIRE_VERSION;
pub use grapevine_tree::boundary::SCHEME as HASH_SCHEME;

/// The router as the mesh sees it.
#[derive(Debug)]
pub struct NodeHost {
    tree: TreeHandle,
    replicas: ReplicaHandle,
    fetcher: Fetcher,
    draining: AtomicBool,
    /// Only the mesh uses it, for a moment each time.
    own_loads: Mutex<OwnLoads>,
}

impl NodeHost {
    /// A host that speaks for these actors.
    pub fn new(tree: TreeHandle, replicas: ReplicaHandle, fetcher: Fetcher) -> Self {
        Self { tree, replicas, fetcher, draining: AtomicBool::new(false), own_loads: Mutex::default() }
    }

    /// From now on peers are told that this router goes away.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    fn own_loads(&self) -> MutexGuard<'_, OwnLoads> {
        self.own_loads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn epochs(&self) -> Vec<ReplicaEpoch> {
        let set = self.replicas.replicas().load();
        let known = set.replicas.iter().map(|r| ReplicaEpoch { replica: r.id, epoch: r.epoch.load(Relaxed) });
        known.filter(|known| known.epoch > 0).collect()
    }
}

impl Host for NodeHost {
    async fn collect(&self, budget: usize) -> Outgoing {
        let Drained { entries, own_tokens } = self.tree.drain(budget).await.unwrap_or_default();
        let set = self.replicas.replicas().load();
        let loads = self.own_loads().tell(set.replicas.iter().map(|r| (r.id, &*r.load)), own_tokens);
        Outgoing {
            entries,
            loads: loads.into_iter().map(told).collect(),
            epochs: self.epochs(),
            draining: self.draining.load(Relaxed),
        }
    }

    fn loads(&self) -> Vec<LoadReport> {
        let set = self.replicas.replicas().load();
        let loads = self.own_loads().busy(set.replicas.iter().map(|r| (r.id, &*r.load)));
        loads.into_iter().map(told).collect()
    }

    fn deliver(&self, incoming: Incoming) {
        let Incoming { origin, restarted, entries, loads, epochs } = incoming;
        if !entries.is_empty() {
            self.tree.apply(origin, entries);
        }
        if loads.is_some() || !epochs.is_empty() || restarted {
            self.replicas.report(PeerReport { origin, restarted, loads, epochs });
        }
    }

    async fn fetch(&self, url: &str, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, FetchError> {
        self.fetcher.fetch(url, body, limit).await
    }

    async fn histories(&self) -> Option<Vec<ReplicaHistory>> {
        self.tree.histories().await
    }

    async fn snapshot(&self, cursor: u64, budget: usize) -> Option<SnapshotPage> {
        self.tree.snapshot(cursor, budget).await
    }

    async fn restore(&self, mut snapshot: Snapshot) {
        let epochs = std::mem::take(&mut snapshot.epochs);
        let report = PeerReport { origin: snapshot.teacher, restarted: false, loads: None, epochs };
        self.replicas.report(report);
        // An epoch that comes after the credits of its caches would void them.
        self.replicas.settled().await;
        let histories = std::mem::take(&mut snapshot.histories);
        let Some(dates) = self.tree.adopt(histories).await else { return };
        for nodes in snapshot.pages() {
            self.tree.restore(snapshot.teacher, &nodes, &dates).await;
        }
    }
}

fn told(load: ReportedLoad) -> LoadReport {
    let PeerLoad { inflight, queued_tokens } = load.load;
    LoadReport { replica: load.replica, inflight, queued_tokens, new_tokens: load.new_tokens }
}

/// How the mesh is to run; `admin_url` is what peers are told of the admin listener.
pub fn mesh_config(config: &Config, admin_url: String) -> MeshConfig {
    let exposed = |secret: &Option<crate::config::Secret>| secret.as_ref().map(|s| s.expose().to_vec());
    MeshConfig {
        cluster_id: config.cluster_id.clone(),
        advertise: config.gossip_advertise,
        seeds: config.gossip_seeds.clone(),
        secret: exposed(&config.cluster_secret),
        previous_secret: exposed(&config.cluster_secret_previous),
        interval: config.gossip_interval,
        admin_url: Some(admin_url),
        join_timeout: config.join_timeout,
        ..MeshConfig::new(config.router_id.clone(), config.gossip_listen)
    }
}
