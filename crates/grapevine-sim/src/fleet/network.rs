//! The network between routers: datagrams that are lost, late, doubled or cut off, all by one seed.
//!
//! A chitchat message travels as the datagrams that the sealed UDP transport would make of it: each
//! is lost by itself, and the message with it. That is what makes large messages fragile.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chitchat::{Deserializable, Serializable};
use grapevine_mesh::transport::{
    ChitchatMessage, Direct, Socket, Transport, sealed_direct_size, sealed_size,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::mpsc;
use tokio::time::sleep;
use xxhash_rust::xxh3::xxh3_64;

use super::clock::Clock;
use super::journal::Journal;

/// Messages that a socket's buffer holds; about the 4 MiB that a router asks for.
const BUFFER: usize = 1_024;

/// What the network does to messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Weather {
    /// Share of datagrams that are lost.
    pub(super) loss: f64,
    /// Share of messages that arrive twice.
    pub(super) duplicate: f64,
    /// Mean time on the way; each message takes between half and one and a half of it.
    pub(super) latency: Duration,
}

/// Counts of one router's sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Messages sent.
    pub(super) messages: u64,
    /// Bytes sent, with headers and tags of the datagrams, without IP and UDP.
    pub(super) bytes: u64,
    /// Largest message sent.
    pub(super) largest: usize,
}

/// The wires. Routers are known by number; see [`address`].
pub(super) struct Network {
    clock: Clock,
    journal: Arc<Journal>,
    state: Mutex<State>,
}

struct State {
    dice: SmallRng,
    weather: Weather,
    mailboxes: BTreeMap<SocketAddr, mpsc::Sender<Letter>>,
    /// Where direct messages go, and whether there is power.
    ears: BTreeMap<SocketAddr, (mpsc::Sender<Vec<u8>>, Arc<AtomicBool>)>,
    /// Directions in which nothing passes.
    cuts: BTreeSet<(usize, usize)>,
    traffic: Vec<Traffic>,
}

type Letter = (SocketAddr, Arc<[u8]>);

/// How a message goes.
#[derive(Clone, Copy)]
enum Way {
    Gossip,
    Direct,
}

/// Where router `index` gossips.
pub(super) fn address(index: usize) -> SocketAddr {
    ([10, 0, (index / 250) as u8, (index % 250 + 1) as u8], 7946).into()
}

