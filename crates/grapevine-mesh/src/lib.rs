//! The fleet: how routers tell each other where prefixes live, over chitchat.
//!
//! The [`MeshHandle`]'s actor asks its [`Host`] a few times a second for what changed, publishes it
//! in this router's own keys, and delivers what peers published. It never touches a request.

use std::future::Future;

use grapevine_tree::{DeltaEntry, ReplicaId, RouterId};

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

/// What the mesh needs of the router around it.
pub trait Host: Send + Sync + 'static {
    /// What changed since the last call; entries worth at most about `budget` bytes. Answers
    /// within the tick: a busy tree gives an empty answer and keeps its changes.
    fn collect(&self, budget: usize) -> impl Future<Output = Outgoing> + Send;

    /// Hands over what a peer said. Must not block.
    fn deliver(&self, incoming: Incoming);
}
