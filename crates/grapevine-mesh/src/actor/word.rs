//! What peers are told directly, and what they tell.

use std::time::Duration;

use tokio::time::Instant;

use super::Mesh;
use crate::Host;
use crate::codec::decode_direct;
use crate::session::Session;

/// How often peers are told of load that changed. Routers that see the same old load send all that is new to the
/// same replica: at 16 routers, 25 requests a second each, that costs 3.4 % of the hits at 250 ms, and
/// nothing measurable at 100 ms.
pub(super) const WORD_EVERY: Duration = Duration::from_millis(100);

/// Bytes a second that a router spends on it, at most. A fleet of 32 with as many replicas stays below it; in
/// larger ones words are rarer.
const BYTES_PER_SECOND: f64 = 320_000.0;

/// What a datagram costs beside the word: header and tag.
const DATAGRAM_BYTES: usize = 68;

impl<H: Host> Mesh<H> {
    /// Between two collects: tells peers if the load changed.
    pub(super) fn on_word_tick(&mut self, session: &Session) {
        if self.leaving.is_some() || session.is_alone() || self.port.direct().is_none() {
            return;
        }
        self.outbox.note_loads(self.host.loads());
        self.tell_peers(session);
    }

    /// Tells every live peer what there is to tell.
    pub(super) fn tell_peers(&mut self, session: &Session) {
        let now = Instant::now();
        if now < self.word_at {
            return;
        }
        let Some(word) = self.outbox.take_direct() else { return };
        let Some(direct) = self.port.direct() else { return };
        let bytes = (word.len() + DATAGRAM_BYTES) * session.others();
        self.word_at = now + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        let own = session.advertised();
        session.live_addresses().iter().filter(|&&addr| addr != own).for_each(|&to| direct.send(to, &word));
    }

    /// Takes in what a peer told. A word is whole: of two the later one counts, in whatever order they come.
    pub(super) fn on_word(&mut self, word: &[u8]) {
        match decode_direct(word) {
            Ok((origin, _)) if origin == self.id => {}
            Ok((origin, vitals)) => {
                let incoming = self.fleet.hear_direct(origin, vitals);
                self.hand_over(incoming);
            }
            Err(error) => self.counters.reject_value(error),
        }
    }
}
