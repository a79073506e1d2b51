//! The whole tree, piece by piece, for a router that joins or has missed too much.
//!
//! A page holds nodes as they lie in the arena, so a snapshot is a cursor and costs nothing between
//! pages; what changes meanwhile reaches the receiver as deltas. A node travels with its credits and the
//! end of the node above it, by which the receiver puts it in its place, in any order.
//!
//! Belief depends on how deep something lies in a replica's cache, so the sender's dates come along with
//! their depth ([`ReplicaHistory`]), and the receiver translates them to its own ([`Translation`]). What it
//! knows itself, and knows later, stays. Restoring twice changes nothing.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::arena::{NONE, NodeId, index_of};
use super::credit::{Credit, TICK_MS, Tick, decay, tick};
use super::recency::Epoch;
use super::{PrefixTree, Use};
use crate::delta::Mark;
use crate::id::{Millis, ReplicaId, RouterId};

/// When what a replica holds was last used, in its sender's dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaHistory {
    /// The replica.
    pub replica: ReplicaId,
    /// Which of its caches the dates are of.
    pub epoch: u32,
    /// Size of its cache in tokens, when known.
    pub capacity_tokens: Option<u64>,
    /// The sender's newest date.
    pub now: u32,
    /// Dates and how deep in the cache, in bytes, lies what was last used then. Oldest first.
    pub runs: Vec<(u32, u64)>,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct SnapshotNode {
    /// The end of the node above, if there is one, and the boundaries of this one's label; ascending.
    pub marks: SmallVec<[Mark; 8]>,
    /// Who holds it.
    pub credits: SmallVec<[SnapshotCredit; 2]>,
}

/// One replica's credit at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SnapshotCredit {
    /// The replica.
    pub replica: ReplicaId,
    /// Count of picks as of the last use, > 0.
    pub count: f32,
    /// When it was last used, in the sender's dates of that replica.
    pub date: u32,
    /// Time since it was last used, ms.
    pub idle_ms: u32,
}

/// A piece of a tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotPage {
    /// Its nodes.
    pub nodes: Vec<SnapshotNode>,
    /// Where the next piece begins; `None` after the last one.
    pub next: Option<u64>,
}

/// A sender's dates in the receiver's.
#[derive(Clone, Debug, Default)]
pub struct Translation {
    replicas: BTreeMap<ReplicaId, Dates>,
}

#[derive(Clone, Debug)]
struct Dates {
    cache: u32,
    now: Epoch,
    /// The sender's date and ours, oldest first.
    pairs: Vec<(Epoch, Epoch)>,
}

impl Dates {
    /// Our date of the sender's `date`; `None` when it is newer than the history, so: now.
    fn of(&self, date: Epoch) -> Option<Epoch> {
        let age = self.now.wrapping_sub(date);
        if age > u32::MAX / 2 {
            return None;
        }
        let after = self.pairs.partition_point(|pair| self.now.wrapping_sub(pair.0) >= age);
        self.pairs.get(after.saturating_sub(1)).map(|pair| pair.1)
    }
}

/// Most nodes in a page: restoring them keeps lookups waiting for about a millisecond.
const PAGE_NODES: usize = 2_000;

/// Slots looked at for a page, at most: much of an arena may be free.
const PAGE_SLOTS: usize = 20_000;

impl PrefixTree {
    /// The dates that the credits of a snapshot refer to: take them before its first page.
    pub fn histories(&self) -> Vec<ReplicaHistory> {
        self.replicas.histories().collect()
    }

