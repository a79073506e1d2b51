//! The state of one engine between two restarts, and what its requests do to it.
//!
//! One lock guards cache and counters; it is never held across an await, and for microseconds only.
//! Guards give back what a request holds however it ends: a [`Flight`] for each request, a
//! [`Ticket`] for each sequence.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

use super::cache::PrefixCache;
use super::config::EngineConfig;
use super::error::ApiError;
use super::fault::Faults;
use super::metrics::Scrape;
use super::stats::{Stats, Ttft};

/// How an engine's life goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Serving,
    /// In flight goes on, anything new is a 500, `/health` is 200.
    Draining,
    /// In flight ends with an error event.
    Dying,
}

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers in the order they came.
    pub headers: Vec<(String, String)>,
    /// Length of the body.
    pub body_bytes: u64,
    /// XXH3 of the body, 16 hex digits: [`super::digest`].
    pub body_digest: String,
}

pub(crate) struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) faults: Faults,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) prefill_lanes: Arc<Semaphore>,
    started: f64,
    next_id: AtomicU64,
    phase: watch::Sender<Phase>,
    flights: watch::Sender<u64>,
    state: Mutex<State>,
}

struct State {
    cache: PrefixCache,
    stats: Stats,
    ttft: Ttft,
    received: VecDeque<Received>,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, faults: Faults) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let lanes = if config.serial_prefill { 1 } else { config.slots };
        let cache = PrefixCache::new(config.cache_blocks);
        let stats = Stats { blocks_capacity: cache.capacity() as u64, ..Stats::default() };
        Self {
            slots: Arc::new(Semaphore::new(config.slots)),
            prefill_lanes: Arc::new(Semaphore::new(lanes)),
            started: since_epoch.as_secs_f64(),
            next_id: AtomicU64::new(0),
            phase: watch::Sender::new(Phase::Serving),
            flights: watch::Sender::new(0),
            state: Mutex::new(State { cache, stats, ttft: Ttft::default(), received: VecDeque::new() }),
            config,
            faults,
        }
    }

    /// Unix time of the start, seconds.
    pub(crate) fn started_seconds(&self) -> u64 {
        self.started as u64
    }

    /// A number that no other request of this engine has had.
    pub(crate) fn next_id(&self) -> u64 {
        xxh3_64(&self.next_id.fetch_add(1, Ordering::Relaxed).to_le_bytes()) ^ self.started.to_bits()
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Completes when the engine is dying.
    pub(crate) async fn dying(&self) {
        // An error would mean that the sender, in `self`, is gone.
        let _ = self.phase.subscribe().wait_for(|phase| *phase == Phase::Dying).await;
    }

    /// Completes when no request is in flight.
    pub(crate) async fn idle(&self) {
        let _ = self.flights.subscribe().wait_for(|flights| *flights == 0).await;
    }

    pub(crate) fn stats(&self) -> Stats {
        let state = self.lock();
        Stats {
            blocks_held: state.cache.len() as u64,
            blocks_evicted: state.cache.evicted(),
            ..state.stats.clone()
        }
    }

    /// Counts start again and the cache is empty, while requests in flight go on.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        state.cache = PrefixCache::new(self.config.cache_blocks);
        state.stats.reset();
        state.ttft = Ttft::default();
        state.received.clear();
    }

    pub(crate) fn metrics(&self) -> String {
        let (stats, ttft) = {
            let state = self.lock();
            (state.stats.clone(), state.ttft.clone())
        };
        let frozen = self.faults.frozen_gauges();
        Scrape { config: &self.config, stats: &stats, ttft: &ttft, started: self.started, frozen }.render()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.lock().stats);
    }

    pub(crate) fn record(&self, received: impl FnOnce() -> Received) {
        if self.config.record_requests == 0 {
            return;
        }
        let mut state = self.lock();
        if state.received.len() >= self.config.record_requests {
            state.received.pop_front();
        }
        state.received.push_back(received());
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.lock().received.iter().cloned().collect()
    }

    /// Takes a request of so many sequences in, or refuses it because the queue is full.
    pub(crate) fn admit(
        self: &Arc<Self>,
        sequences: usize,
        arrived: Instant,
    ) -> Result<(Arc<Flight>, Vec<Ticket>), ApiError> {
        if self.phase() != Phase::Serving {
            self.count(|stats| stats.rejected += 1);
            return Err(ApiError::draining());
        }
        let mut state = self.lock();
        let stats = &mut state.stats;
        let room = (self.config.slots + self.config.max_queue) as u64;
        if stats.running + stats.waiting + sequences as u64 > room {
            stats.rejected += 1;
            return Err(ApiError::busy());
        }
        stats.waiting += sequences as u64;
        stats.max_waiting = stats.max_waiting.max(stats.waiting);
        drop(state);
        self.flights.send_modify(|flights| *flights += 1);
        let tickets =
            (0..sequences).map(|_| Ticket { core: Arc::clone(self), stage: Stage::Waiting }).collect();
        Ok((Arc::new(Flight::new(Arc::clone(self), arrived)), tickets))
    }

    /// How many of the chain's blocks are cached.
    pub(crate) fn lookup(&self, chain: &[u64], prompt_tokens: u64) -> u64 {
        let mut state = self.lock();
        let hit = state.cache.lookup(chain) as u64;
        state.stats.blocks_queried += chain.len() as u64;
        state.stats.blocks_hit += hit;
        state.stats.prompt_tokens += prompt_tokens;
        hit
    }

    pub(crate) fn insert(&self, chain: &[u64]) {
        self.lock().cache.insert(chain);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a request ended; if nobody says, its client left.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Ending {
    Aborted,
    Complete,
    Failed,
}

/// A request that was taken in. Dropped before it was said how it ended, it counts as aborted.
pub(crate) struct Flight {
    core: Arc<Core>,
    arrived: Instant,
    first_token: AtomicBool,
    ending: AtomicU8,
}

impl Flight {
    fn new(core: Arc<Core>, arrived: Instant) -> Self {
        let ending = AtomicU8::new(Ending::Aborted as u8);
        Self { core, arrived, first_token: AtomicBool::new(false), ending }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// A token is there; the first one is timed.
    pub(crate) fn token(&self) {
        if !self.first_token.swap(true, Ordering::Relaxed) {
            let seconds = self.arrived.elapsed().as_secs_f64();
            self.core.lock().ttft.observe(seconds);
        }
    }

    /// The answer is whole.
    pub(crate) fn complete(&self) {
        self.ending.store(Ending::Complete as u8, Ordering::Relaxed);
    }

    /// The engine broke the answer off.
    pub(crate) fn fail(&self) {
        self.ending.store(Ending::Failed as u8, Ordering::Relaxed);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let ending = self.ending.load(Ordering::Relaxed);
        self.core.count(|stats| {
            stats.completed += u64::from(ending == Ending::Complete as u8);
            stats.aborted += u64::from(ending == Ending::Aborted as u8);
        });
        self.core.flights.send_modify(|flights| *flights = flights.saturating_sub(1));
    }
}

/// A sequence's place among the waiting or the running.
pub(crate) struct Ticket {
    core: Arc<Core>,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Waiting,
    Running { blocks: u64 },
}

impl Ticket {
    /// From waiting to running, on so many blocks.
    pub(crate) fn run(&mut self, blocks: u64) {
        let mut state = self.core.lock();
        let stats = &mut state.stats;
        stats.waiting = stats.waiting.saturating_sub(1);
        stats.running += 1;
        stats.max_running = stats.max_running.max(stats.running);
        stats.blocks_in_use += blocks;
        self.stage = Stage::Running { blocks };
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let stage = self.stage;
        self.core.count(|stats| match stage {
            Stage::Waiting => stats.waiting = stats.waiting.saturating_sub(1),
            Stage::Running { blocks } => {
                stats.running = stats.running.saturating_sub(1);
                stats.blocks_in_use = stats.blocks_in_use.saturating_sub(blocks);
            }
        });
    }
}
