//! Who holds how much of a prompt.

use smallvec::SmallVec;

use super::arena::{NodeId, Trace, pack};
use super::credit::{self, Slot, Tick, tick};
use super::{MIN_COUNT, PrefixTree};
use crate::boundary;
use crate::id::{Millis, ReplicaId, RouterId};
use crate::key::PrefixKey;

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
    /// Matched prefix, bytes of the canonical prompt: the last boundary that matched, and half the way
    /// to the next, which did not. Right on average, where either end would be wrong always one way.
    pub bytes: u32,
    /// Decayed count of picks (own and peers').
    pub count: f32,
    /// Who taught it.
    pub teacher: Teacher,
}

/// All replicas with a live match, deepest first.
pub type Matches = Vec<Match>;

impl PrefixTree {
    /// Every replica believed to hold a prefix of `key`, with how much of it.
    pub fn lookup(&self, key: &PrefixKey, now: Millis, out: &mut Matches) {
        out.clear();
        let mut met = Met::new(self.replicas.len());
        let now = tick(now);
        // From the deepest node up: the first in which a replica is met is its deepest.
        for (id, index) in self.trace(key).into_iter().rev() {
            self.collect(id, matched_bytes(key, index), now, &mut met, out);
        }
    }

    /// The nodes on the key's path.
    pub(super) fn trace(&self, key: &PrefixKey) -> Trace {
        let mark = |at: usize| pack(at as u8, key.hashes.get(at).copied().unwrap_or_default());
        self.arena.trace(key.hashes.len(), mark)
    }

    fn collect(&self, id: NodeId, bytes: u32, now: Tick, met: &mut Met, out: &mut Matches) {
        for credit in self.arena.node(id).credits().iter() {
            if met.contains(credit.slot) || !self.replicas.believes(credit, now, &self.config) {
                continue;
            }
            met.add(credit.slot);
            let elapsed = u64::from(now.saturating_sub(credit.at)) * credit::TICK_MS;
            out.push(Match {
                replica: self.replicas.id(credit.slot),
                bytes,
                count: credit.count() * credit::decay(elapsed, self.config.half_life_ms),
                teacher: self.teacher_of(credit),
            });
        }
    }

    fn teacher_of(&self, credit: &credit::Credit) -> Teacher {
        match self.teachers.get(usize::from(credit.teacher)) {
            Some(&peer) if credit.own < MIN_COUNT => Teacher::Peer(peer),
            _ => Teacher::Own,
        }
    }
}

/// The replicas that a lookup has met: a bit for each slot, on the stack for the first 512.
struct Met(SmallVec<[u64; 8]>);

impl Met {
    fn new(slots: usize) -> Self {
        Self(SmallVec::from_elem(0, slots.div_ceil(64)))
    }

    fn contains(&self, slot: Slot) -> bool {
        self.0.get(usize::from(slot) / 64).is_none_or(|bits| bits >> (slot % 64) & 1 == 1)
    }

    fn add(&mut self, slot: Slot) {
        if let Some(bits) = self.0.get_mut(usize::from(slot) / 64) {
            *bits |= 1 << (slot % 64);
        }
    }
}

/// What of `key` is matched when boundary `index` is the last that is.
fn matched_bytes(key: &PrefixKey, index: usize) -> u32 {
    let at = boundary::depth(index);
    let next = boundary::depth(index + 1).min(key.bytes as usize);
    (at + next.saturating_sub(at) / 2) as u32
}
