//! One router of the fleet: its tree, its loads, what it believes of its peers.
//!
//! The parts that decide are the real ones; this file only calls them as the serving router does.

use std::sync::Arc;

use grapevine_route::{
    Answer, Feedback, INTAKE_HALF_LIFE_MS, LoadGuard, LoadView, PeerLoad, ReplicaLoad, Verdict,
};
use grapevine_tree::{
    DeltaEntry, LastUse, Matches, Millis, PrefixKey, PrefixTree, ReplicaId, RouterId, TreeConfig,
};

/// Bytes of tree entries that a router publishes in one tick.
const TICK_BUDGET: usize = 12 * 1_024;

/// Bytes of an entry on the wire beside its marks, and of each mark.
const ENTRY_BYTES: u64 = 8;
const MARK_BYTES: u64 = 8;

/// A router's own load on one replica, as it tells its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    load: PeerLoad,
    /// Tokens newly sent there since the start.
    new_tokens: u64,
    /// How often it is known to have lost its cache.
    epoch: u32,
}

/// What a router makes of the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// Learns the caches' size, from this many tokens; else it stays what it was told.
    pub capacity_from: Option<u64>,
    /// Notices lost caches.
    pub lost_caches: bool,
}

#[derive(Debug, Default)]
struct Peer {
    reports: Vec<LoadReport>,
    heard_at: Millis,
}

/// A router.
pub struct Router {
    /// Its name in the fleet.
    pub id: RouterId,
    tree: PrefixTree,
    replicas: Vec<ReplicaId>,
    loads: Vec<Arc<ReplicaLoad>>,
    learning: Learning,
    feedback: Vec<Feedback>,
    believed_tokens: Vec<u64>,
    epochs: Vec<u32>,
    peers: Vec<Peer>,
    ticked_at: Millis,
    /// Bytes of tree entries that it published.
    pub published_bytes: u64,
    /// Tree entries that it published.
    pub published_entries: u64,
    /// Lost caches that it noticed by itself.
    pub verdicts: u64,
}

impl Router {
    /// Router `index` of `routers`, before these replicas.
    pub fn new(
        index: usize,
        routers: usize,
        replicas: &[ReplicaId],
        tree: TreeConfig,
        learning: Learning,
    ) -> Self {
        Self {
            id: RouterId::of_name(&format!("router-{index}")),
            tree: PrefixTree::new(tree),
            replicas: replicas.to_vec(),
            loads: replicas.iter().map(|_| Arc::default()).collect(),
            learning,
            feedback: vec![Feedback::default(); replicas.len()],
            believed_tokens: vec![0; replicas.len()],
            epochs: vec![0; replicas.len()],
            peers: (0..routers).map(|_| Peer::default()).collect(),
            ticked_at: 0,
            published_bytes: 0,
            published_entries: 0,
            verdicts: 0,
        }
    }

    /// Tells the tree what every replica's cache holds.
    pub fn set_capacity(&mut self, tokens: u64) {
        for &replica in &self.replicas {
            self.tree.set_capacity(replica, tokens);
        }
        self.believed_tokens.fill(tokens);
    }

    /// What it believes a replica's cache holds, mean of all, tokens.
    pub fn believed_tokens(&self) -> u64 {
        self.believed_tokens.iter().sum::<u64>() / self.believed_tokens.len().max(1) as u64
    }

    /// What the tree knows of a prompt.
    pub fn lookup(&mut self, key: &PrefixKey, now: Millis, out: &mut Matches) {
        self.tree.lookup(key, now, out);
    }

    /// Load on a replica, peers' included.
    pub fn load(&self, replica: usize) -> LoadView {
        self.loads[replica].view()
    }

    /// A request goes to a replica. Gives also how that had last used the prompt.
    pub fn dispatch(
        &mut self,
        replica: usize,
        key: &PrefixKey,
        uncached_tokens: u32,
        now: Millis,
    ) -> (LoadGuard, Option<LastUse>) {
        let last_use = self.tree.last_use(key, self.replicas[replica], now);
        self.tree.observe(key, self.replicas[replica], uncached_tokens, now);
        (self.loads[replica].begin(uncached_tokens), last_use)
    }

