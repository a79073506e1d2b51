//! Time for which a client has been taking nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// Counts from the moment at which something first waits for the client.
pub(super) struct Stall {
    limit: Duration,
    /// Made when a client is first waited for: most never are.
    timer: Option<Pin<Box<Sleep>>>,
    waiting: bool,
}

impl Stall {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, timer: None, waiting: false }
    }

    /// The client has taken something, or nothing waits for it.
    pub(super) fn over(&mut self) {
        self.waiting = false;
    }

    /// Something waits for the client: completes when it has for as long as the limit.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.waiting, true) {
            timer.as_mut().reset(Instant::now() + limit);
        }
        timer.as_mut().poll(cx)
    }
}
