//! The replica actor's state machine: no I/O, time and seed are arguments.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use grapevine_mesh::{LoadReport, ReplicaEpoch};
use grapevine_route::{INTAKE_HALF_LIFE_MS, PeerBook, PeerLoad, ReportedLoad};
use grapevine_tree::{Millis, ReplicaId};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::asks::Asks;
use super::lessons::Lessons;
use super::looks::Looks;
use super::members::Members;
use super::{AnswerReport, PeerReport, ProbeConfig};
use crate::discovery::{Finding, Order, OrderError, Source};
use crate::engine::models::{Models, Unlisted};
use crate::engine::{Look, ScrapeError};
use crate::replica::health::{Probe, Restarts, Standing};
use crate::replica::{Replica, SharedReplicas};

/// Between two probes of a replica that is not up, ms: one small request a second finds its return
/// soon.
const REPROBE_MS: Millis = 1_000;

/// Least time between two sums of what peers say, ms: they say it twenty times a second each.
const SUM_MS: Millis = 25;

/// What the actor must do for the book.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Replicas whose cache is gone, and the number of the one that begins.
    pub(super) forget: Vec<(ReplicaId, u32)>,
    /// Tokens that peers newly sent.
    pub(super) growth: Vec<(ReplicaId, u64)>,
    /// How many tokens a replica's cache holds.
    pub(super) capacity: Vec<(ReplicaId, u64)>,
    /// Replicas that are gone for good.
    pub(super) remove: Vec<ReplicaId>,
}

/// Everything the actor knows beyond the snapshot.
pub(super) struct Book {
    replicas: SharedReplicas,
    members: Members,
    peers: PeerBook,
    looks: Looks,
    asks: Asks,
    lessons: Lessons,
    watch: BTreeMap<ReplicaId, Watch>,
    interval_ms: Millis,
    ticked_at: Millis,
    summed_at: Millis,
    rng: SmallRng,
}

#[derive(Debug, Default)]
struct Watch {
    next_probe: Millis,
    probed_at: Millis,
    probing: bool,
    restarts: Restarts,
}

impl Book {
    pub(super) fn new(replicas: SharedReplicas, config: &ProbeConfig, seed: u64) -> Self {
        let intervals = config.intervals;
        Self {
            members: Members::new(Arc::clone(&replicas), config.kind),
            replicas,
            peers: PeerBook::default(),
            looks: Looks::new(intervals.metrics, config.pool_idle),
            asks: Asks::new(intervals.models),
            lessons: Lessons::new(config.assumed_capacity),
            watch: BTreeMap::new(),
            interval_ms: intervals.probe.as_millis().max(1) as Millis,
            ticked_at: 0,
            summed_at: 0,
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// Takes in what a source of replicas found.
    pub(super) fn found(&mut self, source: Source, finding: Finding, effects: &mut Effects) {
        self.members.found(source, finding, effects);
        self.forget_removed(effects);
    }

    /// Carries out an operator's order.
    pub(super) fn order(
        &mut self,
        order: Order,
        effects: &mut Effects,
    ) -> Result<Option<Arc<Replica>>, OrderError> {
        let done = self.members.order(order, effects);
        self.forget_removed(effects);
        done
    }

    /// Everything kept beside the set goes with the replica.
    fn forget_removed(&mut self, effects: &Effects) {
        for id in &effects.remove {
            self.watch.remove(id);
            self.looks.remove(*id);
            self.asks.remove(*id);
            self.lessons.remove(*id);
        }
    }

    /// Takes in what a peer said.
    pub(super) fn report(&mut self, report: PeerReport, now: Millis, effects: &mut Effects) {
        let set = self.replicas.load();
        for ReplicaEpoch { replica, epoch } in report.epochs {
            let Some(known) = set.get(replica) else { continue };
            let watch = self.watch.entry(replica).or_default();
            watch.restarts.note(&known.health, known.epoch.load(Relaxed));
            if known.epoch.fetch_max(epoch, Relaxed) < epoch {
                effects.forget.push((replica, epoch));
            }
        }
        let known = |id| set.get(id).is_some();
        let loads = report.loads.map(|loads| loads.into_iter().map(reported));
        let growth = self.peers.report(report.origin, report.restarted, loads, known, now);
        for (id, tokens) in &growth {
            if let Some(replica) = set.get(*id) {
                replica.load.add_peer_intake(*tokens);
            }
        }
        effects.growth.extend(growth);
        if now.saturating_sub(self.summed_at) >= SUM_MS {
            self.sum_peers(now);
        }
    }

    /// What peers say is in flight, by their age now.
    fn sum_peers(&mut self, now: Millis) {
        self.summed_at = now;
        for replica in &self.replicas.load().replicas {
            replica.load.set_peers(self.peers.on(replica.id, now));
        }
    }

    /// Decay, peers' ages, restarts, departures.
    pub(super) fn tick(&mut self, now: Millis, effects: &mut Effects) {
        self.members.tick(effects);
        self.forget_removed(effects);
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.ticked_at, now));
        self.sum_peers(now);
        let set = self.replicas.load_full();
        for replica in &set.replicas {
            replica.load.decay_intake(elapsed, INTAKE_HALF_LIFE_MS);
            effects.forget.extend(self.restarted(replica).map(|epoch| (replica.id, epoch)));
        }
        self.peers.prune(now);
    }

