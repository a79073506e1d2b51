//! Housekeeping: what nobody believes in goes, in bounded pieces.

use super::PrefixTree;
use super::arena::NodeId;
use super::credit::{self, Tick, tick};
use crate::id::Millis;

/// Nodes that one call of [`PrefixTree::sweep`] looks at, at most: about 0.2 ms; ten a second see a million
/// nodes in 50 s.
const MOST_NODES: usize = 2_000;

/// And at least, as far as there are so many.
const LEAST_NODES: usize = 256;

/// Calls for a round of a smaller tree: more often than every ten seconds or so finds nothing.
const CALLS_PER_ROUND: usize = 100;

impl PrefixTree {
    /// A bounded piece of housekeeping: drops credits that nobody believes in, leaves without any,
    /// and merges nodes that no longer need to be two. Call it a few times a second.
    pub fn sweep(&mut self, now: Millis) {
        let now = tick(now);
        let slots = self.arena.slots();
        let nodes = (slots / CALLS_PER_ROUND).clamp(LEAST_NODES, MOST_NODES).min(slots);
        for _ in 0..nodes {
            if self.sweep_at >= self.arena.slots() {
                self.sweep_at = 0;
                self.replicas.begin_round(&mut self.retired);
            }
            let id = self.sweep_at as NodeId;
            self.sweep_at += 1;
            self.tidy(id, now);
        }
    }

    fn tidy(&mut self, mut id: NodeId, now: Tick) {
        while self.arena.live(id).is_some() {
            let (replicas, config) = (&self.replicas, &self.config);
            self.arena.edit_credits(id, |credits| credits.retain(|c| replicas.believes(c, now, config)));
            let node = self.arena.node(id);
            if !(node.is_leaf() && node.credits().is_empty()) {
                return self.merge(id);
            }
            // Its parent may have nothing to live for now.
            self.stats.expired += node.len() as u64;
            id = self.arena.remove_leaf(id);
        }
    }

    /// A node with one child that every holder of the node also holds, and used as lately, tells
    /// nothing of its own.
    fn merge(&mut self, id: NodeId) {
        let Some(child) = self.arena.node(id).only_child() else { return };
        let lower = self.arena.node(child).credits();
        let same = |c: &credit::Credit| lower.get(c.slot).is_some_and(|l| l.epoch == c.epoch);
        if self.arena.node(id).credits().iter().all(same) {
            self.arena.merge_into_child(id, child);
        }
    }

    pub(super) fn enforce_limit(&mut self) {
        while self.arena.boundaries() > self.config.max_boundaries {
            let Some(id) = self.arena.oldest() else { return };
            let node = self.arena.node(id);
            if !node.is_leaf() {
                // Rare: structure changed under an old node. Its children are older in truth.
                self.arena.touch(id);
                continue;
            }
            self.stats.evicted += node.len() as u64;
            self.arena.remove_leaf(id);
        }
    }
}
