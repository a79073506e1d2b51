//! The tokio runtime and the signals that end it.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit code of a process that a signal ended: 128 + SIGINT, as shells have it.
const EXIT_SIGNAL: i32 = 130;

/// A runtime with `workers` threads; 0 = one per core.
pub(crate) fn build(workers: usize) -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if workers > 0 {
        builder.worker_threads(workers);
    }
    builder.thread_name("grapevine").enable_all().build()
}

/// SIGTERM and SIGINT.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Catches them from now on. Within the runtime.
    pub(crate) fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Completes with the first signal. The second then ends the process at once.
    pub(crate) async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            tracing::warn!("second signal; ending at once");
            std::process::exit(EXIT_SIGNAL);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