    /// Notices a restart and counts it once in the fleet: the epoch that begins.
    fn restarted(&mut self, replica: &Replica) -> Option<u32> {
        let watch = self.watch.entry(replica.id).or_default();
        if !watch.restarts.look(&replica.health, replica.epoch.load(Relaxed)) {
            return None;
        }
        let epoch = replica.next_epoch();
        tracing::info!(replica = replica.name, epoch, "replica restarted; its credit is dropped");
        Some(epoch)
    }

    /// Replicas to probe now. Own traffic that was answered lately is the better probe.
    pub(super) fn due_probes(&mut self, now: Millis) -> Vec<Arc<Replica>> {
        let mut due = Vec::new();
        let set = self.replicas.load_full();
        for replica in &set.replicas {
            let interval = self.probe_interval(replica, now);
            let watch = self.watch.entry(replica.id).or_default();
            if watch.probing || now < watch.next_probe.min(watch.probed_at + interval) {
                continue;
            }
            watch.probed_at = now;
            watch.next_probe = now + (interval as f32 * self.rng.random_range(0.8..1.0)) as Millis;
            let served = replica.health.last_served().is_some_and(|at| now.saturating_sub(at) < interval);
            if !served || replica.health.standing(now) != Standing::Good {
                watch.probing = true;
                due.push(Arc::clone(replica));
            }
        }
        due
    }

    fn probe_interval(&self, replica: &Replica, now: Millis) -> Millis {
        let well = replica.health.standing(now) == Standing::Good && !replica.health.is_refused();
        if well { self.interval_ms } else { self.interval_ms.min(REPROBE_MS) }
    }

    /// Replicas whose metrics are to be looked at now.
    pub(super) fn due_looks(&mut self, now: Millis) -> Vec<Arc<Replica>> {
        self.looks.due(&self.replicas.load(), now, &mut self.rng)
    }

    /// Replicas that are to be asked for their models now.
    pub(super) fn due_asks(&mut self, now: Millis) -> Vec<Arc<Replica>> {
        self.asks.due(&self.replicas.load(), now, &mut self.rng)
    }

    /// Takes in what a replica said of its models.
    pub(super) fn listed(&mut self, id: ReplicaId, found: Result<Models, Unlisted>, now: Millis) {
        if let Some(replica) = self.replicas.load().get(id) {
            self.asks.answered(replica, found, now);
        }
    }

    /// Somebody asked for a model that nobody serves.
    pub(super) fn model_missed(&mut self) {
        self.asks.missed();
    }

    /// Takes in what a look at a replica's metrics showed.
    pub(super) fn looked(
        &mut self,
        id: ReplicaId,
        found: Result<Look, ScrapeError>,
        now: Millis,
        effects: &mut Effects,
    ) {
        if let Some(replica) = self.replicas.load().get(id) {
            self.looks.seen(replica, found, now, effects);
            self.lessons.settle_capacity(replica, self.looks.cache_tokens(id), effects);
        }
    }

    /// Takes in what an answer said of its prediction.
    pub(super) fn answered(&mut self, report: &AnswerReport, now: Millis, effects: &mut Effects) {
        let id = report.replica;
        if let Some(replica) = self.replicas.load().get(id) {
            self.lessons.answered(replica, report, now, effects);
            self.lessons.settle_capacity(replica, self.looks.cache_tokens(id), effects);
        }
    }

    /// Takes in a probe's result.
    pub(super) fn probed(&mut self, id: ReplicaId, found: Probe, now: Millis) {
        let set = self.replicas.load();
        let Some(replica) = set.get(id) else { return };
        let watch = self.watch.entry(id).or_default();
        watch.probing = false;
        let served_meanwhile = replica.health.last_served().is_some_and(|at| at >= watch.probed_at);
        if !replica.health.probed(found, served_meanwhile, now) {
            return;
        }
        let standing = replica.health.standing(now);
        if found == Probe::Alive {
            tracing::info!(replica = replica.name, "replica is up");
        } else {
            tracing::warn!(replica = replica.name, standing = standing.name(), "replica is down");
        }
    }
}

