//! Names that are the same on every machine of a fleet, and short on the wire.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// Milliseconds since an origin of the caller's choice (process start in production, zero in a
/// simulation). Never compared between hosts.
pub type Millis = u64;

/// A replica of an engine: a stable hash of its base URL, so routers agree on it without a table.
///
/// 32 bits: with 1,000 replicas two collide with a probability of 1 in 8,600; whoever makes the
/// replica set refuses the second of two that do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplicaId(pub u32);

impl ReplicaId {
    /// The id of the replica at `url`. A trailing slash does not count.
    pub fn of_url(url: &str) -> Self {
        Self(xxh3_64(url.trim_end_matches('/').as_bytes()) as u32)
    }
}

impl fmt::Debug for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// A router of the fleet: a stable hash of its `GRAPEVINE_ROUTER_ID`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterId(pub u32);

impl RouterId {
    /// The id of the router called `name`.
    pub fn of_name(name: &str) -> Self {
        Self(xxh3_64(name.as_bytes()) as u32)
    }
}

impl fmt::Debug for RouterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}
