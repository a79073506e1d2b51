//! Virtual time: microseconds since the start of the world, on tokio's paused clock.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::replay::engine::Micros;

/// One second.
pub(super) const SECOND: Micros = 1_000_000;

/// A minute.
pub(super) const MINUTE: Micros = 60 * SECOND;

/// Reads and awaits virtual time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    /// Lets time pass until `at`; tokio rounds up to the next millisecond.
    pub(super) async fn until(&self, at: Micros) {
        sleep_until(self.start + Duration::from_micros(at)).await;
    }
}
