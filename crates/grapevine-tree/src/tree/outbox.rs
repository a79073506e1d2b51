//! What changed by own picks and still has to be told.
//!
//! Many picks of one prefix in a tick are one entry, because the entry carries a count. Nothing here
//! grows with the tree: the queue holds references to changed credits only, and is bounded.

use super::arena::{Arena, NONE, Node, NodeId, Told, index_of};
use super::credit::{Slot, TICK_MS, Tick, decay};
use crate::boundary;
use crate::delta::{MAX_MARKS, Mark};
use smallvec::SmallVec;

/// Changed credits that may wait. Beyond it further ones are not told until they are used again:
/// 65,536 entries are 3 MB on the wire, minutes of gossip.
const MAX_WAITING: usize = 65_536;

/// A prefix that stays in use is told again this often, so that peers' belief stays fresh without
/// an entry for every request.
const REFRESH_MS: u64 = 2_000;

/// Bytes of an entry on the wire beside its marks: replica, count, epoch, number of marks.
const ENTRY_BYTES: usize = 8;

/// Bytes of a mark on the wire: its index takes the place of the lowest byte of its hash.
const MARK_BYTES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: Vec<(NodeId, Slot)>,
    /// Changes that found no room.
    pub(super) overflowed: u64,
}

/// One credit that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    pub(super) node: NodeId,
    pub(super) slot: Slot,
    pub(super) count: f32,
    value: f32,
    bytes: usize,
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<(NodeId, Slot)>()
    }

    /// Notes that an own credit changed.
    pub(super) fn note(&mut self, arena: &mut Arena, node: NodeId, slot: Slot) {
        arena.edit_credits(node, |credits| {
            let Some(credit) = credits.get_mut(slot).filter(|c| !c.is_dirty() && c.own > 0.0) else { return };
            if self.waiting.len() >= MAX_WAITING {
                self.overflowed += 1;
                return;
            }
            credit.set_dirty();
            self.waiting.push((node, slot));
        });
    }

    /// Takes the most valuable due credits worth at most `budget` bytes. Value is tokens saved times
    /// use: depth times count.
    pub(super) fn take(
        &mut self,
        arena: &mut Arena,
        budget: usize,
        now: Tick,
        half_life_ms: u64,
    ) -> Vec<Due> {
        let mut due = Vec::new();
        let mut later = Vec::new();
        for (node, slot) in self.waiting.drain(..) {
            let Some(live) = arena.live(node) else { continue };
            let (depth, bytes) = (boundary::depth(usize::from(live.last())), wire_bytes(live));
            let Some(credit) = live.credits().iter().find(|c| c.slot == slot && c.is_dirty()) else {
                continue;
            };
            let fresh = |sent| u64::from(now.saturating_sub(sent)) * TICK_MS < REFRESH_MS;
            if credit.sent().is_some_and(fresh) {
                later.push((node, slot));
                continue;
            }
            let elapsed = u64::from(now.saturating_sub(credit.at)) * TICK_MS;
            let count = credit.own * decay(elapsed, half_life_ms);
            due.push(Due { node, slot, count, value: depth as f32 * count, bytes });
        }
        due.sort_by(|a, b| b.value.total_cmp(&a.value).then((a.node, a.slot).cmp(&(b.node, b.slot))));
        let mut left = budget;
        due.retain(|d| match left.checked_sub(d.bytes) {
            Some(rest) => {
                left = rest;
                true
            }
            None => {
                later.push((d.node, d.slot));
                false
            }
        });
        for d in &due {
            arena.edit_credits(d.node, |credits| {
                credits.entry(d.slot).set_sent(now);
            });
        }
        self.waiting = later;
        due
    }
}

fn wire_bytes(node: &Node) -> usize {
    let marks = match node.told {
        Told::Nothing => MAX_MARKS.min(node.len() + 1),
        Told::Label => 2,
        Told::All => 1,
    };
    ENTRY_BYTES + marks * MARK_BYTES
}

/// The boundaries that describe a node to a peer: its end always; the first time its label, thinned
/// towards its end; and the ends of the nodes above, by which the receiver puts it in its place,
/// where that is news.
pub(super) fn describe(arena: &mut Arena, id: NodeId) -> SmallVec<[Mark; MAX_MARKS]> {
    let label = arena.label(id);
    let mut packed: SmallVec<[u64; MAX_MARKS]> = SmallVec::new();
    packed.push(arena.end(id));
    if arena.node(id).told == Told::Nothing {
        let distances = (1..MAX_MARKS as u32 - 1).map(|k| (1usize << k) - 1);
        let places = distances.map_while(|distance| label.len().checked_sub(distance + 1));
        packed.extend(places.filter_map(|at| label.get(at)).copied());
    }
    let (mut at, mut shown) = (id, true);
    loop {
        let node = arena.node(at);
        let (end, parent, news) = (arena.end(at), node.parent, node.told != Told::All);
        if news && parent != NONE {
            let needed = if shown { 1 } else { 2 };
            if packed.len() + needed > MAX_MARKS {
                break;
            }
            if !shown {
                packed.push(end);
            }
            packed.push(arena.end(parent));
        }
        arena.node_mut(at).told = Told::All;
        if parent == NONE {
            break;
        }
        (at, shown) = (parent, news);
    }
    packed.iter().rev().map(|&mark| Mark { index: index_of(mark), hash: mark & !0xff }).collect()
}
