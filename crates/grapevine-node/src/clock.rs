//! The one origin that every [`Millis`] of this process counts from.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use grapevine_tree::Millis;
use tokio::time::Instant;

/// Unix time in ms, for people and for figures of several routers side by side; nothing is decided by it.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// Milliseconds since the router was built. Follows tokio's time, so tests can pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that reads 0 now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Millis {
        self.uptime().as_millis() as Millis
    }

    /// Time since the start, for people.
    pub fn uptime(&self) -> Duration {
        self.origin.elapsed()
    }
}
