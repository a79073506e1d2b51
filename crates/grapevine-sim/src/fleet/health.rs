//! Should a router send anything to this replica? The serving router's rules in short: a refused
//! connection ejects for a while that doubles, three refused probes are a verdict, whoever comes back
//! after its port was closed has an empty cache.

use grapevine_tree::Millis;

/// First ejection, ms.
const EJECT_FIRST_MS: Millis = 1_000;

/// Longest ejection, ms.
const EJECT_MAX_MS: Millis = 30_000;

/// Refused probes in a row until a replica counts as down.
const PROBES_TO_FALL: u32 = 3;

/// Between two probes of a replica that is well, ms.
const PROBE_MS: Millis = 5_000;

/// Between two probes of one that is not, ms.
const REPROBE_MS: Millis = 1_000;

/// After this long a dead replica is known to be: three probes, the first up to 5 s away.
pub(super) const VERDICT_MS: Millis = PROBE_MS + PROBES_TO_FALL as Millis * REPROBE_MS + 500;

/// What one router thinks of one replica.
#[derive(Debug, Default)]
pub(super) struct Health {
    down: bool,
    failed_probes: u32,
    ejected_until: Millis,
    ejections: u32,
    refused: bool,
    next_probe: Millis,
    epoch_when_refused: Option<u32>,
    restarted: bool,
}

impl Health {
    /// Whether to send there while another is good.
    pub(super) fn is_good(&self, now: Millis) -> bool {
        !self.down && now >= self.ejected_until
    }

    /// Nobody listens there; `epoch` is its cache's as this router knows it.
    pub(super) fn refused(&mut self, epoch: u32, now: Millis) {
        self.note_closed(epoch);
        if now >= self.ejected_until {
            let span = EJECT_FIRST_MS << self.ejections.min(16);
            self.ejected_until = now + span.min(EJECT_MAX_MS);
            self.ejections += 1;
            self.next_probe = self.next_probe.min(now + REPROBE_MS);
        }
    }

    /// A request was answered.
    pub(super) fn served(&mut self) {
        (self.down, self.failed_probes, self.ejections, self.ejected_until) = (false, 0, 0, 0);
        self.restarted |= std::mem::take(&mut self.refused);
    }

    /// Whether it is to be probed now.
    pub(super) fn is_due(&mut self, now: Millis) -> bool {
        if now < self.next_probe {
            return false;
        }
        let well = !self.down && !self.refused;
        self.next_probe = now + if well { PROBE_MS } else { REPROBE_MS };
        true
    }

    /// What a probe found.
    pub(super) fn probed(&mut self, alive: bool, epoch: u32, now: Millis) {
        if alive {
            (self.down, self.failed_probes) = (false, 0);
            self.restarted |= std::mem::take(&mut self.refused);
            return;
        }
        self.note_closed(epoch);
        self.next_probe = self.next_probe.min(now + REPROBE_MS);
        self.failed_probes += 1;
        self.down |= self.failed_probes >= PROBES_TO_FALL;
    }

    /// Whether it came back with an empty cache and nobody counted that yet: then its epoch grows.
    pub(super) fn take_restart(&mut self, epoch: u32) -> bool {
        if !std::mem::take(&mut self.restarted) {
            return false;
        }
        self.epoch_when_refused.take().is_none_or(|before| before >= epoch)
    }

    fn note_closed(&mut self, epoch: u32) {
        self.refused = true;
        self.epoch_when_refused.get_or_insert(epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_is_counted_once_in_the_fleet() {
        let mut health = Health::default();
        health.refused(0, 10);
        assert!(!health.is_good(10) && health.is_good(1_010));
        health.served();
        assert!(health.take_restart(0), "nobody counted it");
        assert!(!health.take_restart(0));
        health.refused(1, 2_000);
        health.served();
        assert!(!health.take_restart(2), "a peer counted it");
    }

    #[test]
    fn three_refused_probes_are_a_verdict_and_one_answer_ends_it() {
        let mut health = Health::default();
        let mut now = 0;
        while health.is_good(now) {
            if health.is_due(now) {
                health.probed(false, 0, now);
            }
            now += 100;
        }
        assert!(now <= VERDICT_MS, "{now}");
        health.probed(true, 0, now);
        assert!(health.is_good(now) && health.take_restart(0));
    }
}