    /// A replica answered.
    pub fn answered(&mut self, replica: usize, answer: &Answer, now: Millis) {
        let verdict = self.feedback[replica].answered(answer, now);
        if verdict == Some(Verdict::LostCache) && self.learning.lost_caches {
            self.verdicts += 1;
            self.forget(replica, self.epochs[replica] + 1);
        }
        let Some(assumed) = self.learning.capacity_from else { return };
        if let Some(tokens) = self.feedback[replica].capacity().tokens(assumed)
            && std::mem::replace(&mut self.believed_tokens[replica], tokens) != tokens
        {
            self.tree.set_capacity(self.replicas[replica], tokens);
        }
    }

    fn forget(&mut self, replica: usize, epoch: u32) {
        self.epochs[replica] = epoch;
        self.feedback[replica].emptied();
        self.tree.forget(self.replicas[replica], epoch);
    }

    /// Decay, ageing of what peers said, housekeeping.
    pub fn tick(&mut self, now: Millis) {
        let elapsed = now - std::mem::replace(&mut self.ticked_at, now);
        for (at, load) in self.loads.iter().enumerate() {
            load.decay_intake(elapsed, INTAKE_HALF_LIFE_MS);
            let heard = self.peers.iter().filter_map(|p| Some((p.reports.get(at)?.load, now - p.heard_at)));
            load.set_peers(heard);
        }
        self.tree.sweep(now);
    }

    /// Changes of the tree to be told.
    pub fn publish_tree(&mut self, now: Millis) -> Vec<DeltaEntry> {
        let entries = self.tree.drain(TICK_BUDGET, now);
        self.published_entries += entries.len() as u64;
        let bytes = |entry: &DeltaEntry| ENTRY_BYTES + MARK_BYTES * entry.marks.len() as u64;
        self.published_bytes += entries.iter().map(bytes).sum::<u64>();
        entries
    }

    /// Own load on every replica, to be told.
    pub fn publish_loads(&self) -> Vec<LoadReport> {
        let mut reports = vec![LoadReport::default(); self.replicas.len()];
        for ((report, load), &epoch) in reports.iter_mut().zip(&self.loads).zip(&self.epochs) {
            report.epoch = epoch;
            report.load.inflight = load.own_inflight();
            report.load.queued_tokens = load.own_queued_tokens() as u32;
        }
        for (replica, tokens) in self.tree.own_tokens() {
            if let Some(at) = self.replicas.iter().position(|&r| r == replica) {
                reports[at].new_tokens = tokens;
            }
        }
        reports
    }

    /// Takes in a peer's changes.
    pub fn hear_tree(&mut self, origin: RouterId, entries: &[DeltaEntry], now: Millis) {
        for entry in entries {
            self.tree.apply(origin, entry, now);
        }
    }

    /// Takes in a peer's load. Its age counts from now: no clock is compared with another's.
    pub fn hear_loads(&mut self, from: usize, reports: &[LoadReport], now: Millis) {
        for (at, report) in reports.iter().enumerate() {
            if report.epoch > self.epochs[at] {
                self.forget(at, report.epoch);
            }
            let before = self.peers[from].reports.get(at).map_or(0, |r| r.new_tokens);
            let grown = report.new_tokens.saturating_sub(before);
            if grown > 0 {
                self.loads[at].add_peer_intake(grown);
                self.tree.add_peer_tokens(self.replicas[at], grown);
            }
        }
        self.peers[from] = Peer { reports: reports.to_vec(), heard_at: now };
        for (at, load) in self.loads.iter().enumerate() {
            let heard = self.peers.iter().filter_map(|p| Some((p.reports.get(at)?.load, now - p.heard_at)));
            load.set_peers(heard);
        }
    }

    /// Sizes of its tree.
    pub fn tree_stats(&self) -> grapevine_tree::TreeStats {
        self.tree.stats()
    }
}
