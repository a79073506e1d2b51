//! What the mesh actor asks of this router, and where it delivers what peers said.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use grapevine_mesh::{FetchError, Host, Incoming, LoadReport, MeshConfig, Outgoing, ReplicaEpoch, Snapshot};
use grapevine_tree::{ReplicaHistory, ReplicaId, SnapshotPage};

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
    /// What was last said of each replica. Only the mesh's collects use it, one after another.
    said: Mutex<BTreeMap<ReplicaId, LoadReport>>,
}

impl NodeHost {
    /// A host that speaks for these actors.
    pub fn new(tree: TreeHandle, replicas: ReplicaHandle, fetcher: Fetcher) -> Self {
        Self { tree, replicas, fetcher, draining: AtomicBool::new(false), said: Mutex::default() }
    }

    /// From now on peers are told that this router goes away.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Load of every replica that has some, had some when it was last said, or got new tokens.
    fn loads(&self, own_tokens: Vec<(ReplicaId, u64)>) -> Vec<LoadReport> {
        let Ok(mut said) = self.said.lock() else { return Vec::new() };
        let own_tokens = BTreeMap::from_iter(own_tokens);
        let mut loads = Vec::new();
        for replica in &self.replicas.replicas().load().replicas {
            let before = said.get(&replica.id).copied();
            let counted = own_tokens.get(&replica.id).copied();
            let now = LoadReport {
                replica: replica.id,
                inflight: replica.load.own_inflight(),
                queued_tokens: u32::try_from(replica.load.own_queued_tokens()).unwrap_or(u32::MAX),
                new_tokens: counted.or(before.map(|b| b.new_tokens)).unwrap_or(0),
            };
            let idle = LoadReport { replica: replica.id, inflight: 0, queued_tokens: 0, new_tokens: 0 };
            let busy = now.inflight != 0 || now.queued_tokens != 0;
            if busy || now != before.unwrap_or(idle) {
                loads.push(now);
            }
            said.insert(replica.id, now);
        }
        loads
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
        Outgoing {
            entries,
            loads: self.loads(own_tokens),
            epochs: self.epochs(),
            draining: self.draining.load(Relaxed),
        }
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
