//! The moment at which everything that still runs must end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use tokio::sync::Notify;

/// Completes when the router stops. Boxed: most answers are over before they would need one.
pub(super) type Stopped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Said once, heard by everybody, also by who asks later.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    notify: Arc<Notify>,
}

impl Stop {
    /// Says it.
    pub fn stop(&self) {
        self.shared.stopped.store(true, SeqCst);
        self.shared.notify.notify_waiters();
    }

    /// Waits for it, without an allocation.
    pub(super) async fn wait(&self) {
        // In this order: a stop between the two is not lost.
        let notified = self.shared.notify.notified();
        if !self.shared.stopped.load(SeqCst) {
            notified.await;
        }
    }

    /// Waits for it, owned.
    pub(super) fn stopped(&self) -> Stopped {
        let notified = Arc::clone(&self.shared.notify).notified_owned();
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if !shared.stopped.load(SeqCst) {
                notified.await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_is_heard_by_who_waits_and_by_who_comes_late() {
        let stop = Stop::default();
        let early = stop.stopped();
        stop.stop();
        early.await;
        stop.stopped().await;
        stop.wait().await;
    }
}
