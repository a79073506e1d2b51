//! The prefixes that matter most now, for people to look at: hashes and sizes, never text.
//!
//! All nodes are weighed in slices ([`PrefixTree::weigh`]), so that whoever owns the tree can do other
//! work between them; the heaviest are then described with the nodes above them
//! ([`PrefixTree::describe_heaviest`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use smallvec::SmallVec;

use super::PrefixTree;
use super::arena::{NONE, NodeId, index_of};
use super::credit::{self, Tick, tick};
use crate::boundary;
use crate::id::{Millis, ReplicaId};

/// Nodes weighed in one slice: about a tenth of a millisecond.
const SLICE: usize = 4_096;

/// Most nodes above one: a guard, for depth is bounded by the boundaries of a prompt.
const MAX_ABOVE: usize = boundary::MAX_BOUNDARIES;

/// The heaviest nodes met so far, at most a given number.
#[derive(Debug)]
pub struct Heaviest {
    most: usize,
    /// Lightest first.
    heap: BinaryHeap<Reverse<(u64, NodeId)>>,
}

/// A prefix and what it adds to the one above it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeavyPrefix {
    /// The hash of its deepest boundary, lowest byte left out: it names the whole prefix.
    pub hash: u64,
    /// Where in the list the prefix above it is; `None` at the top.
    pub parent: Option<usize>,
    /// Bytes of the prefix, from the prompt's beginning.
    pub depth_bytes: usize,
    /// Of those, what it adds to the prefix above.
    pub own_bytes: usize,
    /// Picks of it lately, by all replicas.
    pub count: f32,
    /// Who holds it, the most picked first.
    pub holders: SmallVec<[(ReplicaId, f32); 4]>,
}

impl Heaviest {
    /// Room for the `most` heaviest.
    pub fn new(most: usize) -> Self {
        Self { most, heap: BinaryHeap::with_capacity(most + 1) }
    }

    fn offer(&mut self, weight: u64, id: NodeId) {
        self.heap.push(Reverse((weight, id)));
        if self.heap.len() > self.most {
            self.heap.pop();
        }
    }
}

impl PrefixTree {
    /// Weighs a slice of the nodes from `cursor` on, which begins at 0. Gives where the next slice begins;
    /// `None` after the last one. A node weighs what was prefilled or found through it lately: its picks
    /// times the length of its prefix.
    pub fn weigh(&self, cursor: u64, now: Millis, heaviest: &mut Heaviest) -> Option<u64> {
        let slots = self.arena.slots();
        let first = usize::try_from(cursor).unwrap_or(slots);
        let end = first.saturating_add(SLICE);
        for id in first..slots.min(end) {
            let id = id as NodeId;
            let count = self.believed(id, tick(now)).map(|(_, count)| count).sum::<f32>();
            if count > 0.0 {
                let depth = boundary::depth(usize::from(self.arena.node(id).last()));
                heaviest.offer((f64::from(count) * depth as f64) as u64, id);
            }
        }
        (end < slots).then_some(end as u64)
    }

    /// Describes the heaviest nodes and those above them, parents before children. When that are more than
    /// asked for, the lightest are left out.
    pub fn describe_heaviest(&self, heaviest: &Heaviest, now: Millis) -> Vec<HeavyPrefix> {
        let mut ranked: Vec<_> = heaviest.heap.iter().map(|&Reverse(ranked)| ranked).collect();
        ranked.sort_unstable_by_key(|&(weight, id)| (Reverse(weight), id));
        let mut places: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut described = Vec::new();
        for (_, id) in ranked {
            let missing = self.missing(id, &places);
            if described.len() + missing.len() > heaviest.most {
                continue;
            }
            for id in missing {
                places.insert(id, described.len());
                described.push(self.heavy_prefix(id, &places, tick(now)));
            }
        }
        described
    }

    /// `id` and the nodes above it that have no place yet, the topmost first; nothing when the node has gone
    /// since it was weighed.
    fn missing(&self, id: NodeId, places: &BTreeMap<NodeId, usize>) -> SmallVec<[NodeId; 8]> {
        let mut path = SmallVec::new();
        let mut at = id;
        while at != NONE && !places.contains_key(&at) && path.len() < MAX_ABOVE {
            let Some(node) = self.arena.live(at) else { break };
            path.push(at);
            at = node.parent;
        }
        path.reverse();
        path
    }

