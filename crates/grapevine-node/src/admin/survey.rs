//! One look at everything: what status and metrics are made of.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use grapevine_mesh::MeshHandle;
use grapevine_route::Policy;
use tokio::runtime::Handle;

use super::ask::Asker;
use super::fleet::{gossip, peers};
use super::heaviest::Weighed;
use super::status::{
    EngineStatus, ExportStatus, MailboxStatus, ReplicaStatus, RouterStatus, ShadowStatus, SourceStatus,
    Status, TokenStatus, TreeStatus, Warning,
};
use super::warnings::{Facts, Watchman};
use crate::actors::mailbox::MailboxView;
use crate::actors::replica::ReplicaHandle;
use crate::actors::tree::TreeHandle;
use crate::clock::{Clock, unix_ms};
use crate::config::Mode;
use crate::discovery::SourceView;
use crate::observe::history::{History, STEP_MS};
use crate::proxy::Proxy;
use crate::replica::Replica;
use crate::telemetry::{ExportCounts, Exports};

/// What warnings look back at, ms.
const MINUTE_MS: u64 = 60_000;

/// Models that status shows of one replica.
const SHOWN_MODELS: usize = 100;

/// How long a router that starts waits for its replicas to say what they serve, before it is ready.
const MODELS_WAIT: Duration = Duration::from_secs(3);

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
    /// Whether prefixes decide.
    pub mode: Mode,
    /// Peers are configured.
    pub has_seeds: bool,
    /// What becomes of exported telemetry.
    pub exports: Exports,
    /// The last minutes.
    pub history: History,
    /// Since when warnings hold.
    pub watchman: Watchman,
    /// Asks peers for their status.
    pub asker: Asker,
    /// The last look at the whole tree.
    pub weighed: Weighed,
    /// Bytes of a prompt for one token.
    pub bytes_per_token: f32,
    /// Peers may ask this router: what they ask is sealed, or comes from this machine.
    pub answers_peers: bool,
}

impl Observatory {
    /// Whether new requests should come here: it knows what its peers know or waited long enough, it is
    /// not draining, and a replica may be alive; at the start also what those serve.
    pub fn ready(&self) -> bool {
        let now = self.clock.now();
        let willing = self.mesh.is_joined() && !self.draining.load(Relaxed);
        let set = self.replicas.replicas().load();
        let told =
            self.clock.uptime() >= MODELS_WAIT || !set.open().any(|r| r.is_reachable(now) && r.is_unasked());
        willing && told && set.open().any(|r| r.is_reachable(now))
    }

    /// Whether it goes away.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// All of it.
    pub fn status(&self) -> Status {
        let mut status = self.figures();
        status.warnings = self.warnings(&status);
        status.points = self.history.points();
        status
    }

    /// Looks for what somebody should know, whether or not anybody asks, and tells the log what lasts.
    pub(super) fn watch(&self) {
        let status = self.figures();
        let warnings = self.warnings(&status);
        for warning in self.watchman.news(&warnings, status.at_ms) {
            tracing::warn!(code = warning.code, "{}", warning.text);
        }
    }

    fn warnings(&self, status: &Status) -> Vec<Warning> {
        let mesh = self.mesh.status();
        let facts = Facts {
            minute: self.history.lately(MINUTE_MS),
            has_seeds: self.has_seeds && !mesh.seeded_by_itself,
            name_conflict: mesh.name_conflict,
        };
        self.watchman.warnings(status, &facts)
    }

    /// All of it but warnings and the last minutes.
    fn figures(&self) -> Status {
        let metrics = &self.proxy.metrics;
        let mesh = self.mesh.status();
        let shares = self.history.shares();
        let replicas = self.replicas.replicas().load();
        Status {
            at_ms: unix_ms(),
            router: self.router(),
            peers: peers(&mesh, &self.proxy.taught.read(), metrics.predicted_tokens.get()),
            replicas: replicas.replicas.iter().map(|r| self.replica(r, shares.get(&r.id).copied())).collect(),
            tree: self.tree_status(),
            inflight: self.proxy.admission.inflight(),
            waiting: self.proxy.admission.waiting(),
            requests: metrics.requests().map(|(name, n)| (name.to_owned(), n)).collect(),
            decisions: metrics.decisions().map(|(name, n)| (name.to_owned(), n)).collect(),
            lookups: metrics.lookups.get(),
            hits: metrics.hits.get(),
            tokens: metrics.tokens(),
            gossip: gossip(&mesh),
            discovery: self.replicas.replicas().load().sources.iter().map(source).collect(),
            mailboxes: self.mailboxes(),
            telemetry: self.telemetry(),
            shadow: (self.mode == Mode::Shadow).then(|| self.shadow()),
            warnings: Vec::new(),
            step_ms: STEP_MS,
            points: Vec::new(),
        }
    }

