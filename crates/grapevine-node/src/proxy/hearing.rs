//! What this router hears of its peers, as it was when last looked at.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Read by every decision, written a few times a second.
#[derive(Debug)]
pub struct Hearing {
    all: AtomicBool,
    lag_ms: AtomicU64,
}

impl Default for Hearing {
    /// A router that has met nobody takes itself for the whole fleet.
    fn default() -> Self {
        Self { all: AtomicBool::new(true), lag_ms: AtomicU64::new(0) }
    }
}

impl Hearing {
    /// Notes whether every peer is heard that should be, and how far the news of the slowest is behind.
    pub fn note(&self, all: bool, lag_ms: u64) {
        self.all.store(all, Relaxed);
        self.lag_ms.store(lag_ms, Relaxed);
    }

    /// Whether this router hears its peers, or has none.
    pub fn hears_all(&self) -> bool {
        self.all.load(Relaxed)
    }

    /// How far what the tree knows from peers is behind.
    pub fn lag(&self) -> Duration {
        Duration::from_millis(self.lag_ms.load(Relaxed))
    }
}
