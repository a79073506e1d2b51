//! What one router tells the others of its tree.

use smallvec::SmallVec;

use crate::id::ReplicaId;

/// One known boundary of a prompt: its index in the boundary schedule and its chained hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// Index into [`crate::boundary`]'s schedule: which depth in bytes this is.
    pub index: u8,
    /// Hash of everything before that depth.
    pub hash: u64,
}

/// How often the sender's picker sent a prefix to a replica.
///
/// Self-sufficient: a receiver that has never seen any part of the path can apply it, because a
/// chained hash stands for the whole prefix before it. `count` is absolute (the sender's own count
/// now, decayed), so applying an entry twice, late or out of order does no harm.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaEntry {
    /// The replica that was picked.
    pub replica: ReplicaId,
    /// Which of its caches this is about: grows each time it loses what it holds. An entry about an
    /// earlier cache is void, whenever it arrives.
    pub epoch: u32,
    /// The sender's own decayed count of picks, > 0.
    pub count: f32,
    /// Boundaries on the path, shallow to deep, at most [`MAX_MARKS`]; the last one is how far the
    /// replica's cache reaches. Those before it let a receiver match requests that diverge earlier.
    pub marks: SmallVec<[Mark; 8]>,
}

/// The most marks in one entry. A label of n boundaries is thinned to those at distance
/// 0, 1, 3, 7, 15, 31 and 63 from its end, after the anchor: so a receiver finds at least half of
/// what a request shares past the anchor, for O(log n) bytes.
pub const MAX_MARKS: usize = 8;
