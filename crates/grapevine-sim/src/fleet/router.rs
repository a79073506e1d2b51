//! One life of a router: its tree, its loads, what it believes of replicas and peers.
//!
//! What decides is the real code; this file calls it as the serving router's actors do, without
//! mailboxes between them.

use std::sync::Arc;

use grapevine_mesh::{Incoming, LoadReport, Outgoing, ReplicaEpoch, Snapshot};
use grapevine_route::{
    Ballot, Candidate, Decision, INTAKE_HALF_LIFE_MS, LoadGuard, OwnLoads, PeerBook, PeerLoad, Policy,
    ReplicaLoad, ReportedLoad, Request, Weights, cold_hash, decide,
};
use grapevine_tree::{
    Matches, Millis, PrefixKey, PrefixTree, ReplicaHistory, ReplicaId, SnapshotPage, TreeConfig, TreeStats,
    boundary,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::health::Watch;
use crate::replay::trace::BYTES_PER_TOKEN;

/// A router.
pub(super) struct Router {
    tree: PrefixTree,
    /// In the order of their ids, as a replica set is kept.
    replicas: Vec<Replica>,
    peers: PeerBook,
    own_loads: OwnLoads,
    draining: bool,
    ticked_at: Millis,
    turn: u64,
    dice: SmallRng,
    weights: Weights,
    matches: Matches,
    candidates: Vec<Candidate>,
    indices: Vec<usize>,
    ballot: Ballot,
}

struct Replica {
    id: ReplicaId,
    load: Arc<ReplicaLoad>,
    health: Watch,
    epoch: u32,
}

/// What one router would say of a prefix.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Belief {
    /// Matched bytes of the deepest replicas.
    pub(super) bytes: u32,
    /// The deepest replicas.
    pub(super) holders: Vec<ReplicaId>,
}

impl Router {
    /// A router that knows nothing yet, before these replicas, each with a cache of
    /// `capacity_tokens`.
    pub(super) fn new(replicas: &[ReplicaId], capacity_tokens: u64, tree: TreeConfig, seed: u64) -> Self {
        let mut tree = PrefixTree::new(tree);
        replicas.iter().for_each(|&id| tree.set_capacity(id, capacity_tokens));
        let replica = |&id| Replica { id, load: Arc::default(), health: Watch::default(), epoch: 0 };
        Self {
            tree,
            replicas: replicas.iter().map(replica).collect(),
            peers: PeerBook::default(),
            own_loads: OwnLoads::default(),
            draining: false,
            ticked_at: 0,
            turn: 0,
            dice: SmallRng::seed_from_u64(seed),
            weights: Weights::default(),
            matches: Matches::new(),
            candidates: Vec::new(),
            indices: Vec::new(),
            ballot: Ballot::default(),
        }
    }

    /// Chooses a replica among those that `tried` does not name: of the good ones, or of all if none
    /// is good. `Decision::index` is the replica's number.
    pub(super) fn pick(&mut self, key: &PrefixKey, tried: &[usize], now: Millis) -> Option<Decision> {
        self.tree.lookup(key, now, &mut self.matches);
        let untried = |(index, _): &(usize, &Replica)| !tried.contains(index);
        let any_good = self.replicas.iter().enumerate().filter(untried).any(|(_, r)| r.health.is_good(now));
        self.candidates.clear();
        self.indices.clear();
        for (index, replica) in self.replicas.iter().enumerate().filter(untried) {
            if any_good && !replica.health.is_good(now) {
                continue;
            }
            let load = replica.load.view();
            self.candidates.push(Candidate { replica: replica.id, weight: 1.0, load, kv_use: None });
            self.indices.push(index);
        }
        self.turn += 1;
        let request = Request {
            prompt_tokens: key.bytes as f32 / BYTES_PER_TOKEN as f32,
            bytes_per_token: BYTES_PER_TOKEN as f32,
            matches: &self.matches,
            cold_hash: cold_hash(key, &self.matches),
            turn: self.turn,
            informed: true,
        };
        let (candidates, ballot) = (&self.candidates, &mut self.ballot);
        let chosen = decide(Policy::Affinity, &self.weights, &request, candidates, ballot, &mut self.dice)?;
        let index = self.indices.get(chosen.index).copied()?;
        Some(Decision { index, ..chosen })
    }

    /// A request goes to replica `index`.
    pub(super) fn dispatch(
        &mut self,
        index: usize,
        key: &PrefixKey,
        uncached_tokens: u32,
        now: Millis,
    ) -> LoadGuard {
        let replica = &self.replicas[index];
        self.tree.observe(key, replica.id, uncached_tokens, now);
        replica.load.begin(uncached_tokens)
    }

    /// Nobody listened there.
    pub(super) fn refused(&mut self, index: usize, key: &PrefixKey, now: Millis) {
        let replica = &mut self.replicas[index];
        self.tree.retract(key, replica.id, now);
        replica.health.refused(now);
    }

    /// The first byte of an answer came from there.
    pub(super) fn served(&mut self, index: usize, now: Millis) {
        self.replicas[index].health.served(now);
    }

    /// Replicas to probe now.
    pub(super) fn due_probes(&mut self, now: Millis) -> Vec<usize> {
        let due = self.replicas.iter_mut().enumerate().filter_map(|(i, r)| r.health.is_due(now).then_some(i));
        due.collect()
    }

    /// What a probe found.
    pub(super) fn probed(&mut self, index: usize, alive: bool, now: Millis) {
        let replica = &mut self.replicas[index];
        replica.health.probed(alive, now);
    }

