//! Sealed datagrams: what a router sends can be read, forged or replayed by nobody without the secret.
//!
//! **Keys.** Each time the socket opens it draws a 16-byte salt; its key is HKDF-SHA256(secret, salt,
//! `grapevine gossip v1` + cluster id), so a counter from 0 is a safe nonce for AES-256-GCM, and the
//! same secret in another fleet is another key. A key id of 4 bytes, derived from the secret, tells
//! foreign datagrams apart before any decryption. While a secret is being replaced a router holds two:
//! it opens both, and seals with the one that the receiver seals with, so that the routers can be
//! restarted with the new secret one after the other.
//!
//! **Freshness without clocks.** A receiver draws an 8-byte tag, and takes data only if it is sealed
//! for that tag with a counter not used before. What was recorded before the receiver restarted, or
//! on its way to another router, therefore carries a wrong tag. A sender learns the tag by asking:
//!
//! ```text
//! A  --- ask (counter 7, my tag is a) ------------------> B
//! A  <-- tell (to tag a, my tag is b, answers 7) -------- B      B keeps nothing
//! A  --- data (to tag b, my tag is a, counter 8) -------> B      B can answer at once
//! ```
//!
//! Data for a wrong tag is answered like an ask, so a restarted peer is found within a round trip.
//! An answer is no longer than what it answers, and answers are rationed.
//!
//! **Not prevented**: dropping and delaying by whoever is on the path (a withheld datagram is still
//! good while the receiver lives and its counter is within the window); watching sizes and times;
//! reading recorded traffic once the secret is known; anything by who holds the secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use ring::aead::LessSafeKey;
use tokio::time::Instant;

use super::frame::{self, Place, Reassembly};
use super::header::{Kind, SEALED_BYTES, Salt, SealedHeader};
use super::replay::ReplayWindow;
use super::{Outcome, Reject};
use crate::crypt::{self, KEY_ID_BYTES, TAG_BYTES, fill_random};

/// Longest datagram, in bytes: with IP and UDP headers below the smallest MTU of IPv6, 1,280.
pub(super) const MAX_DATAGRAM: usize = 1_200;

/// Bytes of a message in one datagram.
pub(super) const PIECE_BYTES: usize = MAX_DATAGRAM - SEALED_BYTES - TAG_BYTES;

/// Body of an ask (zeros) and of a tell (the counter that it answers): neither is longer.
const COUNTER_BYTES: usize = 8;

/// Length of an ask and of a tell.
const ASK_BYTES: usize = SEALED_BYTES + COUNTER_BYTES + TAG_BYTES;

/// Boots of senders whose counters are remembered. When there are more, the one silent longest goes
/// and this receiver takes a new tag, so that nothing it forgot can be replayed.
const MAX_SENDERS: usize = 1_024;

/// Addresses whose tags are remembered.
const MAX_ROUTES: usize = 1_024;

/// Answers to strangers in a second, at most: each costs about 10 us, so 1 % of a core.
const TELLS_PER_SECOND: u32 = 1_000;

/// An ask or a tell.
const WHOLE: Place = Place { message: 0, index: 0, count: 1 };

const INFO: &[u8] = b"grapevine gossip v1";
const KEY_ID_SALT: &[u8] = b"grapevine gossip key id v1";

/// The keys that one secret gives in one fleet.
struct Secret {
    id: [u8; KEY_ID_BYTES],
    secret: Vec<u8>,
    cluster_id: String,
    /// Ours, of this boot.
    own: LessSafeKey,
}

/// Another router's boot, known from a datagram of its that was sealed for our tag.
struct Sender {
    key: LessSafeKey,
    window: ReplayWindow,
    used_at: u64,
}

/// What is known of the router at an address.
#[derive(Clone, Copy)]
struct Route {
    /// Its tag, and which of our secrets it seals with.
    seals: Option<(u64, usize)>,
    /// Counters sent there since the tag was learnt: an answer to one of them is news.
    asked: (u64, u64),
    used_at: u64,
}

/// Seals and opens the datagrams of one socket.
pub(super) struct Sealed {
    secrets: Vec<Secret>,
    salt: Salt,
    tag: u64,
    counter: u64,
    message: u32,
    senders: BTreeMap<([u8; KEY_ID_BYTES], Salt), Sender>,
    routes: BTreeMap<SocketAddr, Route>,
    reassembly: Reassembly<Salt>,
    /// Counts uses, for eviction.
    uses: u64,
    tells: (Instant, u32),
}

