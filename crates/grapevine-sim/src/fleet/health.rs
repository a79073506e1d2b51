//! What a router thinks of a replica: the serving router's rules, and when it looks.

use grapevine_route::health::{Health, PROBES_TO_FALL, Probe, Restarts, Standing};
use grapevine_tree::Millis;

/// Between two probes of a replica that is well, ms.
const PROBE_MS: Millis = 5_000;

/// Between two probes of one that is not, ms.
const REPROBE_MS: Millis = 1_000;

/// After this long a dead replica is known to be: three probes, the first up to 5 s away.
pub(super) const VERDICT_MS: Millis = PROBE_MS + PROBES_TO_FALL as Millis * REPROBE_MS + 500;

/// Ejections differ by chance only where routers must not agree; here they are as long as they are meant.
const JITTER: f32 = 0.5;

/// What one router thinks of one replica.
#[derive(Debug, Default)]
pub(super) struct Watch {
    health: Health,
    restarts: Restarts,
    next_probe: Millis,
}

impl Watch {
    /// Whether to send there while another is good.
    pub(super) fn is_good(&self, now: Millis) -> bool {
        self.health.standing(now) == Standing::Good
    }

    /// Nobody listens there.
    pub(super) fn refused(&mut self, now: Millis) {
        self.health.connect_failed(now, true, JITTER);
        self.next_probe = self.next_probe.min(now + REPROBE_MS);
    }

    /// A request was answered.
    pub(super) fn served(&self, now: Millis) {
        self.health.served(now);
        // Simulated engines break nothing off.
        self.health.completed();
    }

    /// Whether it is to be probed now.
    pub(super) fn is_due(&mut self, now: Millis) -> bool {
        if now < self.next_probe {
            return false;
        }
        let well = self.is_good(now) && !self.health.is_refused();
        self.next_probe = now + if well { PROBE_MS } else { REPROBE_MS };
        true
    }

    /// What a probe found.
    pub(super) fn probed(&mut self, alive: bool, now: Millis) {
        let probe = if alive { Probe::Alive } else { Probe::Refused };
        self.health.probed(probe, false, now);
        if !alive {
            self.next_probe = self.next_probe.min(now + REPROBE_MS);
        }
    }

    /// A peer may be about to raise its epoch.
    pub(super) fn note(&mut self, epoch: u32) {
        self.restarts.note(&self.health, epoch);
    }

    /// Whether it came back with an empty cache and nobody counted that yet: then its epoch grows.
    pub(super) fn take_restart(&mut self, epoch: u32) -> bool {
        self.restarts.look(&self.health, epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_counted_once_in_the_fleet() {
        let mut watch = Watch::default();
        watch.refused(10);
        assert!(!watch.take_restart(0) && !watch.is_good(10) && watch.is_good(1_010));
        watch.served(1_020);
        assert!(watch.take_restart(0), "nobody counted it");
        assert!(!watch.take_restart(0));
        watch.refused(2_000);
        assert!(!watch.take_restart(1));
        watch.served(2_100);
        assert!(!watch.take_restart(2), "a peer counted it");
    }

    #[test]
    fn three_refused_probes_are_a_verdict_and_one_answer_ends_it() {
        let mut watch = Watch::default();
        let mut now = 0;
        while watch.is_good(now) {
            if watch.is_due(now) {
                watch.probed(false, now);
            }
            now += 100;
        }
        assert!(now <= VERDICT_MS, "{now}");
        watch.probed(true, now);
        assert!(watch.is_good(now) && watch.take_restart(0));
    }
}
