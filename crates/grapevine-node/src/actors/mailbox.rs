//! A bounded mailbox with the figures that every actor exports.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use grapevine_tree::Millis;
use tokio::sync::mpsc;

/// Sends to an actor.
#[derive(Debug)]
pub struct Mailbox<M> {
    sender: mpsc::Sender<M>,
    gauges: Arc<Gauges>,
}

/// What an actor writes about itself.
#[derive(Debug, Default)]
pub struct Gauges {
    dropped: AtomicU64,
    handled: AtomicU64,
    busy_micros: AtomicU64,
    last_progress: AtomicU64,
}

/// One reading of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxView {
    /// Messages waiting.
    pub depth: usize,
    /// Messages refused because it was full.
    pub dropped: u64,
    /// Messages handled.
    pub handled: u64,
    /// Microseconds spent in handlers.
    pub busy_micros: u64,
    /// When the actor last came round, ms.
    pub last_progress: Millis,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), gauges: Arc::clone(&self.gauges) }
    }
}

impl<M> Mailbox<M> {
    /// A mailbox for at most `capacity` messages, the end that receives, and the actor's gauges.
    pub fn new(capacity: usize) -> (Self, mpsc::Receiver<M>, Arc<Gauges>) {
        let (sender, receiver) = mpsc::channel(capacity);
        let gauges = Arc::<Gauges>::default();
        (Self { sender, gauges: Arc::clone(&gauges) }, receiver, gauges)
    }

    /// Sends now or not at all; counts what is dropped. False when it was.
    pub fn try_send(&self, message: M) -> bool {
        let sent = self.sender.try_send(message).is_ok();
        if !sent {
            self.gauges.dropped.fetch_add(1, Relaxed);
        }
        sent
    }

    /// Waits for room. For control messages only. False when the actor has ended.
    pub async fn send(&self, message: M) -> bool {
        self.sender.send(message).await.is_ok()
    }

    /// The mailbox's figures.
    pub fn view(&self) -> MailboxView {
        MailboxView {
            depth: self.sender.max_capacity() - self.sender.capacity(),
            dropped: self.gauges.dropped.load(Relaxed),
            handled: self.gauges.handled.load(Relaxed),
            busy_micros: self.gauges.busy_micros.load(Relaxed),
            last_progress: self.gauges.last_progress.load(Relaxed),
        }
    }
}

impl Gauges {
    /// The actor came round at `now` after handling `messages` in `busy`.
    pub fn progress(&self, now: Millis, messages: u64, busy: std::time::Duration) {
        self.handled.fetch_add(messages, Relaxed);
        self.busy_micros.fetch_add(busy.as_micros() as u64, Relaxed);
        self.last_progress.store(now, Relaxed);
    }
}
