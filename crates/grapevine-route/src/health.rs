//! Should this replica get requests? Passive signals at once, probes in the background.
//!
//! ```text
//! request actor --- connect_failed / server_error / completed -> ejection (atomics, at once)
//! replica actor --- probed ------------------------------------> verdict  (3 down, 1 up)
//! ```
//!
//! An ejection is short and grows; a verdict stands until a probe or real traffic says otherwise.
//! Neither ever removes the last replica: [`Standing`] is a rank, and a pick takes the best rank
//! that anybody has.

use grapevine_tree::Millis;

use crate::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// First ejection after a connect error, ms: about what a listener needs to come back.
const EJECT_FIRST_MS: u64 = 1_000;

/// Longest ejection, ms. Real traffic is the best probe, so not longer.
const EJECT_MAX_MS: u64 = 30_000;

/// 5xx answers in a row, without any success between, that eject. A client's bad request can be a
/// 500 (llama.cpp answers an image so), hence not 1; a draining vLLM answers 500 in milliseconds and
/// would win every pick by load, hence not many.
const SERVER_ERRORS_IN_A_ROW: u32 = 3;

/// Failed probes in a row until a replica counts as down.
pub const PROBES_TO_FALL: u32 = 3;

/// How good a target a replica is; lower is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing speaks against it.
    Good,
    /// Ejected for a moment by what requests met.
    Suspect,
    /// Probes do not reach it. A try costs milliseconds and may prove them wrong.
    Unreachable,
    /// It says itself that it is not ready (loading, dead engine): a request would wait or fail.
    NotReady,
}

impl Standing {
    /// The name in status and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "up",
            Self::Suspect => "suspect",
            Self::Unreachable => "unreachable",
            Self::NotReady => "not_ready",
        }
    }
}

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// It answers.
    Alive,
    /// It answers that it is not ready.
    NotReady,
    /// Nobody listens: the process is gone.
    Refused,
    /// No answer in time, or no connection for another reason.
    Silent,
    /// This router had no socket to ask with.
    NotAsked,
}

/// Health of one replica.
#[derive(Debug, Default)]
pub struct Health {
    verdict: AtomicU8,
    failed_probes: AtomicU32,
    ejected_until: AtomicU64,
    ejections: AtomicU32,
    server_errors: AtomicU32,
    last_served: AtomicU64,
    refused: AtomicBool,
    restarted: AtomicBool,
    /// When it came up after it had been down, and one; 0: it was never seen down.
    up_since: AtomicU64,
}

/// Share of the load that a replica begins with when it comes up: one that is used at all warms up.
const FIRST_SHARE: f32 = 0.1;

const VERDICT_UP: u8 = 0;
const VERDICT_UNREACHABLE: u8 = 1;
const VERDICT_NOT_READY: u8 = 2;

impl Health {
    /// How good a target it is at `now`. Unknown counts as good: the first request after the start
    /// must not wait for a probe.
    pub fn standing(&self, now: Millis) -> Standing {
        match self.verdict.load(Relaxed) {
            VERDICT_NOT_READY => Standing::NotReady,
            VERDICT_UNREACHABLE => Standing::Unreachable,
            _ if now < self.ejected_until.load(Relaxed) => Standing::Suspect,
            _ => Standing::Good,
        }
    }

    /// When it last answered a request, ms; `None` if never.
    pub fn last_served(&self) -> Option<Millis> {
        self.last_served.load(Relaxed).checked_sub(1)
    }

    /// Whether its port was seen closed and it has not been seen alive since.
    pub fn is_refused(&self) -> bool {
        self.refused.load(Relaxed)
    }

    /// A request is being answered with anything but a 5xx: it lives, whatever probes say. Not more than
    /// that, since it may still break the answer off: see [`Self::completed`].
    pub fn served(&self, now: Millis) {
        self.last_served.store(now + 1, Relaxed);
        if self.verdict.load(Relaxed) != VERDICT_UP {
            self.verdict.store(VERDICT_UP, Relaxed);
            self.up_since.store(now + 1, Relaxed);
        }
        self.came_back(now);
    }