    /// The nodes from `cursor` on, worth at most about `budget` bytes on the wire; 0 begins.
    pub fn snapshot(&self, cursor: u64, budget: usize, now: Millis) -> SnapshotPage {
        let slots = self.arena.slots();
        let first = usize::try_from(cursor).unwrap_or(slots);
        let mut page = SnapshotPage::default();
        let mut left = budget;
        for at in first..slots.min(first.saturating_add(PAGE_SLOTS)) {
            if left == 0 || page.nodes.len() >= PAGE_NODES {
                page.next = Some(at as u64);
                return page;
            }
            if let Some(node) = self.picture(at as NodeId, tick(now)) {
                left = left.saturating_sub(node.wire_bytes());
                page.nodes.push(node);
            }
        }
        let end = first.saturating_add(PAGE_SLOTS);
        page.next = (end < slots).then_some(end as u64);
        page
    }

    fn picture(&self, id: NodeId, now: Tick) -> Option<SnapshotNode> {
        let node = self.arena.live(id)?;
        let believed = node.credits().iter().filter(|c| self.replicas.believes(c, now, &self.config));
        let credits: SmallVec<[SnapshotCredit; 2]> = believed.map(|c| self.credit_picture(c, now)).collect();
        if credits.is_empty() {
            return None;
        }
        let above = (node.parent != NONE).then(|| self.arena.end(node.parent));
        let marks = above.iter().chain(self.arena.label(id));
        let marks = marks.map(|&mark| Mark { index: index_of(mark), hash: mark & !0xff }).collect();
        Some(SnapshotNode { marks, credits })
    }

    fn credit_picture(&self, credit: &Credit, now: Tick) -> SnapshotCredit {
        let idle_ms = u64::from(now.saturating_sub(credit.at)) * TICK_MS;
        SnapshotCredit {
            replica: self.replicas.id(credit.slot),
            // A sum would grow each time two routers restore from each other.
            count: credit.own.max(credit.peer).max(super::MIN_COUNT),
            date: credit.epoch,
            idle_ms: u32::try_from(idle_ms).unwrap_or(u32::MAX),
        }
    }

    /// Makes room in this tree's dates for those of a snapshot. Its pages are then restored with the
    /// result. Caches that are known to be lost are left out.
    pub fn adopt(&mut self, histories: &[ReplicaHistory]) -> Translation {
        let mut translation = Translation::default();
        for history in histories {
            let Some(slot) = self.replicas.slot_of_cache(history.replica, history.epoch) else { continue };
            let pairs = self.replicas.adopt(slot, history);
            let dates = Dates { cache: history.epoch, now: history.now, pairs };
            translation.replicas.insert(history.replica, dates);
        }
        translation
    }

    /// Puts a snapshot's node into this tree. Credits of replicas without history are left out.
    pub fn restore(&mut self, teacher: RouterId, node: &SnapshotNode, dates: &Translation, now: Millis) {
        let Some(teacher) = self.teacher(teacher) else { return };
        if let Some(end) = self.insert_described(&node.marks, now) {
            for credit in &node.credits {
                self.restore_credit(end, credit, teacher, dates, tick(now));
            }
        }
        self.enforce_limit();
    }

    fn restore_credit(
        &mut self,
        end: NodeId,
        credit: &SnapshotCredit,
        teacher: u16,
        dates: &Translation,
        now: Tick,
    ) {
        let (Some(slot), Some(known)) =
            (self.replicas.find(credit.replica), dates.replicas.get(&credit.replica))
        else {
            return;
        };
        if self.replicas.cache(slot) != known.cache {
            // Lost while the pages came.
            return;
        }
        let epoch = known.of(credit.date).unwrap_or_else(|| self.replicas.today(slot));
        let idle = (u64::from(credit.idle_ms) / TICK_MS) as Tick;
        let at = now.saturating_sub(idle).max(1);
        // This tree may be younger than the last use.
        let before_us = idle.saturating_sub(now - at.min(now));
        let half_life_ms = self.config.half_life_ms;
        let count = credit.count * decay(u64::from(before_us) * TICK_MS, half_life_ms);
        self.credit_path(end, slot, Use { at, epoch, reported: false }, |mine| {
            let later = u64::from(mine.at.saturating_sub(at)) * TICK_MS;
            mine.learn(count * decay(later, half_life_ms), teacher);
        });
    }
}

