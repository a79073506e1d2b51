//! Replicas as the tree sees them: a slot, a clock of newly prefilled tokens, a cache size.
//!
//! A cache with room for C tokens that evicts what was used least recently has dropped what was
//! last used more than C newly prefilled tokens ago. So belief ages by each replica's own clock,
//! not by time alone. A replica that lost its cache gets a new slot: every credit under the old one
//! is void at once, and goes when housekeeping comes by.

use hashbrown::HashTable;

use super::TreeConfig;
use super::credit::{Credit, STAMP_TOKENS, Slot, Stamp, TICK_MS, Tick};
use crate::id::ReplicaId;

#[derive(Debug)]
struct Replica {
    id: ReplicaId,
    /// Tokens newly prefilled there, by the whole fleet as far as known.
    clock: u64,
    /// Those that this router sent.
    own: u64,
    capacity: Option<u64>,
    live: bool,
}

#[derive(Debug, Default)]
pub(super) struct Replicas {
    slots: Vec<Replica>,
    by_id: HashTable<Slot>,
    /// Dead slots that no credit refers to any more.
    reusable: Vec<Slot>,
    /// Slots that died since the last full round of housekeeping began.
    dying: Vec<Slot>,
}

impl Replicas {
    /// The slot of a replica, made if it has none. `None` when 65,535 are taken: then nothing is
    /// learnt of further ones, which costs hits, not requests.
    pub(super) fn slot(&mut self, id: ReplicaId) -> Option<Slot> {
        if let Some(slot) = self.find(id) {
            return Some(slot);
        }
        let replica = Replica { id, clock: 0, own: 0, capacity: None, live: true };
        let slot = match self.reusable.pop() {
            Some(slot) => {
                self.slots[usize::from(slot)] = replica;
                slot
            }
            None => {
                let slot = Slot::try_from(self.slots.len()).ok().filter(|&s| s < Slot::MAX)?;
                self.slots.push(replica);
                slot
            }
        };
        let slots = &self.slots;
        let rehash = |&s: &Slot| hash(slots[usize::from(s)].id);
        self.by_id.insert_unique(hash(id), slot, rehash);
        Some(slot)
    }

    pub(super) fn find(&self, id: ReplicaId) -> Option<Slot> {
        self.by_id.find(hash(id), |&s| self.slots[usize::from(s)].id == id).copied()
    }

    pub(super) fn id(&self, slot: Slot) -> ReplicaId {
        self.slots[usize::from(slot)].id
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Voids every credit of a replica. Its clock and size carry on under a new slot.
    pub(super) fn forget(&mut self, id: ReplicaId) {
        let Some(old) = self.find(id) else { return };
        let Replica { clock, own, capacity, .. } = self.slots[usize::from(old)];
        self.remove(id);
        if let Some(slot) = self.slot(id) {
            let replica = &mut self.slots[usize::from(slot)];
            (replica.clock, replica.own, replica.capacity) = (clock, own, capacity);
        }
    }

    /// Voids everything about a replica.
    pub(super) fn remove(&mut self, id: ReplicaId) {
        let slots = &self.slots;
        let same = |&s: &Slot| slots[usize::from(s)].id == id;
        if let Ok(entry) = self.by_id.find_entry(hash(id), same) {
            let old = entry.remove().0;
            self.slots[usize::from(old)].live = false;
            self.dying.push(old);
        }
    }

    /// A full round of housekeeping is about to begin; `seen` are slots that died before the last
    /// one began, so nothing refers to them any more.
    pub(super) fn begin_round(&mut self, seen: &mut Vec<Slot>) {
        self.reusable.append(seen);
        std::mem::swap(seen, &mut self.dying);
    }

    pub(super) fn advance(&mut self, slot: Slot, tokens: u64, own: bool) {
        let replica = &mut self.slots[usize::from(slot)];
        replica.clock = replica.clock.saturating_add(tokens);
        if own {
            replica.own = replica.own.saturating_add(tokens);
        }
    }

    pub(super) fn own_tokens(&self) -> impl Iterator<Item = (ReplicaId, u64)> + '_ {
        self.slots.iter().filter(|r| r.live && r.own > 0).map(|r| (r.id, r.own))
    }

    pub(super) fn set_capacity(&mut self, slot: Slot, tokens: u64) {
        self.slots[usize::from(slot)].capacity = Some(tokens);
    }

    /// The stamp of something last used `age_tokens` ago.
    pub(super) fn stamp(&self, slot: Slot, age_tokens: u32) -> Stamp {
        let now = (self.slots[usize::from(slot)].clock / STAMP_TOKENS) as Stamp;
        now.wrapping_sub(age_tokens / STAMP_TOKENS as u32)
    }

    /// Newly prefilled tokens since a credit was last used.
    pub(super) fn age_tokens(&self, credit: &Credit) -> u64 {
        u64::from(self.stamp(credit.slot, 0).wrapping_sub(credit.stamp)) * STAMP_TOKENS
    }

    /// Whether the replica may still hold what the credit stands for.
    pub(super) fn believes(&self, credit: &Credit, now: Tick, config: &TreeConfig) -> bool {
        let replica = &self.slots[usize::from(credit.slot)];
        let idle_ms = u64::from(now.saturating_sub(credit.at)) * TICK_MS;
        let capacity = replica.capacity.unwrap_or(config.default_capacity_tokens);
        replica.live
            && idle_ms < config.idle_ttl_ms
            && (idle_ms < config.grace_ms || self.age_tokens(credit) < capacity)
    }
}

fn hash(id: ReplicaId) -> u64 {
    // Already a hash of the URL; spread over the upper bits too.
    u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