    /// An answer came to its end and was no failure: what failed before was not the beginning of a row.
    pub fn completed(&self) {
        if self.server_errors.load(Relaxed) != 0 {
            self.server_errors.store(0, Relaxed);
        }
        if self.ejections.load(Relaxed) != 0 {
            self.ejections.store(0, Relaxed);
            // Who is ejected after this counts from 0: see `eject`.
            self.ejected_until.swap(0, Release);
        }
    }

    /// The share of its load that it should carry at `now`, growing to 1 in `slow_start_ms` after it came up.
    pub fn warmth(&self, now: Millis, slow_start_ms: Millis) -> f32 {
        let Some(since) = self.up_since.load(Relaxed).checked_sub(1) else { return 1.0 };
        let up_for = now.saturating_sub(since);
        if up_for >= slow_start_ms {
            return 1.0;
        }
        FIRST_SHARE + (1.0 - FIRST_SHARE) * up_for as f32 / slow_start_ms as f32
    }

    /// No connection; `refused` when nobody listens there. `jitter` in 0..1.
    pub fn connect_failed(&self, now: Millis, refused: bool, jitter: f32) {
        if refused {
            self.refused.store(true, Relaxed);
        }
        self.eject(now, jitter);
    }

    /// A 5xx answer that is no refusal for being busy.
    pub fn server_error(&self, now: Millis, jitter: f32) {
        let row = self.server_errors.fetch_add(1, Relaxed) + 1;
        if row >= SERVER_ERRORS_IN_A_ROW {
            self.eject(now, jitter);
        }
    }

    /// Out of the picks for a while that doubles with each ejection in a row. The failures of a
    /// burst that was under way count as one.
    pub fn eject(&self, now: Millis, jitter: f32) {
        let until = self.ejected_until.load(Relaxed);
        if now < until {
            return;
        }
        let doublings = self.ejections.load(Relaxed).min(16);
        let span = (EJECT_FIRST_MS << doublings).min(EJECT_MAX_MS) as f32 * (0.75 + 0.5 * jitter);
        let next = now + (span as u64).clamp(1, EJECT_MAX_MS);
        // Acquire: an ejection on top of a success that has ended one must not lose its count to that success,
        // since the next success ends only what is counted.
        if self.ejected_until.compare_exchange(until, next, Acquire, Relaxed).is_ok() {
            self.ejections.fetch_add(1, Relaxed);
        }
    }

    /// Takes in a probe's result. Returns whether the verdict changed.
    pub fn probed(&self, probe: Probe, served_meanwhile: bool, now: Millis) -> bool {
        let verdict = match probe {
            Probe::Alive => {
                self.failed_probes.store(0, Relaxed);
                self.came_back(now);
                let changed = self.verdict.swap(VERDICT_UP, Relaxed) != VERDICT_UP;
                if changed {
                    self.up_since.store(now + 1, Relaxed);
                }
                return changed;
            }
            // A busy engine may not answer its probe while it serves; a closed port is a fact.
            Probe::Silent | Probe::NotReady if served_meanwhile => return false,
            Probe::NotAsked => return false,
            Probe::Silent => VERDICT_UNREACHABLE,
            Probe::Refused => {
                self.refused.store(true, Relaxed);
                VERDICT_UNREACHABLE
            }
            Probe::NotReady => VERDICT_NOT_READY,
        };
        let failed = self.failed_probes.fetch_add(1, Relaxed) + 1;
        failed >= PROBES_TO_FALL && self.verdict.swap(verdict, Relaxed) != verdict
    }

    /// Whether it was seen to come back after its port had been closed, so with an empty cache.
    /// Clears the mark.
    pub fn take_restarted(&self) -> bool {
        self.restarted.load(Relaxed) && self.restarted.swap(false, Relaxed)
    }

