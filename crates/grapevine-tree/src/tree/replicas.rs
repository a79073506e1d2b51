//! Replicas as the tree sees them: a slot, and what its cache holds in order of use.
//!
//! Belief ages as the cache does ([`super::recency`]), not by time alone. Every path that is credited
//! is dated there. What was prefilled beyond that (prompts too short for a boundary, tails past the
//! last one, peers' picks that never reached us) is known only by its amount, and counts as used when
//! it was reported.
//!
//! A replica that lost its cache gets a new slot: every credit under the old one is void at once, and
//! goes when housekeeping comes by.

use hashbrown::HashTable;

use super::credit::{Credit, Slot, TICK_MS, Tick};
use super::recency::{Epoch, Recency};
use super::snapshot::ReplicaHistory;
use super::{TreeConfig, Use};
use crate::id::ReplicaId;

#[derive(Debug)]
struct Replica {
    id: ReplicaId,
    /// How often it lost its cache.
    cache: u32,
    /// Tokens that this router newly sent there.
    own: u64,
    capacity: Option<u64>,
    recency: Recency,
    /// Bytes newly prefilled there, by the whole fleet as far as reported, less those that were dated.
    undated: i64,
    live: bool,
}

#[derive(Debug)]
pub(super) struct Replicas {
    default_capacity: u64,
    bytes_per_token: f64,
    slots: Vec<Replica>,
    by_id: HashTable<Slot>,
    /// Dead slots that no credit refers to any more.
    reusable: Vec<Slot>,
    /// Slots that died since the last full round of housekeeping began.
    dying: Vec<Slot>,
}

impl Replicas {
    pub(super) fn new(config: &TreeConfig) -> Self {
        Self {
            default_capacity: config.default_capacity_tokens,
            bytes_per_token: f64::from(config.bytes_per_token),
            slots: Vec::new(),
            by_id: HashTable::new(),
            reusable: Vec::new(),
            dying: Vec::new(),
        }
    }

