//! Who is believed to hold a node's prefix: counts with decay, and how fresh they are.

use smallvec::SmallVec;

use super::recency::Epoch;
use crate::id::Millis;

/// A replica's slot in the tree; see [`super::replicas`].
pub(super) type Slot = u16;

/// Time in steps of [`TICK_MS`] since the tree's origin: 8 years in 32 bits.
pub(super) type Tick = u32;

pub(super) const TICK_MS: u64 = 64;

pub(super) const fn tick(now: Millis) -> Tick {
    (now / TICK_MS) as Tick
}

/// One replica's credit at one node.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    pub(super) slot: Slot,
    /// Index of the peer that taught `peer`.
    pub(super) teacher: u16,
    /// This router's own picks, decayed to `at`.
    pub(super) own: f32,
    /// The largest count that a peer reported, decayed to `at`. A maximum, not a sum: it needs no
    /// memory per peer, and saying a thing twice, late or out of order changes nothing.
    pub(super) peer: f32,
    /// Last use, own or reported.
    pub(super) at: Tick,
    /// The last use as the replica's cache dates it.
    pub(super) epoch: Epoch,
    /// When it was last gossiped, 0 = never; the highest bit says that it waits to be gossiped.
    sent: Tick,
}

const _: () = assert!(size_of::<Credit>() == 24);

/// Ticks have 31 bits beside it: four years.
const DIRTY: Tick = 1 << 31;

impl Credit {
    fn new(slot: Slot) -> Self {
        Self { slot, teacher: 0, own: 0.0, peer: 0.0, at: 0, epoch: 0, sent: 0 }
    }

    /// Notes a use at `now`, dated `epoch`.
    pub(super) fn touch(&mut self, now: Tick, epoch: Epoch, half_life_ms: u64) {
        self.decay_to(now.max(1), half_life_ms);
        self.epoch = epoch;
    }

    /// Takes over a peer's count if it is larger. Of equal ones the smaller teacher stays, so that
    /// order does not matter.
    pub(super) fn learn(&mut self, count: f32, teacher: u16) {
        if count > self.peer || (count == self.peer && teacher < self.teacher) {
            self.peer = count;
            self.teacher = teacher;
        }
    }

    /// What holds for a deeper prefix holds for its head. Its date is the caller's.
    pub(super) fn absorb(&mut self, deeper: &Self, now: Tick, half_life_ms: u64) {
        self.decay_to(now.max(1), half_life_ms);
        let mut deeper = deeper.clone();
        deeper.decay_to(now, half_life_ms);
        self.own = self.own.max(deeper.own);
        self.learn(deeper.peer, deeper.teacher);
    }

    /// Whether it waits to be gossiped.
    pub(super) fn is_dirty(&self) -> bool {
        self.sent & DIRTY != 0
    }

    pub(super) fn set_dirty(&mut self) {
        self.sent |= DIRTY;
    }

    /// When it was last gossiped.
    pub(super) fn sent(&self) -> Option<Tick> {
        Some(self.sent & !DIRTY).filter(|&sent| sent != 0)
    }

    /// Notes that it is gossiped now.
    pub(super) fn set_sent(&mut self, now: Tick) {
        self.sent = now.clamp(1, !DIRTY);
    }

    /// Own and peers' picks.
    pub(super) fn count(&self) -> f32 {
        self.own + self.peer
    }

    /// Takes one own pick back. False when nothing is left to believe in.
    pub(super) fn take_back(&mut self, now: Tick, half_life_ms: u64) -> bool {
        self.decay_to(now, half_life_ms);
        // The pick has decayed a little since; what that leaves is not a pick.
        self.own = if self.own > 1.05 { self.own - 1.0 } else { 0.0 };
        self.count() > super::MIN_COUNT
    }

    /// Brings the counts to `now`.
    pub(super) fn decay_to(&mut self, now: Tick, half_life_ms: u64) {
        let elapsed = u64::from(now.saturating_sub(self.at)) * TICK_MS;
        if elapsed > 0 {
            let keep = decay(elapsed, half_life_ms);
            self.own *= keep;
            self.peer *= keep;
            self.at = now;
        }
    }
}

/// What is left of a count of 1 after `elapsed` ms.
pub(super) fn decay(elapsed_ms: u64, half_life_ms: u64) -> f32 {
    (-(elapsed_ms as f32) / half_life_ms.max(1) as f32).exp2()
}

/// A node's credits, by slot. One replica holds most nodes, so one is stored in place.
#[derive(Clone, Debug, Default)]
pub(super) struct Credits(SmallVec<[Credit; 1]>);

impl Credits {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Credit> {
        self.0.iter()
    }

    /// A copy for a node that peers have not been told about.
    pub(super) fn untold(&self) -> Self {
        Self(self.0.iter().map(|c| Credit { sent: 0, ..c.clone() }).collect())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes on the heap, beside what a node holds in place.
    pub(super) fn heap_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<Credit>() } else { 0 }
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Credit> {
        let at = self.0.binary_search_by_key(&slot, |c| c.slot).ok()?;
        self.0.get(at)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Credit> {
        let at = self.0.binary_search_by_key(&slot, |c| c.slot).ok()?;
        self.0.get_mut(at)
    }

    /// The credit of `slot`, made if there is none.
    pub(super) fn entry(&mut self, slot: Slot) -> &mut Credit {
        let at = match self.0.binary_search_by_key(&slot, |c| c.slot) {
            Ok(at) => at,
            Err(at) => {
                self.0.insert(at, Credit::new(slot));
                at
            }
        };
        &mut self.0[at]
    }

    /// Keeps the credits that `keep` wants. Gives how many went.
    pub(super) fn retain(&mut self, keep: impl FnMut(&mut Credit) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(keep);
        if self.0.spilled() && self.0.len() <= 1 {
            self.0.shrink_to_fit();
        }
        before - self.0.len()
    }
}
