//! What an engine counts.

use serde::{Deserialize, Serialize};

/// Bounds of the time-to-first-token histogram, seconds: vLLM's.
pub(crate) const TTFT_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];

/// An engine's counters, as `/stats` gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stats {
    /// Completions asked for, refused ones too.
    pub requests: u64,
    /// Those of them that were to be streamed.
    pub streams: u64,
    /// Requests answered to their end.
    pub completed: u64,
    /// Requests whose client left before their end.
    pub aborted: u64,
    /// Requests refused because the queue was full or the engine draining.
    pub rejected: u64,
    /// Requests that made no sense.
    pub bad_requests: u64,
    /// Requests that suffered a fault on demand.
    pub faulted: u64,
    /// Sequences in prefill or decode.
    pub running: u64,
    /// Sequences waiting for a slot or for their prefill.
    pub waiting: u64,
    /// Most sequences that ever ran at once.
    pub max_running: u64,
    /// Most sequences that ever waited at once.
    pub max_waiting: u64,
    /// Prompt blocks looked up in the cache.
    pub blocks_queried: u64,
    /// Those of them that were found.
    pub blocks_hit: u64,
    /// Blocks in the cache.
    pub blocks_held: u64,
    /// Blocks the cache can hold.
    pub blocks_capacity: u64,
    /// Blocks dropped for want of room.
    pub blocks_evicted: u64,
    /// Blocks of sequences that run.
    pub blocks_in_use: u64,
    /// Prompt tokens prefilled or found.
    pub prompt_tokens: u64,
    /// Output tokens.
    pub generated_tokens: u64,
    /// Sequences ended at their own end.
    pub finished_stop: u64,
    /// Sequences ended at the client's limit.
    pub finished_length: u64,
    /// Connections accepted since the engine started.
    pub connections: u64,
}

impl Stats {
    /// Share of the blocks looked up that were found, 0 to 1; 0 before the first.
    pub fn hit_rate(&self) -> f64 {
        if self.blocks_queried == 0 { 0.0 } else { self.blocks_hit as f64 / self.blocks_queried as f64 }
    }

    /// The counts start again; what is going on now stays.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            running: self.running,
            waiting: self.waiting,
            max_running: self.running,
            max_waiting: self.waiting,
            blocks_in_use: self.blocks_in_use,
            blocks_capacity: self.blocks_capacity,
            ..Self::default()
        };
    }
}

/// A histogram of times to first token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ttft {
    counts: [u64; TTFT_BOUNDS.len()],
    pub(crate) count: u64,
    pub(crate) sum_seconds: f64,
}

impl Ttft {
    pub(crate) fn observe(&mut self, seconds: f64) {
        self.count += 1;
        self.sum_seconds += seconds;
        for (count, bound) in self.counts.iter_mut().zip(TTFT_BOUNDS) {
            *count += u64::from(seconds <= bound);
        }
    }

    /// Upper bounds and how many took at most so long.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        TTFT_BOUNDS.into_iter().zip(self.counts)
    }
}