    /// The slot of a replica, made if it has none. `None` when 65,535 are taken: then nothing is
    /// learnt of further ones, which costs hits, not requests.
    pub(super) fn slot(&mut self, id: ReplicaId) -> Option<Slot> {
        if let Some(slot) = self.find(id) {
            return Some(slot);
        }
        let recency = Recency::new(self.bytes(self.default_capacity));
        let replica = Replica { id, cache: 0, own: 0, capacity: None, recency, undated: 0, live: true };
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

    /// The slot of a replica for what is said of its cache number `cache`: what is known of an earlier one
    /// is void, and `None` when a later one is known.
    pub(super) fn slot_of_cache(&mut self, id: ReplicaId, cache: u32) -> Option<Slot> {
        self.forget(id, cache);
        self.slot(id).filter(|&slot| self.cache(slot) == cache)
    }

    /// Which of its replica's caches a slot stands for.
    pub(super) fn cache(&self, slot: Slot) -> u32 {
        self.slots[usize::from(slot)].cache
    }

    /// Voids every credit of a replica's caches before number `cache`. Its size and what was sent to it carry
    /// on under a new slot.
    pub(super) fn forget(&mut self, id: ReplicaId, cache: u32) {
        let Some(old) = self.slot(id).filter(|&slot| self.cache(slot) < cache) else { return };
        let Replica { own, capacity, .. } = self.slots[usize::from(old)];
        self.remove(id);
        if let Some(slot) = self.slot(id) {
            let replica = &mut self.slots[usize::from(slot)];
            (replica.cache, replica.own) = (cache, own);
            if let Some(tokens) = capacity {
                self.set_capacity(slot, tokens);
            }
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

    /// Notes tokens that this router newly sent, with a path that was dated `epoch`, or none.
    pub(super) fn sent(&mut self, slot: Slot, tokens: u64, epoch: Epoch) {
        let replica = &mut self.slots[usize::from(slot)];
        replica.own = replica.own.saturating_add(tokens);
        self.prefilled(slot, tokens, epoch);
    }

    /// Notes tokens that peers newly sent.
    pub(super) fn peers_sent(&mut self, slot: Slot, tokens: u64) {
        let now = self.slots[usize::from(slot)].recency.now();
        self.prefilled(slot, tokens, now);
    }

    fn prefilled(&mut self, slot: Slot, tokens: u64, epoch: Epoch) {
        let bytes = self.bytes(tokens).min(i64::MAX as u64) as i64;
        let replica = &mut self.slots[usize::from(slot)];
        replica.undated = replica.undated.saturating_add(bytes);
        if let Ok(bytes @ 1..) = u64::try_from(replica.undated) {
            replica.recency.add(epoch, bytes);
            replica.undated = 0;
        }
    }

    /// Moves `bytes` from the date they had, if any, to that of `used`. Gives the later of the two dates.
    pub(super) fn date(&mut self, slot: Slot, from: Option<Epoch>, used: Use, bytes: usize) -> Epoch {
        let to = used.epoch;
        let replica = &mut self.slots[usize::from(slot)];
        let bytes = bytes as u64;
        let held = from.is_some_and(|from| replica.recency.believes(from));
        if !held && used.reported {
            // It had to be prefilled again, which somebody has reported or will.
            replica.undated = replica.undated.saturating_sub(bytes as i64).max(-MAX_AHEAD);
        }
        let recency = &mut replica.recency;
        match from {
            Some(from) if recency.now().wrapping_sub(from) <= recency.now().wrapping_sub(to) => from,
            _ => {
                if let Some(from) = from {
                    recency.take(from, bytes);
                }
                recency.add(to, bytes);
                to
            }
        }
    }

    /// Leaves bytes that were dated twice their later date, which it gives.
    pub(super) fn redate(&mut self, slot: Slot, a: Epoch, b: Epoch, bytes: usize) -> Epoch {
        let recency = &mut self.slots[usize::from(slot)].recency;
        let now = recency.now();
        let (older, newer) = if now.wrapping_sub(a) > now.wrapping_sub(b) { (a, b) } else { (b, a) };
        recency.take(older, bytes as u64);
        newer
    }

    fn bytes(&self, tokens: u64) -> u64 {
        (tokens as f64 * self.bytes_per_token) as u64
    }

    pub(super) fn own_tokens(&self) -> impl Iterator<Item = (ReplicaId, u64)> + '_ {
        self.slots.iter().filter(|r| r.live && r.own > 0).map(|r| (r.id, r.own))
    }

    pub(super) fn set_capacity(&mut self, slot: Slot, tokens: u64) {
        let bytes = self.bytes(tokens);
        let replica = &mut self.slots[usize::from(slot)];
        replica.capacity = Some(tokens);
        replica.recency.set_capacity(bytes);
    }

    /// What live replicas hold in order of use.
    pub(super) fn histories(&self) -> impl Iterator<Item = ReplicaHistory> + '_ {
        self.slots.iter().filter(|r| r.live).map(|replica| ReplicaHistory {
            replica: replica.id,
            epoch: replica.cache,
            capacity_tokens: replica.capacity,
            now: replica.recency.now(),
            runs: replica.recency.history(),
        })
    }

    /// Takes in another router's dates; gives them with ours.
    pub(super) fn adopt(&mut self, slot: Slot, history: &ReplicaHistory) -> Vec<(Epoch, Epoch)> {
        if let (None, Some(tokens)) = (self.slots[usize::from(slot)].capacity, history.capacity_tokens) {
            self.set_capacity(slot, tokens);
        }
        self.slots[usize::from(slot)].recency.adopt(&history.runs)
    }

    /// The date of what is used now.
    pub(super) fn today(&self, slot: Slot) -> Epoch {
        self.slots[usize::from(slot)].recency.now()
    }

    /// Distinct bytes that the replica used since `epoch`.
    pub(super) fn depth(&self, slot: Slot, epoch: Epoch) -> u64 {
        self.slots[usize::from(slot)].recency.depth(epoch)
    }

    /// Whether the replica may still hold what the credit stands for.
    pub(super) fn believes(&self, credit: &Credit, now: Tick, config: &TreeConfig) -> bool {
        let replica = &self.slots[usize::from(credit.slot)];
        let idle_ms = u64::from(now.saturating_sub(credit.at)) * TICK_MS;
        replica.live
            && idle_ms < config.idle_ttl_ms
            && (idle_ms < config.grace_ms || replica.recency.believes(credit.epoch))
    }
}

/// Bytes that may be dated ahead of their report. Gossip brings both within a second; what is never
/// reported must not excuse what is reported later.
const MAX_AHEAD: i64 = 64 << 20;

fn hash(id: ReplicaId) -> u64 {
    // Already a hash of the URL; spread over the upper bits too.
    u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