impl Network {
    /// A network for `routers` routers.
    pub(super) fn new(
        seed: u64,
        routers: usize,
        weather: Weather,
        clock: Clock,
        journal: Arc<Journal>,
    ) -> Arc<Self> {
        let state = State {
            dice: SmallRng::seed_from_u64(seed),
            weather,
            mailboxes: BTreeMap::new(),
            ears: BTreeMap::new(),
            cuts: BTreeSet::new(),
            traffic: vec![Traffic::default(); routers],
        };
        Arc::new(Self { clock, journal, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts what leads from one router to another.
    pub(super) fn cut(&self, from: usize, to: usize) {
        self.state().cuts.insert((from, to));
    }

    /// Mends all cuts.
    pub(super) fn heal(&self) {
        self.state().cuts.clear();
    }

    /// Whether something is cut.
    pub(super) fn is_whole(&self) -> bool {
        self.state().cuts.is_empty()
    }

    /// Whether two routers reach each other, in both directions.
    pub(super) fn connects(&self, one: usize, other: usize) -> bool {
        let state = self.state();
        !state.cuts.contains(&(one, other)) && !state.cuts.contains(&(other, one))
    }

    /// How long a message takes this time.
    pub(super) fn delay(&self) -> Duration {
        self.state().delay()
    }

    /// Counts of router `index`.
    pub(super) fn traffic(&self, index: usize) -> Traffic {
        self.state().traffic.get(index).copied().unwrap_or_default()
    }

    /// The network as one life of router `index` sees it. Without `power` it is dead: nothing it
    /// sends leaves, nothing reaches it.
    pub(super) fn plug(self: &Arc<Self>, index: usize, power: Arc<AtomicBool>) -> Arc<Plug> {
        Arc::new(Plug { network: Arc::clone(self), index, power })
    }

    fn send(self: &Arc<Self>, from: usize, to: SocketAddr, bytes: &Arc<[u8]>, way: Way) {
        let (datagrams, wire_bytes) = match way {
            Way::Gossip => sealed_size(bytes),
            Way::Direct => sealed_direct_size(bytes),
        };
        let delays = {
            let mut state = self.state();
            state.count(from, bytes.len(), wire_bytes);
            state.fate(from, to, datagrams)
        };
        let (network, at) = (self, self.clock.now());
        network.journal.note(
            at,
            format_args!("send {from} {to} {} {:016x} x{}", bytes.len(), xxh3_64(bytes), delays.len()),
        );
        for delay in delays {
            let (network, bytes) = (Arc::clone(self), Arc::clone(bytes));
            tokio::spawn(async move {
                sleep(delay).await;
                let taken = match way {
                    Way::Gossip => network.arrive(from, to, bytes),
                    Way::Direct => network.whisper(to, &bytes),
                };
                network.journal.note(network.clock.now(), format_args!("arrive {from} {to} {taken}"));
            });
        }
    }

    fn arrive(&self, from: usize, to: SocketAddr, bytes: Arc<[u8]>) -> bool {
        let mailbox = self.state().mailboxes.get(&to).cloned();
        mailbox.is_some_and(|mailbox| mailbox.try_send((address(from), bytes)).is_ok())
    }

    fn whisper(&self, to: SocketAddr, bytes: &[u8]) -> bool {
        let ear = self.state().ears.get(&to).cloned();
        ear.is_some_and(|(ear, power)| power.load(Relaxed) && ear.try_send(bytes.to_vec()).is_ok())
    }
}

impl State {
    fn count(&mut self, from: usize, message_bytes: usize, wire_bytes: usize) {
        if let Some(traffic) = self.traffic.get_mut(from) {
            traffic.messages += 1;
            traffic.bytes += wire_bytes as u64;
            traffic.largest = traffic.largest.max(message_bytes);
        }
    }

    /// When each copy of a message of so many datagrams arrives.
    fn fate(&mut self, from: usize, to: SocketAddr, datagrams: usize) -> Vec<Duration> {
        // Dice are thrown for every message, so that a cut changes only what it cuts.
        let lost = (0..datagrams).filter(|_| self.dice.random_bool(self.weather.loss)).count() > 0;
        let copies = 1 + usize::from(self.dice.random_bool(self.weather.duplicate));
        let delays: Vec<Duration> = (0..copies).map(|_| self.delay()).collect();
        let is_cut = self.cuts.iter().any(|&(a, b)| a == from && address(b) == to);
        if lost || is_cut { Vec::new() } else { delays }
    }

    fn delay(&mut self) -> Duration {
        let share = self.dice.random_range(0.5..1.5);
        self.weather.latency.mul_f64(share)
    }
}

/// The network as one life of a router sees it.
pub(super) struct Plug {
    network: Arc<Network>,
    index: usize,
    power: Arc<AtomicBool>,
}

impl Direct for Plug {
    fn listen(&self, inbox: mpsc::Sender<Vec<u8>>) {
        self.network.state().ears.insert(address(self.index), (inbox, Arc::clone(&self.power)));
    }

    fn send(&self, to: SocketAddr, message: &[u8]) {
        if self.power.load(Relaxed) {
            self.network.send(self.index, to, &message.into(), Way::Direct);
        }
    }
}

#[async_trait]
impl Transport for Plug {
    async fn open(&self, listen: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        anyhow::ensure!(self.power.load(Relaxed), "no power");
        let (sender, mailbox) = mpsc::channel(BUFFER);
        // Whoever listened here before is gone.
        self.network.state().mailboxes.insert(listen, sender);
        let (network, power) = (Arc::clone(&self.network), Arc::clone(&self.power));
        Ok(Box::new(Wire { network, index: self.index, power, mailbox }))
    }
}

struct Wire {
    network: Arc<Network>,
    index: usize,
    power: Arc<AtomicBool>,
    mailbox: mpsc::Receiver<Letter>,
}

#[async_trait]
impl Socket for Wire {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        if self.power.load(Relaxed) {
            self.network.send(self.index, to, &message.serialize_to_vec().into(), Way::Gossip);
        }
        Ok(())
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            let Some((from, bytes)) = self.mailbox.recv().await else {
                // Replaced by a later life at this address: this one hears nothing any more.
                return std::future::pending().await;
            };
            if self.power.load(Relaxed) {
                return Ok((from, ChitchatMessage::deserialize(&mut &*bytes)?));
            }
        }
    }
}
