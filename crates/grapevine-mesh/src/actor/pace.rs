//! How much may go into gossip, and whether pointers work.

use std::time::Duration;

use grapevine_tree::Millis;

use super::Mesh;
use crate::Host;
use crate::outbox::Pace;
use crate::session::Session;

/// Messages above this, in bytes, mean that some router is behind: a datagram of this size is 42
/// fragments, of which one is lost more often than not at a loss of 2 %.
const BIG_MESSAGE: u64 = 48 * 1024;

/// Lag above this means that gossip is behind, in milliseconds.
const BIG_LAG_MS: u64 = 2_000;

/// Ticks for which strain lasts after its last sign.
const STRAINED_TICKS: u32 = 20;

/// Ticks after which peers have asked for what they are pointed to, and said so: more than two vectors.
const POINTED_TICKS: u32 = 48;

/// Pause after pointers turned out to be vain: the admin port cannot be reached from outside.
const VAIN_PAUSE: Duration = Duration::from_secs(60);

/// Signs of strain.
#[derive(Debug)]
pub(super) struct Strain {
    lasts_ms: Millis,
    until: Millis,
    inline_until: Millis,
}

impl Strain {
    pub(super) fn new(interval: Duration) -> Self {
        let lasts_ms = (interval * STRAINED_TICKS).as_millis() as Millis;
        Self { lasts_ms, until: 0, inline_until: 0 }
    }

    pub(super) fn note_lag(&mut self, lag_ms: u64, now: Millis) {
        if lag_ms > BIG_LAG_MS {
            self.until = now.saturating_add(self.lasts_ms);
        }
    }

    fn note_message(&mut self, bytes: u64, now: Millis) {
        if bytes > BIG_MESSAGE {
            self.until = now.saturating_add(self.lasts_ms);
        }
    }

    pub(super) fn is_strained(&self, now: Millis) -> bool {
        now < self.until
    }

    /// Whether peers may be pointed to what they then ask for.
    pub(super) fn may_point(&self, now: Millis) -> bool {
        now >= self.inline_until
    }
}

impl<H: Host> Mesh<H> {
    pub(super) fn pace(&self, session: &Session) -> Pace {
        let now = self.now();
        let pointers = session.tells_url() && self.strain.may_point(now);
        let direct = self.port.is_direct();
        Pace { others: session.others(), pointers, strained: self.strain.is_strained(now), direct }
    }

    /// Once a tick.
    pub(super) fn look_at_strain(&mut self, now: Millis) {
        self.strain.note_message(self.counters.take_recent_message(), now);
        if self.pointers_are_vain(now) {
            self.strain.inline_until = now.saturating_add(VAIN_PAUSE.as_millis() as Millis);
        }
    }

    /// Whether something was pointed to a while ago and no peer that says how far it has come got it: of those that had
    /// to ask for it.
    fn pointers_are_vain(&self, now: Millis) -> bool {
        let age = (self.config.interval * POINTED_TICKS).as_millis() as Millis;
        let Some((pointed, told)) = self.outbox.pointed_before(now.saturating_sub(age)) else { return false };
        let said = self.live_peers().filter_map(|(id, _)| self.vectors.settled(id, self.id, self.generation));
        let behind: Vec<bool> = said.map(|settled| settled < pointed).collect();
        // Those who were told the segment itself had nothing to ask for.
        if told && self.port.is_direct() {
            return behind.contains(&true);
        }
        !behind.is_empty() && !behind.contains(&false)
    }
}
