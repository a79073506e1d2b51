//! What is in flight on a replica: this router's own requests at once, its peers' as gossip says.

use std::sync::Arc;

use grapevine_tree::Millis;

use crate::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a peer said of one replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLoad {
    /// Its requests in flight there.
    pub inflight: u32,
    /// Tokens it has dispatched there whose first byte has not come back.
    pub queued_tokens: u32,
}

/// The share of a peer's load that still counts at `age_ms`: all of it to 250 ms, a quarter to
/// 1 s, nothing after 3 s.
///
/// Source: replays of real traces at 8 routers. Load up to 0.25 s old helps; older load hurts more
/// than it helps unless it is discounted.
pub fn peer_share(age_ms: Millis) -> f32 {
    match age_ms {
        0..=300 => 1.0,
        301..=1_000 => 0.25,
        1_001..=3_000 => 0.1,
        _ => 0.0,
    }
}

/// Half-life of a replica's intake of cold tokens. Ten minutes: longer than it takes a cache to turn
/// over, so that what is compared is how full caches are, and short noise of one router's share of
/// the traffic is averaged out. (Replay: with gossip cut at 8 routers, 60 s costs 11 points.)
pub const INTAKE_HALF_LIFE_MS: u64 = 600_000;

/// Load of one replica. Shared by request actors, which count their own requests through
/// [`ReplicaLoad::begin`], and the replica actor, which writes what peers report.
#[derive(Debug, Default)]
pub struct ReplicaLoad {
    inflight: AtomicU32,
    queued_tokens: AtomicU64,
    peer_inflight_milli: AtomicU64,
    peer_queued_tokens: AtomicU64,
    /// In 1/1024 tokens, so that a slow decay does not round to none.
    intake: AtomicU64,
}

const INTAKE_UNITS: u64 = 1024;

/// One consistent-enough reading of a [`ReplicaLoad`], peers included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadView {
    /// Requests in flight, peers' discounted by age.
    pub inflight: f32,
    /// Prefill tokens queued, peers' discounted by age.
    pub queued_tokens: f32,
    /// Newly prefilled tokens sent there lately by the whole fleet, decayed.
    pub intake_tokens: f32,
}

impl ReplicaLoad {
    /// Counts a request from now until the guard is dropped. `uncached_tokens` queue until
    /// [`LoadGuard::first_byte`].
    pub fn begin(self: &Arc<Self>, uncached_tokens: u32) -> LoadGuard {
        self.inflight.fetch_add(1, Relaxed);
        self.queued_tokens.fetch_add(u64::from(uncached_tokens), Relaxed);
        self.intake.fetch_add(u64::from(uncached_tokens) * INTAKE_UNITS, Relaxed);
        LoadGuard { load: Arc::clone(self), queued: uncached_tokens }
    }

    /// This router's own requests in flight.
    pub fn own_inflight(&self) -> u32 {
        self.inflight.load(Relaxed)
    }

    /// This router's own queued prefill tokens.
    pub fn own_queued_tokens(&self) -> u64 {
        self.queued_tokens.load(Relaxed)
    }

    /// Reads everything.
    pub fn view(&self) -> LoadView {
        LoadView {
            inflight: self.inflight.load(Relaxed) as f32
                + self.peer_inflight_milli.load(Relaxed) as f32 / 1_000.0,
            queued_tokens: (self.queued_tokens.load(Relaxed) + self.peer_queued_tokens.load(Relaxed)) as f32,
            intake_tokens: self.intake.load(Relaxed) as f32 / INTAKE_UNITS as f32,
        }
    }

    /// Replaces what peers are believed to have in flight: each report with its age.
    pub fn set_peers(&self, reports: impl Iterator<Item = (PeerLoad, Millis)>) {
        let (mut inflight, mut queued) = (0.0f32, 0.0f32);
        for (load, age_ms) in reports {
            let share = peer_share(age_ms);
            inflight += share * load.inflight as f32;
            queued += share * load.queued_tokens as f32;
        }
        self.peer_inflight_milli.store((inflight * 1_000.0) as u64, Relaxed);
        self.peer_queued_tokens.store(queued as u64, Relaxed);
    }

    /// Adds tokens that peers newly sent there.
    pub fn add_peer_intake(&self, tokens: u64) {
        self.intake.fetch_add(tokens.saturating_mul(INTAKE_UNITS), Relaxed);
    }

    /// Decays the intake by `elapsed_ms` of the half-life. Call it a few times a second.
    pub fn decay_intake(&self, elapsed_ms: Millis, half_life_ms: u64) {
        let keep = (-(elapsed_ms as f64) / half_life_ms.max(1) as f64).exp2();
        // Own picks may add meanwhile: take away what decayed instead of storing what is left.
        let gone = (self.intake.load(Relaxed) as f64 * (1.0 - keep)).round() as u64;
        self.intake.fetch_sub(gone, Relaxed);
    }
}

/// One request in flight on a replica. Hold it as long as the response body; dropping it, however
/// that happens, takes the request off the count.
#[derive(Debug)]
pub struct LoadGuard {
    load: Arc<ReplicaLoad>,
    queued: u32,
}

impl LoadGuard {
    /// The first byte of the answer is here: nothing of this request is queued any more.
    pub fn first_byte(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        self.load.queued_tokens.fetch_sub(u64::from(queued), Relaxed);
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.first_byte();
        self.load.inflight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_counts_until_it_is_dropped() {
        let load = Arc::new(ReplicaLoad::default());
        let mut guard = load.begin(100);
        assert_eq!((load.own_inflight(), load.own_queued_tokens()), (1, 100));
        guard.first_byte();
        guard.first_byte();
        assert_eq!((load.own_inflight(), load.own_queued_tokens()), (1, 0));
        drop(guard);
        drop(load.begin(7));
        assert_eq!((load.own_inflight(), load.own_queued_tokens()), (0, 0));
        assert_eq!(load.view().intake_tokens, 107.0);
    }

    #[test]
    fn peers_count_less_the_older_they_are() {
        let load = ReplicaLoad::default();
        let report = PeerLoad { inflight: 4, queued_tokens: 1_000 };
        load.set_peers([(report, 100), (report, 900), (report, 60_000)].into_iter());
        let view = load.view();
        assert_eq!((view.inflight, view.queued_tokens), (5.0, 1_250.0));
        load.set_peers(std::iter::empty());
        assert_eq!(load.view(), LoadView::default());
    }

    #[test]
    fn intake_halves_in_a_half_life() {
        let load = ReplicaLoad::default();
        load.add_peer_intake(1_000);
        for _ in 0..4 {
            load.decay_intake(250, 1_000);
        }
        let left = load.view().intake_tokens;
        assert!((498.0..=502.0).contains(&left), "{left}");
    }
}