impl SnapshotNode {
    /// About what it takes on the wire.
    fn wire_bytes(&self) -> usize {
        const MARK: usize = 8;
        const CREDIT: usize = 4 + 1 + 4 + 3;
        2 + self.marks.len() * MARK + self.credits.len() * CREDIT
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Match, TreeConfig};
    use super::*;
    use crate::key::PrefixKey;

    const PEER: RouterId = RouterId(9);
    const BUDGET: usize = 1 << 20;

    /// A prompt of `len` boundaries, of which the first `shared` are the same for all.
    fn key(tag: u64, shared: usize, len: usize) -> PrefixKey {
        let hash = |i: usize| {
            let tag = if i < shared { 0 } else { tag + 1 };
            ((tag << 8) + i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        PrefixKey { hashes: (0..len).map(hash).collect(), bytes: len as u64 * 128 }
    }

    fn found(tree: &mut PrefixTree, key: &PrefixKey, now: Millis) -> Vec<Match> {
        let mut out = Vec::new();
        tree.lookup(key, now, &mut out);
        out.sort_by_key(|m| m.replica);
        out
    }

    fn places(tree: &mut PrefixTree, key: &PrefixKey, now: Millis) -> Vec<(ReplicaId, u32)> {
        found(tree, key, now).iter().map(|m| (m.replica, m.bytes)).collect()
    }

    /// Prompts of 16 boundaries, two thirds shared, over four replicas with room for 1,000 tokens each.
    fn busy() -> PrefixTree {
        let mut tree = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        for replica in 0..4 {
            tree.set_capacity(ReplicaId(replica), 4_000);
        }
        for i in 0..400u64 {
            let replica = ReplicaId((i % 4) as u32);
            tree.observe(&key(i, 10, 16), replica, 192, 1_000 + i * 50);
        }
        tree
    }

    fn pages(tree: &PrefixTree, budget: usize, now: Millis) -> Vec<SnapshotNode> {
        let (mut nodes, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let page = tree.snapshot(at, budget, now);
            assert!(page.next.is_none_or(|next| next > at), "a page that does not move on");
            nodes.extend(page.nodes);
            cursor = page.next;
        }
        nodes
    }

    fn restored(into: &mut PrefixTree, from: &PrefixTree, now: Millis, reverse: bool) {
        let dates = into.adopt(&from.histories());
        let mut nodes = pages(from, 700, now);
        if reverse {
            nodes.reverse();
        }
        for node in &nodes {
            into.restore(PEER, node, &dates, now);
        }
        into.arena.check();
    }

    #[test]
    fn a_restored_tree_answers_as_its_source_does() {
        for reverse in [false, true] {
            let (mut source, now) = (busy(), 21_000);
            let mut copy = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
            restored(&mut copy, &source, now, reverse);
            let mut held = 0;
            for i in 0..400 {
                let key = key(i, 10, 16);
                assert_eq!(places(&mut source, &key, now), places(&mut copy, &key, now), "prompt {i}");
                held += usize::from(found(&mut source, &key, now).iter().any(|m| m.bytes >= 2_000));
            }
            assert!((60..200).contains(&held), "{held} of 400 are still held: a real choice");
        }
    }

    #[test]
    fn a_restored_tree_ages_on_as_its_source_does() {
        let (mut source, now) = (busy(), 21_000);
        let mut copy = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        restored(&mut copy, &source, now, false);
        for i in 400..420u64 {
            for tree in [&mut source, &mut copy] {
                tree.observe(&key(i, 10, 16), ReplicaId((i % 4) as u32), 192, now);
            }
        }
        let differ = (0..420).filter(|&i| {
            let key = key(i, 10, 16);
            places(&mut source, &key, now) != places(&mut copy, &key, now)
        });
        assert!(differ.count() <= 12, "belief ends within a 64th of the capacity");
    }

    #[test]
    fn restoring_again_changes_nothing_and_what_is_known_later_stays() {
        let (source, now) = (busy(), 21_000);
        let mut copy = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        restored(&mut copy, &source, now, false);
        restored(&mut copy, &source, now, true);
        copy.observe(&key(7, 10, 16), ReplicaId(2), 192, now);
        let before: Vec<_> = (0..400).map(|i| found(&mut copy, &key(i, 10, 16), now)).collect();
        restored(&mut copy, &source, now, true);
        assert_eq!(found(&mut copy, &key(7, 10, 16), now), before[7]);
        let differ = (0..400).filter(|&i| found(&mut copy, &key(i, 10, 16), now) != before[i as usize]);
        assert!(differ.count() <= 2, "only what one more prompt pushed to the edge of belief");
    }

    #[test]
    fn counts_of_two_that_restore_from_each_other_do_not_grow() {
        let mut a = busy();
        let mut b = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        let count = |tree: &mut PrefixTree| found(tree, &key(399, 10, 16), 21_000)[3].count;
        let before = count(&mut a);
        for _ in 0..5 {
            restored(&mut b, &a, 21_000, false);
            restored(&mut a, &b, 21_000, false);
        }
        assert!(count(&mut a) <= 2.0 * before + 0.01, "own and the largest that a peer reported");
    }

    #[test]
    fn a_replica_that_was_forgotten_is_not_in_the_picture() {
        let mut source = busy();
        source.forget(ReplicaId(1), 1);
        let now = 21_000;
        let replicas = pages(&source, BUDGET, now).into_iter().flat_map(|n| n.credits).map(|c| c.replica);
        let mut replicas: Vec<u32> = replicas.map(|r| r.0).collect();
        replicas.sort_unstable();
        replicas.dedup();
        assert_eq!(replicas, [0, 2, 3]);
    }

    #[test]
    fn what_a_teacher_knows_of_a_lost_cache_is_left_out() {
        let (source, now) = (busy(), 21_000);
        let held = |tree: &mut PrefixTree| places(tree, &key(399, 10, 16), now).iter().any(|p| p.0.0 == 1);
        let mut heard_before = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        heard_before.forget(ReplicaId(1), 1);
        restored(&mut heard_before, &source, now, false);
        assert!(!held(&mut heard_before), "its histories are of the cache before");

        let mut heard_between = PrefixTree::new(TreeConfig { grace_ms: 0, ..TreeConfig::default() });
        let dates = heard_between.adopt(&source.histories());
        heard_between.forget(ReplicaId(1), 1);
        pages(&source, BUDGET, now).iter().for_each(|node| heard_between.restore(PEER, node, &dates, now));
        assert!(!held(&mut heard_between), "and so are its pages");
        assert!(!places(&mut heard_between, &key(399, 10, 16), now).is_empty());
    }

    #[test]
    fn nonsense_is_survived() {
        let mut tree = busy();
        let history = ReplicaHistory {
            replica: ReplicaId(77),
            epoch: 0,
            capacity_tokens: Some(0),
            now: 3,
            runs: (0..5_000).map(|i| (i * 7, u64::MAX - u64::from(i))).collect(),
        };
        let dates = tree.adopt(&[history.clone(), history]);
        for date in [0, 3, 4, u32::MAX] {
            let credit = SnapshotCredit { replica: ReplicaId(77), count: 1e30, date, idle_ms: u32::MAX };
            let marks = [(0, 512), (103, 1 << 40)].map(|(index, hash)| Mark { index, hash });
            let node =
                SnapshotNode { marks: marks.into_iter().collect(), credits: [credit].into_iter().collect() };
            tree.restore(PEER, &node, &dates, 21_000);
        }
        tree.arena.check();
        assert_eq!(tree.snapshot(u64::MAX, BUDGET, 0), SnapshotPage::default());
    }
}
