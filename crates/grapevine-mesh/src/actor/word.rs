//! What peers are told directly, and what they tell: news of the ring each tick, load in words of its own.

use std::net::SocketAddr;
use std::time::Duration;

use grapevine_tree::RouterId;
use rand::seq::SliceRandom;
use tokio::time::Instant;

use super::Mesh;
use crate::Host;
use crate::codec::{Vitals, decode_direct, decode_news, is_news};
use crate::fleet::{News, Router};
use crate::peer::Peer;
use crate::session::{Session, take_value};

/// How often peers are told of load that changed. Routers that see the same old load send all that is new to the
/// same replica: at 16 routers, 25 requests a second each, that costs 3.4 % of the hits at 250 ms, and
/// nothing measurable at 100 ms.
pub(super) const WORD_EVERY: Duration = Duration::from_millis(100);

/// Bytes a second that a router spends on it, at most. A fleet of 32 with as many replicas stays below it; in
/// larger ones words are rarer.
const BYTES_PER_SECOND: f64 = 320_000.0;

/// What a datagram costs beside the word: header and tag.
const DATAGRAM_BYTES: usize = 68;

/// Routers to gossip with again in one tick, at most, because their news skipped something: as many as chitchat
/// itself turns to.
const MAX_REVISITED: usize = 3;

impl<H: Host> Mesh<H> {
    /// Between two collects: tells peers if the load changed.
    pub(super) fn on_word_tick(&mut self, session: &Session) {
        if self.leaving.is_some() || !self.port.is_direct() || self.listeners().next().is_none() {
            return;
        }
        self.outbox.note_loads(self.host.loads());
        self.tell_peers(session);
    }

    /// Tells every peer what there is to tell.
    pub(super) fn tell_peers(&mut self, session: &Session) {
        let now = Instant::now();
        if now < self.word_at {
            return;
        }
        let Some(word) = self.outbox.take_direct() else { return };
        let Some(direct) = self.port.direct() else { return };
        let bytes = (word.len() + DATAGRAM_BYTES) * session.others();
        self.word_at = now + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        self.listeners().for_each(|to| direct.send(to, &word));
    }

    /// Whom to tell.
    fn listeners(&self) -> impl Iterator<Item = SocketAddr> {
        let now = self.now();
        self.peers.values().filter(move |peer| peer.is_told(now)).map(Peer::addr)
    }

    /// Tells every peer what this tick put into the ring. Who does not get it gets it by gossip.
    pub(super) fn tell_news(&mut self) {
        let Some(direct) = self.port.direct() else { return };
        let Some(news) = self.outbox.take_news() else { return };
        let mut peers: Vec<SocketAddr> = self.listeners().collect();
        // Should the socket take no more, it is not always the same peers that go without.
        peers.shuffle(&mut self.rng);
        peers.into_iter().for_each(|to| direct.send(to, &news));
    }

    /// Takes in what a peer sent past chitchat.
    pub(super) fn on_direct(&mut self, message: &[u8], session: &Session) {
        let done = match is_news(message) {
            true => decode_news(message).map(|(origin, value)| self.on_news(origin, value, session)),
            false => decode_direct(message).map(|(origin, vitals)| self.on_word(origin, vitals)),
        };
        if let Err(error) = done {
            self.counters.reject_value(error);
        }
    }

    /// A word is whole: of two the later one counts, in whatever order they come.
    fn on_word(&mut self, origin: RouterId, vitals: Vitals) {
        if origin != self.id {
            let incoming = self.fleet.hear_direct(origin, vitals);
            self.hand_over(incoming);
        }
    }

    /// News count once, in whatever order and on whatever way they come. Who is not met yet is not heard: without
    /// vitals nobody is met.
    fn on_news(&mut self, origin: RouterId, value: Vec<u8>, session: &Session) {
        let Some(name) = self.fleet.name_of(origin).filter(|_| origin != self.id).cloned() else { return };
        let Some(generation) = self.fleet.router(&name).map(|router| router.generation) else { return };
        let now = self.now();
        let mut news = News { name, generation, ..News::default() };
        take_value(value, &mut news, &self.fleet, &self.counters);
        let name = news.name.clone();
        let incoming = self.fleet.hear(news, &mut self.log, now);
        self.hand_over(incoming);
        self.revisit(origin, &name, session);
    }

    /// Gossips at once with a router whose news skipped something: a datagram was lost. At most once a tick with
    /// each, and with few in all, since each exchange brings what is new of others too.
    fn revisit(&mut self, origin: RouterId, name: &str, session: &Session) {
        let has_hole = self.fleet.router(name).is_some_and(Router::has_hole);
        let Some(peer) = self.peers.get(name).filter(|peer| has_hole && peer.is_heard()) else { return };
        if self.revisited.len() < MAX_REVISITED && self.revisited.insert(origin) {
            session.dial(vec![peer.addr()]);
        }
    }
}
