//! One look at everything: what status and metrics are made of.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use grapevine_mesh::MeshHandle;
use grapevine_route::Policy;

use super::fleet::{gossip, peers};
use super::status::{
    EngineStatus, MailboxStatus, ReplicaStatus, RouterStatus, Status, TokenStatus, TreeStatus,
};
use crate::actors::mailbox::MailboxView;
use crate::actors::replica::ReplicaHandle;
use crate::actors::tree::TreeHandle;
use crate::clock::Clock;
use crate::proxy::Proxy;
use crate::replica::Replica;
use crate::replica::health::Standing;

/// Everything that can be looked at.
pub struct Observatory {
    /// This router's name.
    pub router_id: String,
    /// How it chooses.
    pub policy: Policy,
    /// Public listener.
    pub listen: SocketAddr,
    /// Admin listener.
    pub admin_listen: SocketAddr,
    /// It is draining.
    pub draining: Arc<AtomicBool>,
    /// Time.
    pub clock: Clock,
    /// Requests.
    pub proxy: Arc<Proxy>,
    /// Replicas.
    pub replicas: ReplicaHandle,
    /// Prefixes.
    pub tree: TreeHandle,
    /// The fleet.
    pub mesh: MeshHandle,
    /// Peers may ask this router: what they ask is sealed, or comes from this machine.
    pub answers_peers: bool,
}

impl Observatory {
    /// Whether new requests should come here: it knows what its peers know or waited long enough, it is
    /// not draining, and a replica may be alive.
    pub fn ready(&self) -> bool {
        let now = self.clock.now();
        let alive = |r: &Arc<Replica>| r.health.standing(now) <= Standing::Suspect;
        let willing = self.mesh.is_joined() && !self.draining.load(Relaxed);
        willing && self.replicas.replicas().load().replicas.iter().any(alive)
    }

    /// All of it.
    pub fn status(&self) -> Status {
        let metrics = &self.proxy.metrics;
        let mesh = self.mesh.status();
        Status {
            router: self.router(),
            peers: peers(&mesh),
            replicas: self.replicas.replicas().load().replicas.iter().map(|r| self.replica(r)).collect(),
            tree: self.tree_status(),
            inflight: self.proxy.admission.inflight(),
            waiting: self.proxy.admission.waiting(),
            requests: metrics.requests().map(|(name, n)| (name.to_owned(), n)).collect(),
            decisions: metrics.decisions().map(|(name, n)| (name.to_owned(), n)).collect(),
            lookups: metrics.lookups.get(),
            hits: metrics.hits.get(),
            tokens: TokenStatus {
                prompt: metrics.prompt_tokens.get(),
                predicted_cached: metrics.predicted_tokens.get(),
                reported_prompt: metrics.reported_prompt_tokens.get(),
                reported_cached: metrics.reported_cached_tokens.get(),
            },
            gossip: gossip(&mesh),
            mailboxes: self.mailboxes(),
        }
    }

    fn router(&self) -> RouterStatus {
        RouterStatus {
            id: self.router_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.clock.uptime().as_secs_f64(),
            phase: self.phase().to_owned(),
            policy: policy_name(self.policy).to_owned(),
            listen: self.listen,
            admin_listen: self.admin_listen,
            gossip_listen: self.mesh.local_addr(),
        }
    }

    fn phase(&self) -> &'static str {
        match (self.draining.load(Relaxed), self.mesh.is_joined()) {
            (true, _) => "draining",
            (false, false) => "joining",
            (false, true) => "serving",
        }
    }

    fn replica(&self, replica: &Replica) -> ReplicaStatus {
        let (own, view) = (replica.load.own_inflight(), replica.load.view());
        let own_queued = replica.load.own_queued_tokens();
        let counters = &replica.counters;
        ReplicaStatus {
            name: replica.name.clone(),
            url: replica.url.clone(),
            id: format!("{:?}", replica.id),
            health: replica.health.standing(self.clock.now()).name().to_owned(),
            epoch: replica.epoch.load(Relaxed),
            inflight: own,
            queued_tokens: own_queued,
            peer_inflight: (view.inflight - own as f32).max(0.0),
            peer_queued_tokens: (view.queued_tokens - own_queued as f32).max(0.0),
            intake_tokens: view.intake_tokens,
            picks: counters.picks.load(Relaxed),
            tokens: TokenStatus {
                prompt: counters.prompt_tokens.load(Relaxed),
                predicted_cached: counters.predicted_tokens.load(Relaxed),
                reported_prompt: counters.reported_prompt_tokens.load(Relaxed),
                reported_cached: counters.reported_cached_tokens.load(Relaxed),
            },
            credit_error_tokens: replica.learnt.credit_error(),
            capacity_tokens: replica.learnt.capacity(),
            lost_caches: replica.learnt.lost_caches.load(Relaxed),
            engine: self.engine(replica),
        }
    }

    fn engine(&self, replica: &Replica) -> EngineStatus {
        let vitals = replica.engine.load();
        let reading = vitals.as_ref().map(|v| v.reading).unwrap_or_default();
        EngineStatus {
            kind: reading.kind.name().to_owned(),
            age_ms: vitals.as_ref().map(|v| self.clock.now().saturating_sub(v.at)),
            waiting: reading.waiting,
            running: reading.running,
            kv_use: reading.kv_use,
            cache_tokens: reading.cache_tokens,
            prefix_queries: reading.prefix_queries,
            prefix_hits: reading.prefix_hits,
        }
    }

    fn tree_status(&self) -> TreeStatus {
        let stats = self.tree.stats();
        TreeStatus {
            nodes: stats.nodes,
            boundaries: stats.boundaries,
            credits: stats.credits,
            bytes: stats.bytes,
            evicted: stats.evicted,
            expired: stats.expired,
            dirty: stats.dirty,
        }
    }

    fn mailboxes(&self) -> BTreeMap<String, MailboxStatus> {
        let mailboxes = [("tree", self.tree.mailbox()), ("replica", self.replicas.mailbox())];
        mailboxes.into_iter().map(|(name, view)| (name.to_owned(), self.mailbox(view))).collect()
    }

    fn mailbox(&self, view: MailboxView) -> MailboxStatus {
        MailboxStatus {
            depth: view.depth,
            dropped: view.dropped,
            handled: view.handled,
            busy_seconds: view.busy_micros as f64 / 1e6,
            idle_ms: self.clock.now().saturating_sub(view.last_progress),
        }
    }
}

/// The policy's name in configuration and status.
pub const fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Affinity => "affinity",
        Policy::RoundRobin => "round-robin",
        Policy::Random => "random",
        Policy::LeastLoaded => "least-loaded",
    }
}
