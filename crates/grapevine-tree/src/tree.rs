//! The radix tree. (API first; implementation follows.)

use crate::delta::DeltaEntry;
use crate::id::{Millis, ReplicaId, RouterId};
use crate::key::PrefixKey;

/// Limits and time constants of a tree.
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// Most boundaries kept; enforced on every insert.
    pub max_boundaries: usize,
    /// Cache size in tokens assumed for a replica until [`PrefixTree::set_capacity`] says better.
    pub default_capacity_tokens: u64,
    /// Half-life of counts, ms.
    pub half_life_ms: u64,
    /// A credit unused for this long is dropped whatever the clock of new tokens says, ms.
    pub idle_ttl_ms: u64,
    /// What was picked this recently is believed whatever the clock of new tokens says, ms.
    pub grace_ms: u64,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self {
            max_boundaries: 1_000_000,
            default_capacity_tokens: 500_000,
            half_life_ms: 120_000,
            idle_ttl_ms: 1_800_000,
            grace_ms: 5_000,
        }
    }
}

/// Who taught the deepest match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teacher {
    /// This router's own picks.
    Own,
    /// A peer's gossip.
    Peer(RouterId),
}

/// How deep one replica is believed to hold the prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    /// The replica.
    pub replica: ReplicaId,
    /// Matched prefix, bytes of the canonical prompt.
    pub bytes: u32,
    /// Decayed count of picks (own and peers').
    pub count: f32,
    /// Who taught it.
    pub teacher: Teacher,
}

/// All replicas with a live match, deepest first.
pub type Matches = Vec<Match>;

/// Sizes and counters of a tree, all since start unless said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Radix nodes now.
    pub nodes: usize,
    /// Boundaries stored now.
    pub boundaries: usize,
    /// Credits stored now.
    pub credits: usize,
    /// Estimated heap bytes now.
    pub bytes: usize,
    /// Boundaries dropped because of the limit.
    pub evicted: u64,
    /// Boundaries dropped because nobody believes in them any more.
    pub expired: u64,
    /// Nodes or credits waiting to be gossiped now.
    pub dirty: usize,
}

/// Which replica has prefilled which prefix, as far as this router knows.
pub struct PrefixTree {
    config: TreeConfig,
}

impl PrefixTree {
    /// An empty tree.
    pub fn new(config: TreeConfig) -> Self {
        Self { config }
    }

    /// Every replica believed to hold a prefix of `key`, with how much of it.
    pub fn lookup(&mut self, key: &PrefixKey, now: Millis, out: &mut Matches) {
        let _ = (key, now, &self.config);
        out.clear();
    }

    /// Records that the picker sent `key` to `replica`, which will newly prefill about
    /// `new_tokens`.
    pub fn observe(&mut self, key: &PrefixKey, replica: ReplicaId, new_tokens: u32, now: Millis) {
        let _ = (key, replica, new_tokens, now);
    }

    /// Applies what a peer said. Idempotent and order-independent within a `now`.
    pub fn apply(&mut self, origin: RouterId, entry: &DeltaEntry, now: Millis) {
        let _ = (origin, entry, now);
    }

    /// Advances a replica's clock of newly prefilled tokens by what peers sent there.
    pub fn add_peer_tokens(&mut self, replica: ReplicaId, tokens: u64) {
        let _ = (replica, tokens);
    }

    /// Tokens that this router has newly sent to each replica since start (absolute, for gossip).
    pub fn own_tokens(&self) -> impl Iterator<Item = (ReplicaId, u64)> + '_ {
        std::iter::empty()
    }

    /// Tokens that the replica's cache holds, when known.
    pub fn set_capacity(&mut self, replica: ReplicaId, tokens: u64) {
        let _ = (replica, tokens);
    }

    /// Drops every credit of a replica: its cache is gone, or it is.
    pub fn forget(&mut self, replica: ReplicaId, now: Millis) {
        let _ = (replica, now);
    }

    /// Takes what changed by own picks since the last drain, most valuable first, at most about
    /// `budget` bytes on the wire (estimated); the rest stays for the next drain.
    pub fn drain(&mut self, budget: usize, now: Millis) -> Vec<DeltaEntry> {
        let _ = (budget, now);
        Vec::new()
    }

    /// A bounded piece of housekeeping: drops expired credits and merges nodes. Call it a few times
    /// a second.
    pub fn sweep(&mut self, now: Millis) {
        let _ = now;
    }

    /// Sizes and counters.
    pub fn stats(&self) -> TreeStats {
        TreeStats::default()
    }
}
