//! The one origin that every [`Millis`] of this process counts from.

use std::time::Duration;

use grapevine_tree::Millis;
use tokio::time::Instant;

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