    fn heavy_prefix(&self, id: NodeId, places: &BTreeMap<NodeId, usize>, now: Tick) -> HeavyPrefix {
        let mut holders: SmallVec<[(ReplicaId, f32); 4]> = self.believed(id, now).collect();
        holders.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let end = self.arena.end(id);
        HeavyPrefix {
            hash: end & !0xff,
            parent: places.get(&self.arena.node(id).parent).copied(),
            depth_bytes: boundary::depth(usize::from(index_of(end))),
            own_bytes: self.arena.own_bytes(id),
            count: holders.iter().map(|(_, count)| count).sum(),
            holders,
        }
    }

    /// The replicas believed to hold a node, with their counts now.
    fn believed(&self, id: NodeId, now: Tick) -> impl Iterator<Item = (ReplicaId, f32)> + '_ {
        let credits = self.arena.live(id).into_iter().flat_map(|node| node.credits().iter());
        credits.filter(move |c| self.replicas.believes(c, now, &self.config)).map(move |c| {
            let elapsed = u64::from(now.saturating_sub(c.at)) * credit::TICK_MS;
            (self.replicas.id(c.slot), c.count() * credit::decay(elapsed, self.config.half_life_ms))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::PrefixKey;
    use crate::tree::TreeConfig;

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);

    /// A prompt of `shared` boundaries that all have, and `own` of its own.
    fn key(tag: u64, shared: u64, own: u64) -> PrefixKey {
        let hash = |tag: u64, i: u64| (tag * 1_000 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hashes: Vec<u64> =
            (0..shared).map(|i| hash(0, i)).chain((shared..shared + own).map(|i| hash(tag, i))).collect();
        PrefixKey { bytes: 128 * hashes.len() as u64, hashes }
    }

    fn heaviest(tree: &PrefixTree, most: usize) -> Vec<HeavyPrefix> {
        let mut found = Heaviest::new(most);
        let mut next = Some(0);
        while let Some(cursor) = next {
            next = tree.weigh(cursor, 1_000, &mut found);
        }
        tree.describe_heaviest(&found, 1_000)
    }

    #[test]
    fn a_shared_head_stands_above_its_tails() {
        let mut tree = PrefixTree::new(TreeConfig::default());
        for tag in 1..=5 {
            tree.observe(&key(tag, 4, 4), if tag % 2 == 0 { A } else { B }, 256, 1_000);
        }
        let found = heaviest(&tree, 100);
        assert_eq!(found.len(), 6);
        assert_eq!((found[0].parent, found[0].depth_bytes, found[0].own_bytes), (None, 512, 512));
        assert_eq!(found[0].holders.as_slice(), [(B, 3.0), (A, 2.0)]);
        for tail in &found[1..] {
            assert_eq!((tail.parent, tail.depth_bytes, tail.own_bytes), (Some(0), 1_024, 512));
            assert_eq!(tail.count, 1.0);
        }
    }

    #[test]
    fn the_heaviest_are_kept_with_those_above_them() {
        let mut tree = PrefixTree::new(TreeConfig::default());
        for tag in 1..=200 {
            tree.observe(&key(tag, 0, 2), A, 64, 1_000);
        }
        (0..9).for_each(|_| tree.observe(&key(300, 3, 9), A, 64, 1_000));
        tree.observe(&key(301, 3, 1), A, 64, 1_000);
        let found = heaviest(&tree, 4);
        assert!(found.len() <= 4);
        assert_eq!((found[0].own_bytes, found[0].count), (3 * 128, 10.0));
        assert_eq!((found[1].parent, found[1].own_bytes, found[1].count), (Some(0), 9 * 128, 9.0));
    }

    #[test]
    fn many_nodes_take_several_slices_and_what_nobody_holds_weighs_nothing() {
        let mut tree = PrefixTree::new(TreeConfig::default());
        for tag in 1..=2 * SLICE as u64 {
            tree.observe(&key(tag, 0, 2), if tag == 77 { B } else { A }, 1, 1_000);
        }
        assert!(tree.weigh(0, 1_000, &mut Heaviest::new(1)).is_some());
        tree.forget(A, 1);
        let found = heaviest(&tree, 10);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].holders.as_slice(), [(B, 1.0)]);
    }
}