fn reported(said: LoadReport) -> ReportedLoad {
    let load = PeerLoad { inflight: said.inflight, queued_tokens: said.queued_tokens };
    ReportedLoad { replica: said.replica, load, new_tokens: said.new_tokens }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use arc_swap::ArcSwap;
    use grapevine_mesh::LoadReport;
    use grapevine_tree::RouterId;

    use super::super::Intervals;
    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::ReplicaSet;

    fn book() -> (Book, Arc<Replica>) {
        let spec = ReplicaSpec::new("a", "http://127.0.0.1:1");
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        let replica = Arc::clone(&set.replicas[0]);
        let shared = Arc::new(ArcSwap::from_pointee(set));
        let intervals =
            Intervals { probe: Duration::from_secs(5), metrics: Duration::ZERO, models: Duration::ZERO };
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ProbeConfig {
            intervals,
            timeout: Duration::from_secs(5),
            client: reqwest::Client::new(),
            pool_idle: Duration::from_secs(3),
            names: Arc::default(),
            kind: None,
            assumed_capacity: 500_000,
        };
        (Book::new(shared, &config, 7), replica)
    }

    fn epochs(replica: ReplicaId, epoch: u32) -> PeerReport {
        let epochs = vec![ReplicaEpoch { replica, epoch }];
        PeerReport { origin: RouterId(1), restarted: false, loads: None, epochs }
    }

    #[test]
    fn a87_a_restart_drops_the_credit_once() {
        let (mut book, replica) = book();
        let mut effects = Effects::default();
        replica.health.connect_failed(0, true, 0.5);
        book.tick(100, &mut effects);
        replica.health.served(150);
        book.tick(200, &mut effects);
        book.tick(300, &mut effects);
        assert_eq!(effects.forget, [(replica.id, 1)]);
        assert_eq!(replica.epoch.load(Relaxed), 1);
    }

    #[test]
    fn a_restart_that_a_peer_already_counted_is_not_counted_again() {
        let (mut book, replica) = book();
        let mut effects = Effects::default();
        replica.health.connect_failed(0, true, 0.5);
        book.tick(100, &mut effects);
        book.report(epochs(replica.id, 1), 120, &mut effects);
        replica.health.served(150);
        book.tick(200, &mut effects);
        assert_eq!(effects.forget, [(replica.id, 1)], "once, when the peer said so");
        assert_eq!(replica.epoch.load(Relaxed), 1);
    }

    #[test]
    fn a_peer_that_was_faster_than_our_tick_counted_it_too() {
        let (mut book, replica) = book();
        let mut effects = Effects::default();
        book.tick(100, &mut effects);
        replica.health.connect_failed(110, true, 0.5);
        book.report(epochs(replica.id, 1), 120, &mut effects);
        replica.health.served(150);
        book.tick(200, &mut effects);
        assert_eq!(effects.forget, [(replica.id, 1)], "the caches of after the restart are not void");
    }

    #[test]
    fn the_largest_epoch_wins() {
        let (mut book, replica) = book();
        let mut effects = Effects::default();
        for epoch in [3, 2, 3] {
            book.report(epochs(replica.id, epoch), 0, &mut effects);
        }
        assert_eq!(effects.forget, [(replica.id, 3)]);
        assert_eq!(replica.epoch.load(Relaxed), 3);
    }

    #[test]
    fn peers_load_and_intake_reach_the_replica() {
        let (mut book, replica) = book();
        let mut effects = Effects::default();
        let load = LoadReport { replica: replica.id, inflight: 3, queued_tokens: 40, new_tokens: 500 };
        let report =
            PeerReport { origin: RouterId(1), restarted: true, loads: Some(vec![load]), epochs: Vec::new() };
        book.report(report, 0, &mut effects);
        assert_eq!(effects.growth, [(replica.id, 500)]);
        book.tick(100, &mut effects);
        let view = replica.load.view();
        assert_eq!((view.inflight, view.queued_tokens), (3.0, 40.0));
        assert!(view.intake_tokens > 490.0);
        book.tick(60_000, &mut effects);
        assert_eq!(replica.load.view().inflight, 0.0, "too old to count");
    }

    #[test]
    fn a_replica_is_probed_in_its_interval_and_sooner_when_it_is_not_well() {
        let (mut book, replica) = book();
        assert_eq!(book.due_probes(0).len(), 1, "at once");
        assert_eq!(book.due_probes(20_000).len(), 0, "one at a time");
        book.probed(replica.id, Probe::Alive, 20_000);
        assert_eq!(book.due_probes(25_600).len(), 1);
        book.probed(replica.id, Probe::Alive, 25_600);
        replica.health.served(31_000);
        assert_eq!(book.due_probes(31_200).len(), 0, "own traffic is the better probe");
        replica.health.connect_failed(31_300, true, 0.5);
        assert_eq!(book.due_probes(32_300).len(), 1, "a refused port is asked again soon");
    }
}
