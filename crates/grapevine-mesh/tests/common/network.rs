//! chitchat's in-memory network with faults that a test controls: loss, duplicates, delays, a
//! socket that breaks. The faults are drawn from a seed. Beside it, words that pass chitchat by.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chitchat::{Deserializable, Serializable};
use grapevine_mesh::transport::{ChannelTransport, ChitchatMessage, Direct, Socket, Transport};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;

#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) links: ChannelTransport,
    faults: Arc<Faults>,
    words: Arc<Words>,
}

/// Carries words at once, or loses them.
#[derive(Default)]
pub(crate) struct Words {
    ears: Mutex<BTreeMap<SocketAddr, mpsc::Sender<Vec<u8>>>>,
    /// So many of the next ones are lost.
    to_lose: AtomicU32,
    carried: AtomicU32,
}

/// One router's end of it.
struct Mouth(SocketAddr, Arc<Words>);

/// Bytes of a message in one sealed datagram.
const FRAGMENT_BYTES: usize = 1_132;

struct Faults {
    loss_percent: AtomicU32,
    fragment_loss_percent: AtomicU32,
    mess_percent: AtomicU32,
    broken: AtomicBool,
    rng: Mutex<SmallRng>,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let faults = Faults {
            loss_percent: AtomicU32::new(0),
            fragment_loss_percent: AtomicU32::new(0),
            mess_percent: AtomicU32::new(0),
            broken: AtomicBool::new(false),
            rng: Mutex::new(SmallRng::seed_from_u64(seed)),
        };
        Self { links: ChannelTransport::default(), faults: Arc::new(faults), words: Arc::default() }
    }

    /// Loses this share of all messages.
    pub(crate) fn lose(&self, percent: u32) {
        self.faults.loss_percent.store(percent, Relaxed);
    }

    /// Loses this share of all datagrams: a message arrives when all its fragments do.
    pub(crate) fn lose_fragments(&self, percent: u32) {
        self.faults.fragment_loss_percent.store(percent, Relaxed);
    }

    /// Repeats and reorders this share of all messages.
    pub(crate) fn mess_up(&self, percent: u32) {
        self.faults.mess_percent.store(percent, Relaxed);
    }

    /// The next socket that receives something breaks instead.
    pub(crate) fn break_one(&self) {
        self.faults.broken.store(true, Relaxed);
    }

    /// Loses the next `count` words of all.
    pub(crate) fn lose_words(&self, count: u32) {
        self.words.to_lose.store(count, Relaxed);
    }

    /// Words that arrived so far.
    pub(crate) fn words(&self) -> u32 {
        self.words.carried.load(Relaxed)
    }

    /// Says `word` to the router at `to`, as one of the fleet.
    pub(crate) fn whisper(&self, to: SocketAddr, word: &[u8]) {
        self.words.carry(to, word);
    }

    /// What carries the words of the router at `addr`.
    pub(crate) fn direct(&self, addr: SocketAddr) -> Arc<dyn Direct> {
        Arc::new(Mouth(addr, self.words.clone()))
    }

    pub(crate) fn shared(&self) -> Arc<dyn Transport> {
        Arc::new(self.clone())
    }
}

impl Words {
    fn carry(&self, to: SocketAddr, word: &[u8]) {
        if self.to_lose.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return;
        }
        let ear = self.ears.lock().unwrap().get(&to).cloned();
        if ear.is_some_and(|ear| ear.try_send(word.to_vec()).is_ok()) {
            self.carried.fetch_add(1, Relaxed);
        }
    }
}

impl Direct for Mouth {
    fn listen(&self, inbox: mpsc::Sender<Vec<u8>>) {
        self.1.ears.lock().unwrap().insert(self.0, inbox);
    }

    fn send(&self, to: SocketAddr, message: &[u8]) {
        self.1.carry(to, message);
    }
}

impl Faults {
    fn happens(&self, percent: &AtomicU32) -> bool {
        self.rng.lock().unwrap().random_range(0..100) < percent.load(Relaxed)
    }
}

#[async_trait]
impl Transport for Network {
    async fn open(&self, listen: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let inner = self.links.open(listen).await?;
        Ok(Box::new(FaultySocket { inner, faults: self.faults.clone(), held: None }))
    }
}

struct FaultySocket {
    inner: Box<dyn Socket>,
    faults: Arc<Faults>,
    /// Sent after the message that follows it.
    held: Option<(SocketAddr, ChitchatMessage)>,
}

fn copy(message: &ChitchatMessage) -> ChitchatMessage {
    ChitchatMessage::deserialize(&mut message.serialize_to_vec().as_slice()).unwrap()
}

#[async_trait]
impl Socket for FaultySocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let mut fragments = 0..message.serialized_len().div_ceil(FRAGMENT_BYTES);
        let lost = fragments.any(|_| self.faults.happens(&self.faults.fragment_loss_percent));
        if lost || self.faults.happens(&self.faults.loss_percent) {
            return Ok(());
        }
        if self.faults.happens(&self.faults.mess_percent) {
            let overtaken = self.held.replace((to, copy(&message)));
            self.inner.send(to, message).await?;
            if let Some((to, message)) = overtaken {
                self.inner.send(to, message).await?;
            }
            return Ok(());
        }
        self.inner.send(to, message).await
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        let received = self.inner.recv().await?;
        anyhow::ensure!(!self.faults.broken.swap(false, Relaxed), "the cable was pulled");
        Ok(received)
    }
}

/// Lets virtual time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