    /// Decay, ageing of what peers said, restarts of replicas, housekeeping.
    pub(super) fn tick(&mut self, now: Millis) {
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.ticked_at, now));
        for replica in &mut self.replicas {
            replica.load.decay_intake(elapsed, INTAKE_HALF_LIFE_MS);
            replica.load.set_peers(self.peers.on(replica.id, now));
            if replica.health.take_restart(replica.epoch) {
                replica.epoch += 1;
                self.tree.forget(replica.id, replica.epoch);
            }
        }
        self.tree.sweep(now);
    }

    /// From now on it says that it goes away.
    pub(super) fn drain(&mut self) {
        self.draining = true;
    }

    /// What there is to say.
    pub(super) fn outgoing(&mut self, budget: usize, now: Millis) -> Outgoing {
        let entries = self.tree.drain(budget, now);
        let epochs = self.replicas.iter().map(|r| ReplicaEpoch { replica: r.id, epoch: r.epoch });
        let epochs = epochs.filter(|known| known.epoch > 0).collect();
        let loads = self.replicas.iter().map(|replica| (replica.id, &*replica.load));
        let loads = self.own_loads.tell(loads, self.tree.own_tokens()).into_iter().map(told).collect();
        Outgoing { entries, loads, epochs, draining: self.draining }
    }

    /// Load of every replica that has some now.
    pub(super) fn busy_loads(&self) -> Vec<LoadReport> {
        let loads = self.replicas.iter().map(|replica| (replica.id, &*replica.load));
        self.own_loads.busy(loads).into_iter().map(told).collect()
    }

    /// Takes in what a peer said.
    pub(super) fn incoming(&mut self, incoming: Incoming, now: Millis) {
        let Incoming { origin, restarted, entries, loads, epochs } = incoming;
        for entry in &entries {
            self.tree.apply(origin, entry, now);
        }
        self.merge_epochs(&epochs);
        let loads = loads.map(|loads| loads.into_iter().map(reported));
        for (id, tokens) in self.peers.report(origin, restarted, loads, |_| true, now) {
            self.tree.add_peer_tokens(id, tokens);
            if let Some(replica) = self.replicas.iter().find(|r| r.id == id) {
                replica.load.add_peer_intake(tokens);
            }
        }
        for replica in &self.replicas {
            replica.load.set_peers(self.peers.on(replica.id, now));
        }
    }

    fn merge_epochs(&mut self, epochs: &[ReplicaEpoch]) {
        for &ReplicaEpoch { replica, epoch } in epochs {
            let Some(known) = self.replicas.iter_mut().find(|r| r.id == replica) else { continue };
            known.health.note(known.epoch);
            if known.epoch < epoch {
                known.epoch = epoch;
                self.tree.forget(replica, epoch);
            }
        }
    }

    /// What the pages of a snapshot refer to.
    pub(super) fn histories(&self) -> Vec<ReplicaHistory> {
        self.tree.histories()
    }

    /// A page of what it knows.
    pub(super) fn snapshot(&self, cursor: u64, budget: usize, now: Millis) -> SnapshotPage {
        self.tree.snapshot(cursor, budget, now)
    }

    /// Takes over what a peer knows.
    pub(super) fn restore(&mut self, snapshot: &Snapshot, now: Millis) {
        self.merge_epochs(&snapshot.epochs);
        let dates = self.tree.adopt(&snapshot.histories);
        for node in snapshot.pages().flatten() {
            self.tree.restore(snapshot.teacher, &node, &dates, now);
        }
    }

    /// What it would say of a prefix; `None` if it knows nothing.
    pub(super) fn belief(&mut self, key: &PrefixKey, now: Millis) -> Option<Belief> {
        self.tree.lookup(key, now, &mut self.matches);
        let bytes = self.matches.iter().map(|m| m.bytes).max()?;
        let holders = self.matches.iter().filter(|m| m.bytes == bytes);
        Some(Belief { bytes, holders: holders.map(|m| m.replica).collect() })
    }

    /// Whether it believes that `replica` holds all of `key`.
    pub(super) fn knows(&mut self, key: &PrefixKey, replica: ReplicaId, now: Millis) -> bool {
        let whole = key.hashes.len().checked_sub(1).map_or(0, boundary::depth);
        self.tree.lookup(key, now, &mut self.matches);
        self.matches.iter().any(|m| m.replica == replica && m.bytes as usize >= whole)
    }

    /// Own requests in flight and tokens queued, and requests in flight with peers', over all
    /// replicas.
    pub(super) fn load(&self) -> (u32, u64, f32) {
        let sum = |all: (u32, u64, f32), r: &Replica| {
            let load = &r.load;
            (all.0 + load.own_inflight(), all.1 + load.own_queued_tokens(), all.2 + load.view().inflight)
        };
        self.replicas.iter().fold((0, 0, 0.0), sum)
    }

    /// Sizes of its tree.
    pub(super) fn stats(&self) -> TreeStats {
        self.tree.stats()
    }
}

fn told(load: ReportedLoad) -> LoadReport {
    let PeerLoad { inflight, queued_tokens } = load.load;
    LoadReport { replica: load.replica, inflight, queued_tokens, new_tokens: load.new_tokens }
}

fn reported(said: LoadReport) -> ReportedLoad {
    let load = PeerLoad { inflight: said.inflight, queued_tokens: said.queued_tokens };
    ReportedLoad { replica: said.replica, load, new_tokens: said.new_tokens }
}
