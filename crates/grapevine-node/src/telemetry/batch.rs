//! From whoever makes telemetry to the collector: a bounded queue and a thread of its own.
//!
//! Requests only ever try to put something into the queue. When it is full, because the collector is slow or
//! gone, what comes is dropped and counted.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc as blocking;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until};

use super::ExportError;
use crate::config::Batching;

thread_local! {
    /// Set on the threads that export: what they log is not exported.
    static EXPORTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread exports.
pub(super) fn is_exporter() -> bool {
    EXPORTS.get()
}

/// What became of one kind of telemetry since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Made.
    pub ended: u64,
    /// Taken by the collector.
    pub exported: u64,
    /// Given up because the collector did not take it.
    pub failed: u64,
    /// Dropped because too much waited.
    pub dropped: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    ended: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    pub(super) fn read(&self) -> ExportCounts {
        ExportCounts {
            ended: self.ended.load(Relaxed),
            exported: self.exported.load(Relaxed),
            failed: self.failed.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }

    pub(super) fn made(&self, n: u64) {
        self.ended.fetch_add(n, Relaxed);
    }
}

/// Where to put what is to be exported.
#[derive(Debug)]
pub(super) struct Queue<T> {
    sender: mpsc::Sender<T>,
    counts: Arc<Counts>,
}

impl<T> Queue<T> {
    /// Puts it there, or drops it.
    pub(super) fn push(&self, item: T) {
        self.counts.made(1);
        if self.sender.try_send(item).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

/// The thread that exports. When it is dropped without [`Worker::stop`], it ends by itself.
pub(super) struct Worker {
    stop: watch::Sender<bool>,
    ended: blocking::Receiver<()>,
}

impl Worker {
    /// A thread that runs `work` on `runtime`; the work ends soon after it is told to stop.
    pub(super) fn start<F, Fut>(name: &str, runtime: Runtime, work: F) -> Result<Self, ExportError>
    where
        F: FnOnce(watch::Receiver<bool>) -> Fut + Send + 'static,
        Fut: Future<Output = ()>,
    {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = blocking::channel();
        let run = move || {
            EXPORTS.set(true);
            runtime.block_on(work(stopped));
            let _ = end.send(());
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(ExportError::Thread)?;
        Ok(Self { stop, ended })
    }

    /// Has it export what waits, and end.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for its end, until `deadline`. Work that hangs is left behind with its thread.
    pub(super) fn ended(&self, deadline: Instant) -> bool {
        self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok()
    }
}

/// What an exporter's thread runs on.
pub(super) fn runtime() -> Result<Runtime, ExportError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ExportError::Thread)
}

/// Starts a thread that hands what is put into the queue to `export`, in batches.
pub(super) fn start<T, E>(
    what: &'static str,
    batching: Batching,
    runtime: Runtime,
    export: impl AsyncFn(Vec<T>) -> Result<(), E> + Send + 'static,
) -> Result<(Queue<T>, Worker), ExportError>
where
    T: Send + 'static,
    E: Display,
{
    let (sender, waiting) = mpsc::channel(batching.queue);
    let queue = Queue { sender, counts: Arc::default() };
    let ledger = Ledger { what, counts: queue.counts(), failing: Cell::new(false) };
    let work = move |stopped| run(waiting, stopped, batching, ledger, export);
    let worker = Worker::start(&format!("otlp-{what}"), runtime, work)?;
    Ok((queue, worker))
}

async fn run<T, E: Display>(
    mut waiting: mpsc::Receiver<T>,
    mut stopped: watch::Receiver<bool>,
    batching: Batching,
    ledger: Ledger,
    export: impl AsyncFn(Vec<T>) -> Result<(), E>,
) {
    let send = async |batch: Vec<T>| {
        let items = batch.len() as u64;
        ledger.note(items, &export(batch).await);
    };
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            received = waiting.recv_many(&mut batch, batching.batch) => if received == 0 { return },
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        let mut full_by = std::pin::pin!(sleep(batching.delay));
        while batch.len() < batching.batch {
            let room = batching.batch - batch.len();
            tokio::select! {
                received = waiting.recv_many(&mut batch, room) => {
                    if received == 0 { break }
                }
                () = &mut full_by => break,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            }
        }
        send(std::mem::take(&mut batch)).await;
    }
    while let Ok(item) = waiting.try_recv() {
        batch.push(item);
        if batch.len() == batching.batch {
            send(std::mem::take(&mut batch)).await;
        }
    }
    if !batch.is_empty() {
        send(batch).await;
    }
}

/// Counts what is delivered, and says when it stops and starts to work.
pub(super) struct Ledger {
    pub(super) what: &'static str,
    pub(super) counts: Arc<Counts>,
    pub(super) failing: Cell<bool>,
}

impl Ledger {
    pub(super) fn note<E: Display>(&self, items: u64, result: &Result<(), E>) {
        let counter = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        counter.fetch_add(items, Relaxed);
        let what = self.what;
        match (result, self.failing.replace(result.is_err())) {
            (Err(error), false) => {
                tracing::warn!(%error, "{what} cannot be exported; they are dropped and counted");
            }
            (Ok(()), true) => tracing::info!("{what} are exported again"),
            _ => {}
        }
    }
}

/// Calls `push` every `interval`, and once more at the end.
pub(super) async fn every<F: Future<Output = ()>>(
    interval: Duration,
    mut stopped: watch::Receiver<bool>,
    push: impl Fn() -> F,
) {
    let mut next = tokio::time::Instant::now() + interval;
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        push().await;
        next = (next + interval).max(tokio::time::Instant::now());
    }
    push().await;
}
