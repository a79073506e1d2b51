//! Which replica has already prefilled this prompt? The pure part of the answer.
//!
//! A request's prompt becomes a [`PrefixKey`]: one chained hash per boundary of the prompt's bytes
//! ([`key`], [`boundary`]). The [`PrefixTree`] remembers which replica was sent which prefix
//! ([`tree`]), ages that belief as the replica's own cache ages, and speaks to other routers in
//! self-sufficient [`DeltaEntry`]s ([`delta`]).
//!
//! Nothing here reads a clock, the network or a random source: time is an argument, so production,
//! the fleet simulator and the trace replay run the same code and repeat exactly.

pub mod boundary;
pub mod delta;
pub mod id;
pub mod json;
pub mod key;
pub mod tree;

pub use delta::{DeltaEntry, Mark};
pub use id::{Millis, ReplicaId, RouterId};
pub use key::{Api, Extractor, KeySeed, PrefixKey, Prompt};
pub use tree::{
    Heaviest, HeavyPrefix, LastUse, Match, Matches, PrefixTree, ReplicaHistory, SnapshotCredit, SnapshotNode,
    SnapshotPage, Teacher, Translation, TreeConfig, TreeStats,
};
