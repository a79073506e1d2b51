//! A simulated inference engine, made to test routers with.
//!
//! It speaks vLLM's dialect of the OpenAI API, has a prefix cache of real blocks, takes the time that
//! prefill and decode would take, and breaks on demand. What it answers follows from the prompt, what
//! it found in its cache stands in `usage`, in `/metrics` and in `/stats`.
//!
//! ```no_run
//! # async fn demo() -> std::io::Result<()> {
//! use grapevine_testkit::engine::{Engine, EngineConfig, Fault, FaultRule};
//!
//! let engine = Engine::start(EngineConfig { cache_blocks: 1340, ..EngineConfig::default() }).await?;
//! engine.faults().add(FaultRule::next(Fault::Stall { after_events: 3 }, 1));
//! println!("{} {:?}", engine.url(), engine.stats());
//! engine.stop().await;
//! # Ok(())
//! # }
//! ```

mod body;
mod cache;
mod cli;
mod config;
mod control;

mod error;
mod fault;
mod generate;
mod gzip;
mod idle;
mod metrics;
mod prompt;
mod request;
mod routes;
mod sequence;
mod server;
mod shape;
mod state;
mod stats;
mod stream;
mod text;
mod wire;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use cache::{PrefixCache, block_hashes};
pub use cli::{EngineArgs, run_engine};
pub use config::{DEFAULT_MODEL, DEFAULT_PREFILL_TOKENS_PER_SECOND, EngineConfig, Secret, prefill_per_block};
pub use fault::{CutHow, Fault, FaultRule, Faults, MAX_RULES};
pub use prompt::render_message;
pub use state::Received;
pub use stats::Stats;
pub use text::{TOKEN_BYTES, answer, digest, tokens_of};

use self::server::ServerHandle;
use self::state::Phase;

/// How long requests in flight have for their error event when the engine dies.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts engines.
pub struct Engine;

impl Engine {
    /// Starts an engine on the current tokio runtime. It stops when its handle is stopped or dropped.
    pub async fn start(config: EngineConfig) -> io::Result<EngineHandle> {
        let (server, addr, faults) = server::spawn(config).await?;
        Ok(EngineHandle { server, addr, faults })
    }
}

/// A running engine.
pub struct EngineHandle {
    server: ServerHandle,
    addr: SocketAddr,
    faults: Faults,
}

impl EngineHandle {
    /// `http://address:port`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its counters since the last restart or reset.
    pub fn stats(&self) -> Stats {
        self.server.core().stats()
    }

    /// Its faults, to be set while it runs.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The last requests, as many as [`EngineConfig::record_requests`] says, oldest first.
    pub fn received(&self) -> Vec<Received> {
        self.server.core().received()
    }

    /// Empties the cache and starts the counters again; requests in flight go on.
    pub fn reset(&self) {
        self.server.core().reset();
    }

    /// The process dies and comes back at once: connections end, cache and counters are gone,
    /// `process_start_time_seconds` is new. Faults stay.
    pub async fn restart_empty(&self) {
        self.server.restart(Duration::ZERO).await;
    }

    /// The same, with connections refused for `down` in between.
    pub async fn restart_after(&self, down: Duration) {
        self.server.restart(down).await;
    }

    /// Ends as vLLM does on SIGTERM: for `grace` what is in flight goes on while anything new gets a
    /// 500 and `/health` a 200; what is left then gets an error event.
    pub async fn shut_down(&self, grace: Duration) {
        let core = self.server.core();
        core.enter(Phase::Draining);
        // A timeout is the expected end of a drain that takes too long.
        let _ = tokio::time::timeout(grace, core.idle()).await;
        core.enter(Phase::Dying);
        let _ = tokio::time::timeout(LAST_WORDS, core.idle()).await;
        self.server.stop().await;
    }

    /// Ends at once, as a killed process does.
    pub async fn stop(&self) {
        self.server.stop().await;
    }
}
