//! What one seed came to.

use serde::{Deserialize, Serialize};

use super::gauges::Gauges;
use crate::replay::engine::Micros;

/// Violations that are kept; a broken run breaks everything.
const MOST_VIOLATIONS: usize = 20;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// When, in virtual milliseconds.
    pub at_ms: u64,
    /// What.
    pub what: String,
}

/// Counts of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// Requests that no replica took.
    pub failed: u64,
    /// Requests that died with a router or a replica.
    pub broken: u64,
    /// Prompt tokens of requests that were prefilled after the first third of the run.
    pub input_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// The same for one router with the same traffic, replicas and their crashes.
    pub single_input_tokens: u64,
    /// See `single_input_tokens`.
    pub single_cached_tokens: u64,
    /// Time until the last peer knew a new prefix, for each that was followed.
    pub spread_us: Vec<Micros>,
    /// Bytes of tree entries that routers told.
    pub delta_bytes: u64,
    /// Bytes of values that routers published, load and all: each goes to each peer once.
    pub published_bytes: u64,
    /// Bytes that routers sent, in datagrams and over HTTP, everything included.
    pub wire_bytes: u64,
    /// Bytes of datagrams that a router sends in a second when nothing happens.
    pub idle_bytes_per_router_s: f64,
    /// Prefixes looked up on all routers after quiet, and those that they agreed on.
    pub compared: u64,
    /// See `compared`.
    pub agreed: u64,
    /// Virtual time.
    pub lasted_us: Micros,
    /// What was held in memory each minute, if it was looked at.
    pub gauges: Vec<Gauges>,
    /// CPU of the whole run, if it was measured.
    pub cpu_ns: u64,
    /// CPU of requests, engines and checks: what is no gossip.
    pub driver_cpu_ns: u64,
    /// Times that routers started.
    pub starts: u32,
    /// What must never be.
    pub violations: Vec<Violation>,
    /// Violations, also those that were not kept.
    pub violated: u64,
    /// Digest of everything that happened.
    pub trace: String,
    /// How much that was.
    pub events: u64,
}

impl Outcome {
    /// Notes that something is what must never be.
    pub(super) fn violate(&mut self, at: Micros, what: String) {
        self.violated += 1;
        if self.violations.len() < MOST_VIOLATIONS {
            self.violations.push(Violation { at_ms: at / 1_000, what });
        }
    }

    /// Share of prompt tokens found in caches.
    pub fn hit_rate(&self) -> f64 {
        share(self.cached_tokens, self.input_tokens)
    }

    /// The same with one shared tree.
    pub fn hit_rate_single(&self) -> f64 {
        share(self.single_cached_tokens, self.single_input_tokens)
    }
}

/// `part` of `whole`; 0 of nothing.
pub(super) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
