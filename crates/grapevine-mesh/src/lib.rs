//! The fleet: how routers tell each other where prefixes live, over chitchat.
//!
//! ```text
//!              collect(budget) -> Outgoing            deliver(Incoming)
//!   Host  <------------------------------  actor  ------------------------->  Host
//!     ^                                   /  |  \
//!     |              outbox (numbers,    /   |   \   fleet (each segment once,
//!     |              budget, pointers)  /    |    \   newest generation, holes)
//!     |                                codec, carrier    bytes <-> chitchat keys
//!     | fetch, restore                       |
//!     |                                   session        one run of chitchat
//!   ask <-- pull, join, seen                 |
//!   answer <-- log                          net          sealed UDP, or a given transport
//!     |
//!   exchange                              what gossip did not bring, sealed
//! ```
//!
//! [`outbox`], [`fleet`], [`log`], [`pull`], [`join`], [`seen`], [`codec`] and [`carrier`] are pure: time is
//! an argument. The actor ([`spawn`]) asks its [`Host`] a few times a second for what changed, publishes
//! it in this router's own keys, tells it to every peer besides, and hands over what peers published. What is missing it asks peers for,
//! and it answers them, over whatever the host fetches with ([`Host::fetch`], [`MeshHandle::answer`]). It
//! never touches a request, and no request waits for it: without gossip a router serves alone.
//!
//! **Invariants.** A router writes only its own keys and deletes none. An idle fleet writes nothing.
//! Everything that arrives is bounded before it is allocated, and authenticated before it is looked
//! at when there is a secret. No clock is compared with another host's. A silent router's knowledge
//! stays; only a newer generation of the same name makes an older one forgotten.

use std::future::Future;

use grapevine_tree::{DeltaEntry, ReplicaHistory, ReplicaId, RouterId, SnapshotPage};

pub mod carrier;
pub mod codec;
pub mod fleet;
pub mod join;
pub mod log;
pub mod outbox;
pub mod pull;
pub mod seen;

mod actor;
mod answer;
mod ask;
mod config;
mod counters;
mod crypt;
mod exchange;
mod handle;
mod net;
mod peer;
mod port;
mod seeds;
mod session;
mod status;

/// What [`spawn_with_transport`] takes: chitchat's own in-memory network, and the traits to write another.
pub mod transport {
    pub use chitchat::ChitchatMessage;
    pub use chitchat::transport::{ChannelTransport, Socket, Transport};

    pub use crate::net::datagrams::{Brought, Datagrams};
    pub use crate::net::direct::Direct;
    pub use crate::net::{sealed_direct_size, sealed_size};
}

pub use actor::{spawn, spawn_with_transport};
pub use ask::Snapshot;
pub use codec::entry_len;
pub use config::{DEFAULT_INTERVAL, DEFAULT_JOIN_TIMEOUT, MIN_SECRET_BYTES, MeshConfig, MeshError};
pub use counters::Traffic;
pub use handle::{EXCHANGE_PATH, MAX_QUESTION_BYTES, MeshHandle, Refused};
pub use outbox::Tally;
pub use status::{Held, MeshStatus, MeshTotals, PeerStatus, Pulls, Snapshots};

/// Load that a router has on one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// The replica.
    pub replica: ReplicaId,
    /// The router's own requests in flight there.
    pub inflight: u32,
    /// Its own prefill tokens queued there.
    pub queued_tokens: u32,
    /// Tokens it has newly sent there since its start. Only grows within a generation.
    pub new_tokens: u64,
}

/// A replica's cache generation as a router saw it: grows when the replica restarted or lost its
/// cache. The largest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaEpoch {
    /// The replica.
    pub replica: ReplicaId,
    /// Its epoch.
    pub epoch: u32,
}

/// What this router has to say this tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outgoing {
    /// Changed prefixes, most valuable first.
    pub entries: Vec<DeltaEntry>,
    /// Load of every replica on which it has some or had some at the last tick.
    pub loads: Vec<LoadReport>,
    /// Epochs of replicas, only those above 0.
    pub epochs: Vec<ReplicaEpoch>,
    /// This router is going away: peers must not wait for it.
    pub draining: bool,
}

/// What a peer said, checked and decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// Who said it.
    pub origin: RouterId,
    /// It restarted since its last message: its `new_tokens` start again from 0.
    pub restarted: bool,
    /// Prefixes to apply to the tree.
    pub entries: Vec<DeltaEntry>,
    /// Its whole load now; `None` when this message carries none.
    pub loads: Option<Vec<LoadReport>>,
    /// Epochs to merge.
    pub epochs: Vec<ReplicaEpoch>,
}

/// Why a peer did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// Nobody answers there, or not in time, or not to the end.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// It answered with this HTTP status: see [`Refused::status`].
    #[error("refused with status {0}")]
    Refused(u16),
    /// The answer is longer than was asked for.
    #[error("answer is too long")]
    TooLong,
}

/// What the mesh needs of the router around it.
pub trait Host: Send + Sync + 'static {
    /// What changed since the last call; entries worth at most about `budget` bytes. Answers
    /// within the tick: a busy tree gives an empty answer and keeps its changes.
    fn collect(&self, budget: usize) -> impl Future<Output = Outgoing> + Send;

    /// Load of every replica that has some now. Asked many times a second; must not block.
    fn loads(&self) -> Vec<LoadReport>;

    /// Hands over what a peer said. Must not block.
    fn deliver(&self, incoming: Incoming);

    /// Posts `body` to [`EXCHANGE_PATH`] below the admin address `url` of a peer; its answer, of at most
    /// `limit` bytes, is what the peer's [`MeshHandle::answer`] gave. The url is what a peer said: do
    /// not follow redirects. The mesh gives up by itself when it takes too long.
    fn fetch(
        &self,
        url: &str,
        body: Vec<u8>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<u8>, FetchError>> + Send;

    /// For a peer that joins: the dates that the pages of [`Self::snapshot`] refer to. `None` when the
    /// tree does not answer.
    fn histories(&self) -> impl Future<Output = Option<Vec<ReplicaHistory>>> + Send;

    /// For a peer that joins: the tree from `cursor` on, at most about `budget` bytes of it.
    fn snapshot(&self, cursor: u64, budget: usize) -> impl Future<Output = Option<SnapshotPage>> + Send;

    /// Takes over what a peer knows: first the epochs, then the histories, then page by page. Resolves
    /// when all of it is in the tree. Must not be skipped: the mesh does not ask for it again.
    fn restore(&self, snapshot: Snapshot) -> impl Future<Output = ()> + Send;
}