    fn telemetry(&self) -> BTreeMap<String, ExportStatus> {
        let exports = self.exports.read().map(|(what, counts)| {
            let ExportCounts { ended, exported, failed, dropped } = counts;
            (what.to_owned(), ExportStatus { made: ended, delivered: exported, failed, dropped })
        });
        let log = self.proxy.log.as_ref().map(|log| {
            let (delivered, dropped) = (log.counts().written(), log.counts().dropped());
            let made = delivered + dropped;
            ("decisions".to_owned(), ExportStatus { made, delivered, failed: 0, dropped })
        });
        exports.chain(log).collect()
    }

    fn shadow(&self) -> ShadowStatus {
        let shadow = &self.proxy.metrics.shadow;
        ShadowStatus {
            decisions: shadow.decisions.get(),
            agreed: shadow.agreed.get(),
            prompt_tokens: shadow.prompt_tokens.get(),
            done_tokens: shadow.done_tokens.get(),
            affinity_tokens: shadow.affinity_tokens.get(),
        }
    }

    fn router(&self) -> RouterStatus {
        RouterStatus {
            id: self.router_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.clock.uptime().as_secs_f64(),
            tasks: Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
            phase: self.phase().to_owned(),
            policy: policy_name(self.policy).to_owned(),
            mode: self.mode.name().to_owned(),
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

    /// One replica, whatever its share of the traffic is.
    pub fn one_replica(&self, replica: &Replica) -> ReplicaStatus {
        self.replica(replica, None)
    }

    fn replica(&self, replica: &Replica, share: Option<f64>) -> ReplicaStatus {
        let (own, view) = (replica.load.own_inflight(), replica.load.view());
        let own_queued = replica.load.own_queued_tokens();
        let counters = &replica.counters;
        ReplicaStatus {
            name: replica.name.clone(),
            url: replica.url.clone(),
            id: format!("{:?}", replica.id),
            source: replica.source.name().to_owned(),
            weight: replica.weight,
            models: replica.models().map(|models| models.into_iter().take(SHOWN_MODELS).collect()),
            health: replica.health.standing(self.clock.now()).name().to_owned(),
            epoch: replica.epoch.load(Relaxed),
            inflight: own,
            queued_tokens: own_queued,
            peer_inflight: (view.inflight - own as f32).max(0.0),
            peer_queued_tokens: (view.queued_tokens - own_queued as f32).max(0.0),
            intake_tokens: view.intake_tokens,
            drain: replica.draining,
            picks: counters.picks.load(Relaxed),
            share,
            tokens: TokenStatus {
                prompt: counters.prompt_tokens.load(Relaxed),
                predicted_cached: counters.predicted_tokens.load(Relaxed),
                random_cached: counters.random_tokens.load(Relaxed),
                reported_prompt: counters.reported_prompt_tokens.load(Relaxed),
                reported_cached: counters.reported_cached_tokens.load(Relaxed),
            },
            credit_error_tokens: replica.learnt.credit_error(),
            capacity_tokens: replica.learnt.capacity(),
            capacity_source: replica.learnt.capacity_source().to_owned(),
            lost_caches: replica.learnt.lost_caches.load(Relaxed),
            engine: self.engine(replica),
        }
    }

    fn engine(&self, replica: &Replica) -> EngineStatus {
        let vitals = replica.engine.load();
        let reading = vitals.as_ref().map(|v| v.reading).unwrap_or_default();
        EngineStatus {
            kind: replica.kind().name().to_owned(),
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
            overflowed: stats.overflowed,
            contradictions: stats.contradictions,
            outdated: stats.outdated,
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

fn source(view: &SourceView) -> SourceStatus {
    let SourceView { source, replicas, problem } = view;
    SourceStatus { source: source.name().to_owned(), replicas: *replicas, problem: problem.clone() }
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