impl Sealed {
    /// With `secrets`, the current one first.
    pub(super) fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>, cluster_id: &str) -> Self {
        let mut salt = Salt::default();
        fill_random(&mut salt);
        Self {
            secrets: secrets.into_iter().map(|it| Secret::new(it, cluster_id, &salt)).collect(),
            salt,
            tag: random_tag(),
            counter: 0,
            message: 0,
            senders: BTreeMap::new(),
            routes: BTreeMap::new(),
            reassembly: Reassembly::new(),
            uses: 0,
            tells: (Instant::now(), 0),
        }
    }

    /// The datagrams for a message; only a question when the receiver's tag is not known.
    pub(super) fn write(&mut self, packed: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
        let first = self.counter;
        let datagrams = match self.routes.get(&to).and_then(|route| route.seals) {
            Some((tag, secret)) => self.write_data(packed, tag, secret),
            None => self.write_asks(),
        };
        self.note_sent(to, first);
        datagrams
    }

    fn write_data(&mut self, packed: &[u8], tag: u64, secret: usize) -> Vec<Vec<u8>> {
        self.message = self.message.wrapping_add(1);
        let message = self.message;
        let Some((count, pieces)) = frame::cut(packed, PIECE_BYTES) else { return Vec::new() };
        let seal =
            |(index, piece)| self.seal(secret, Kind::Data, tag, Place { message, index, count }, piece);
        pieces.filter_map(seal).collect()
    }

    /// One with each secret: the receiver may not have the current one yet.
    fn write_asks(&mut self) -> Vec<Vec<u8>> {
        let secrets = self.secrets.len();
        let ask = |secret| self.seal(secret, Kind::Ask, 0, WHOLE, &[0; COUNTER_BYTES]);
        (0..secrets).filter_map(ask).collect()
    }

    /// What a datagram brings.
    pub(super) fn read(&mut self, datagram: &[u8], from: SocketAddr) -> Result<Outcome, Reject> {
        let header = SealedHeader::read(datagram).ok_or(Reject::Foreign)?;
        if datagram.len() > MAX_DATAGRAM || datagram.len() < SEALED_BYTES + TAG_BYTES {
            return Err(Reject::Foreign);
        }
        // Ours, sent back by a stranger: it must not be answered with our tag, or read, as if it were a peer's.
        if header.salt == self.salt {
            return Err(Reject::Misdirected);
        }
        if header.to != self.tag || header.kind == Kind::Ask {
            return self.read_unbound(&header, datagram, from);
        }
        let secret = self.secret(header.key_id)?;
        let body = self.open_bound(secret, &header, datagram)?;
        if header.kind == Kind::Tell {
            return self.take_tell(secret, &header, &body, from);
        }
        self.learn(from, (header.from, secret));
        Ok(match self.reassembly.add(header.salt, header.place, &body) {
            Some(packed) => Outcome::Message(packed),
            None => Outcome::Nothing,
        })
    }

    pub(super) fn take_given_up(&mut self) -> u64 {
        self.reassembly.take_given_up()
    }

    /// Answers who does not know our tag. Nothing is kept of it: it may be a recording.
    fn read_unbound(
        &mut self,
        header: &SealedHeader,
        datagram: &[u8],
        from: SocketAddr,
    ) -> Result<Outcome, Reject> {
        let secret = self.secret(header.key_id)?;
        // One answer for a message of many fragments is enough, and none for less than it takes.
        let worth_it = header.kind != Kind::Tell && header.place.index == 0 && datagram.len() >= ASK_BYTES;
        if !worth_it || !self.may_tell() {
            return Err(Reject::Misdirected);
        }
        open(&self.key_of(secret, header)?, header, datagram)?;
        let misdirected = header.kind == Kind::Data;
        let answers = header.counter.to_le_bytes();
        let tell = self.seal(secret, Kind::Tell, header.from, WHOLE, &answers);
        Ok(Outcome::Answer { datagram: tell.ok_or(Reject::Foreign)?, to: from, misdirected })
    }

    /// Opens what is sealed for our tag, and uses up its counter.
    fn open_bound(
        &mut self,
        secret: usize,
        header: &SealedHeader,
        datagram: &[u8],
    ) -> Result<Vec<u8>, Reject> {
        self.uses += 1;
        let id = (header.key_id, header.salt);
        if let Some(sender) = self.senders.get_mut(&id) {
            if !sender.window.is_fresh(header.counter) {
                return Err(Reject::Replayed);
            }
            let body = open(&sender.key, header, datagram)?;
            sender.window.use_up(header.counter);
            sender.used_at = self.uses;
            return Ok(body);
        }
        let key = self.key_of(secret, header)?;
        let body = open(&key, header, datagram)?;
        self.make_room();
        let mut window = ReplayWindow::new();
        window.use_up(header.counter);
        self.senders.insert(id, Sender { key, window, used_at: self.uses });
        Ok(body)
    }

    /// An answer is good if it answers something sent to that address since its tag was learnt.
    fn take_tell(
        &mut self,
        secret: usize,
        header: &SealedHeader,
        body: &[u8],
        from: SocketAddr,
    ) -> Result<Outcome, Reject> {
        let answers = u64::from_le_bytes(body.try_into().map_err(|_| Reject::Damaged)?);
        let route = self.routes.get(&from).ok_or(Reject::Misdirected)?;
        if !(route.asked.0..route.asked.1).contains(&answers) {
            return Err(Reject::Replayed);
        }
        self.learn(from, (header.from, secret));
        Ok(Outcome::Nothing)
    }

    /// Uses a counter, which no other datagram of this boot has.
    fn seal(&mut self, secret: usize, kind: Kind, to: u64, place: Place, body: &[u8]) -> Option<Vec<u8>> {
        let secret = self.secrets.get(secret)?;
        let counter = self.counter;
        self.counter += 1;
        let (key_id, salt, from) = (secret.id, self.salt, self.tag);
        let mut datagram = Vec::with_capacity(SEALED_BYTES + body.len() + TAG_BYTES);
        SealedHeader { kind, key_id, salt, to, from, counter, place }.write(&mut datagram);
        Some(crypt::seal(&secret.own, nonce(counter), datagram, body))
    }

    /// The key of the sender of `header`.
    fn key_of(&self, secret: usize, header: &SealedHeader) -> Result<LessSafeKey, Reject> {
        let Secret { secret, cluster_id, .. } = self.secrets.get(secret).ok_or(Reject::Foreign)?;
        Ok(derive(secret, cluster_id, &header.salt))
    }

    fn secret(&self, key_id: [u8; KEY_ID_BYTES]) -> Result<usize, Reject> {
        self.secrets.iter().position(|secret| secret.id == key_id).ok_or(Reject::Foreign)
    }

    fn may_tell(&mut self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.tells.0) >= Duration::from_secs(1) {
            self.tells = (now, 0);
        }
        self.tells.1 += 1;
        self.tells.1 <= TELLS_PER_SECOND
    }

    fn learn(&mut self, from: SocketAddr, seals: (u64, usize)) {
        let counter = self.counter;
        let route = self.route(from);
        if route.seals != Some(seals) {
            route.seals = Some(seals);
            route.asked = (counter, counter);
        }
    }

    fn note_sent(&mut self, to: SocketAddr, first: u64) {
        let next = self.counter;
        let route = self.route(to);
        if route.asked.0 == route.asked.1 {
            route.asked.0 = first;
        }
        route.asked.1 = next;
    }

    fn route(&mut self, addr: SocketAddr) -> &mut Route {
        self.uses += 1;
        if self.routes.len() >= MAX_ROUTES && !self.routes.contains_key(&addr) {
            let oldest = self.routes.iter().min_by_key(|(_, route)| route.used_at).map(|(addr, _)| *addr);
            oldest.map(|addr| self.routes.remove(&addr));
        }
        let route = self.routes.entry(addr).or_insert(Route { seals: None, asked: (0, 0), used_at: 0 });
        route.used_at = self.uses;
        route
    }

    fn make_room(&mut self) {
        if self.senders.len() < MAX_SENDERS {
            return;
        }
        let oldest = self.senders.iter().min_by_key(|(_, sender)| sender.used_at).map(|(id, _)| *id);
        oldest.map(|id| self.senders.remove(&id));
        self.tag = random_tag();
    }
}

impl Secret {
    fn new(secret: &[u8], cluster_id: &str, salt: &Salt) -> Self {
        let id = crypt::key_id(secret, KEY_ID_SALT, [INFO, cluster_id.as_bytes()]);
        let own = derive(secret, cluster_id, salt);
        Self { id, secret: secret.to_vec(), cluster_id: cluster_id.to_owned(), own }
    }
}

/// The key of the router that drew `salt`.
fn derive(secret: &[u8], cluster_id: &str, salt: &Salt) -> LessSafeKey {
    crypt::derive(secret, salt, [INFO, cluster_id.as_bytes()])
}

fn open(key: &LessSafeKey, header: &SealedHeader, datagram: &[u8]) -> Result<Vec<u8>, Reject> {
    crypt::open(key, nonce(header.counter), datagram, SEALED_BYTES).ok_or(Reject::Damaged)
}

fn nonce(counter: u64) -> crypt::Once {
    let mut bytes = crypt::Once::default();
    if let Some(low) = bytes.first_chunk_mut() {
        *low = counter.to_le_bytes();
    }
    bytes
}

fn random_tag() -> u64 {
    let mut bytes = [0; 8];
    fill_random(&mut bytes);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests;