    fn came_back(&self, now: Millis) {
        if self.refused.load(Relaxed) && self.refused.swap(false, Relaxed) {
            self.restarted.store(true, Relaxed);
            self.up_since.store(now + 1, Relaxed);
        }
    }
}

/// Counts the restarts of one replica, each once in the fleet.
#[derive(Debug, Default)]
pub struct Restarts {
    /// The cache's number when the port was first seen closed: if a peer raised it since, the restart is
    /// already counted.
    epoch_when_refused: Option<u32>,
}

impl Restarts {
    /// Takes note of a closed port; `epoch` is its cache's number now. Before a peer's word raises it, too.
    pub fn note(&mut self, health: &Health, epoch: u32) {
        if health.is_refused() {
            self.epoch_when_refused.get_or_insert(epoch);
        }
    }

    /// Looks at its health. Whether `epoch` must grow.
    pub fn look(&mut self, health: &Health, epoch: u32) -> bool {
        self.note(health, epoch);
        health.take_restarted() && self.epoch_when_refused.take().is_none_or(|before| before >= epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ejections_double_and_success_ends_them() {
        let health = Health::default();
        health.connect_failed(0, false, 0.5);
        health.connect_failed(10, false, 0.5);
        assert_eq!(health.standing(999), Standing::Suspect);
        assert_eq!(health.standing(1_000), Standing::Good, "the second failure was of the same burst");
        health.connect_failed(1_000, false, 0.5);
        assert_eq!(health.standing(2_999), Standing::Suspect);
        assert_eq!(health.standing(3_000), Standing::Good);
        let mut now = 3_000;
        for _ in 0..20 {
            health.connect_failed(now, false, 1.0);
            now += EJECT_MAX_MS;
            assert_eq!(health.standing(now), Standing::Good, "never longer than the cap");
        }
        health.completed();
        health.connect_failed(now, false, 0.5);
        assert_eq!(health.standing(now + 1_000), Standing::Good, "starts small again");
    }

    #[test]
    fn server_errors_eject_only_in_a_row() {
        let health = Health::default();
        for _ in 0..10 {
            health.server_error(0, 0.5);
            health.server_error(0, 0.5);
            health.completed();
        }
        assert_eq!(health.standing(0), Standing::Good);
        for _ in 0..SERVER_ERRORS_IN_A_ROW {
            health.server_error(0, 0.5);
        }
        assert_eq!(health.standing(0), Standing::Suspect);
    }

    #[test]
    fn who_begins_every_answer_and_breaks_it_off_is_ejected() {
        let health = Health::default();
        for _ in 0..SERVER_ERRORS_IN_A_ROW {
            health.served(0);
            health.server_error(0, 0.5);
        }
        health.served(1);
        assert_eq!(health.standing(1), Standing::Suspect);
    }

    #[test]
    fn probes_fall_after_three_and_rise_after_one() {
        let health = Health::default();
        assert!(!health.probed(Probe::NotReady, false, 0));
        assert!(!health.probed(Probe::NotReady, false, 0));
        assert_eq!(health.standing(0), Standing::Good);
        assert!(health.probed(Probe::NotReady, false, 0));
        assert_eq!(health.standing(0), Standing::NotReady);
        assert!(health.probed(Probe::Alive, false, 0));
        assert_eq!(health.standing(0), Standing::Good);
    }

    #[test]
    fn a43_a_slow_probe_does_not_eject_a_replica_that_serves() {
        let health = Health::default();
        for _ in 0..10 {
            assert!(!health.probed(Probe::Silent, true, 0));
        }
        assert_eq!(health.standing(0), Standing::Good);
    }

    #[test]
    fn a87_only_a_closed_port_that_opens_again_is_a_restart() {
        let health = Health::default();
        health.connect_failed(0, false, 0.5);
        health.served(1);
        assert!(!health.take_restarted(), "a lost packet is no restart");
        health.connect_failed(2, true, 0.5);
        assert!(!health.take_restarted());
        health.probed(Probe::Alive, false, 0);
        assert!(health.take_restarted());
        assert!(!health.take_restarted(), "once");
    }
}
