//! What peers are told directly, and what they tell: each tick what is new in the ring and the load, between ticks
//! the load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::Millis;
use rand::seq::SliceRandom;
use tokio::time::Instant;

use super::Mesh;
use crate::Host;
use crate::codec::{Word, decode_word};
use crate::fleet::News;
use crate::peer::Peer;
use crate::session::{Session, take_value};

/// Longest time between two looks at load, of which peers are told when it changed. Routers that see the same old
/// load send all that is new to the same replica: at 16 routers, 25 requests a second each, that costs 3.4 % of the
/// hits at 250 ms, and nothing measurable at 100 ms.
const LOAD_EVERY: Duration = Duration::from_millis(100);

/// Bytes a second that a router spends on load, at most. A fleet of 32 with as many replicas stays below it; in
/// larger ones it is told less often.
const LOAD_BYTES_PER_SECOND: f64 = 320_000.0;

/// What a datagram costs beside the word: header and tag.
const DATAGRAM_BYTES: usize = 68;

/// Routers to gossip with again in one beat, at most, because their news skipped something: as many as chitchat
/// itself turns to.
const MAX_REVISITED: usize = 3;

/// The time between two looks at load where a tick is `every`: a whole part of it, rounded up. Rounded down, the
/// last of a tick's would come before its end.
pub(super) fn beat(every: Duration) -> Duration {
    let every = every.as_nanos();
    let beats = every.div_ceil(LOAD_EVERY.as_nanos()).max(1);
    Duration::from_nanos(u64::try_from(every.div_ceil(beats)).unwrap_or(u64::MAX))
}

impl<H: Host> Mesh<H> {
    /// Between two ticks: asks again for what is still missing, and tells peers if the load changed.
    pub(super) fn on_beat(&mut self, session: &Session) {
        self.revisit_all(session);
        if self.leaving.is_some() || !self.port.is_direct() || self.listeners().next().is_none() {
            return;
        }
        self.outbox.note_loads(self.host.loads());
        self.tell(session);
    }

    /// Tells every peer what there is to tell. Who does not hear of news gets them by gossip.
    pub(super) fn tell(&mut self, session: &Session) {
        let Some(direct) = self.port.direct() else { return };
        let now = Instant::now();
        let Some((word, load)) = self.outbox.take_word(now >= self.load_at) else { return };
        if load > 0 {
            let bytes = (load + DATAGRAM_BYTES) * session.others();
            self.load_at = now + Duration::from_secs_f64(bytes as f64 / LOAD_BYTES_PER_SECOND);
        }
        let mut peers: Vec<SocketAddr> = self.listeners().collect();
        // Should the socket take no more, it is not always the same peers that go without.
        peers.shuffle(&mut self.rng);
        peers.into_iter().for_each(|to| direct.send(to, &word));
    }

    /// Whom to tell.
    fn listeners(&self) -> impl Iterator<Item = SocketAddr> {
        let now = self.now();
        self.peers.values().filter(move |peer| peer.is_told(now)).map(Peer::addr)
    }

    /// Takes in what a peer sent past chitchat.
    pub(super) fn on_word(&mut self, message: &[u8], session: &Session) {
        match decode_word(message) {
            Ok(word) => self.hear(word, session),
            Err(error) => self.counters.reject_value(error),
        }
    }

    /// News count once, and of vitals the latest, in whatever order and on whatever way they come. Who is not met yet is
    /// not heard: without chitchat's vitals nobody is met.
    fn hear(&mut self, word: Word, session: &Session) {
        let Word { origin, head, vitals, news } = word;
        let Some(name) = self.fleet.name_of(origin).filter(|_| origin != self.id).cloned() else { return };
        let Some(generation) = self.fleet.router(&name).map(|router| router.generation) else { return };
        let now = self.now();
        if let Some(value) = news {
            let mut news = News { name: name.clone(), generation, ..News::default() };
            take_value(value, &mut news, &self.fleet, &self.counters);
            let incoming = self.fleet.hear(news, &mut self.log, now);
            self.hand_over(incoming);
        }
        if let Some(vitals) = vitals {
            let incoming = self.fleet.hear_direct(origin, vitals, head, now);
            self.hand_over(incoming);
        }
        self.revisit(&name, session);
    }

    /// Once a beat: gossips again with whose news are still missing.
    pub(super) fn revisit_all(&mut self, session: &Session) {
        self.revisited.clear();
        let lacking = self.fleet.routers().filter(|(_, router)| router.open() > 0);
        let mut lacking: Vec<Arc<str>> = lacking.map(|(name, _)| name.clone()).collect();
        // Not always the same when there are many.
        lacking.shuffle(&mut self.rng);
        lacking.iter().for_each(|name| self.revisit(name, session));
    }

    /// Gossips at once with a router whose news skipped something: a datagram was lost. At most once a beat with
    /// each, and with few in all, since each exchange brings what is new of others too; and only until somebody
    /// is asked for it.
    fn revisit(&mut self, name: &Arc<str>, session: &Session) {
        let now = self.now();
        let grace = self.config.repair_grace(true).as_millis() as Millis;
        let has_hole = self.fleet.router(name).is_some_and(|it| it.has_new_hole(now, grace));
        let Some(peer) = self.peers.get(name).filter(|peer| has_hole && peer.is_heard()) else { return };
        if self.revisited.len() < MAX_REVISITED && self.revisited.insert(name.clone()) {
            self.exchange_with(vec![peer.addr()], session);
        }
    }
}
