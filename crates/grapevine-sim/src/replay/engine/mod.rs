//! A model of one engine replica: what it keeps, in which order it works, how long that takes.
//!
//! - Requests wait in one queue, first come first served. One is prefilled at a time: a fixed cost
//!   plus its uncached tokens at the prefill rate. Real engines interleave chunks of several
//!   prefills; the mean wait is close, the order of first tokens the same.
//! - The cache is looked up when a request's prefill starts, not when it arrives: real schedulers ask
//!   when they admit a request from the queue. What it prefills is there for the next one at once,
//!   as in vLLM, which names blocks when it schedules them. Only full blocks count, and never the
//!   whole prompt: at least one token is computed.
//! - A request pins its blocks until it ends; then the tail becomes evictable before the head. One
//!   whose blocks have no room waits, and all behind it.
//! - Decoding takes a time per token that grows with the requests running at its start.
//!
//! Left out: what answers leave in the cache (a trace's prompts say which blocks the next turn
//! shares, answers included, and those are prefilled there once), preemption, chunked prefill
//! slowing down decoding.

pub mod cache;

use std::collections::VecDeque;

use self::cache::BlockCache;
use super::trace::{Call, Trace};

/// Microseconds of virtual time since the start of the replay.
pub type Micros = u64;

/// Speeds and sizes of an engine replica.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// Prefix cache, tokens.
    pub cache_tokens: u64,
    /// Tokens prefilled a second.
    pub prefill_rate: f64,
    /// Cost of a request beside its prefill.
    pub prefill_fixed: Micros,
    /// Time for one output token of a request that runs alone.
    pub decode_token: Micros,
    /// More of it for each other request that runs.
    pub decode_share: Micros,
    /// Most requests that run at once.
    pub max_running: usize,
}

/// A prefill that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefill {
    /// Which call.
    pub call: usize,
    /// Prompt tokens found in the cache.
    pub cached_tokens: u32,
    /// When its first token is out.
    pub first_token_at: Micros,
}

/// One engine replica.
#[derive(Debug)]
pub struct Engine {
    cache: BlockCache,
    waiting: VecDeque<usize>,
    prefilling: bool,
    running: usize,
    /// Requests that were sent here.
    pub requests: u64,
    /// Tokens that were prefilled here.
    pub prefilled_tokens: u64,
}

impl Engine {
    /// An engine with an empty cache.
    pub fn new(spec: &EngineSpec, trace: &Trace) -> Self {
        let blocks = (spec.cache_tokens / u64::from(trace.block_tokens)).max(1) as usize;
        Self {
            cache: BlockCache::new(blocks, trace.ids),
            waiting: VecDeque::new(),
            prefilling: false,
            running: 0,
            requests: 0,
            prefilled_tokens: 0,
        }
    }

    /// A request is here. Call [`Self::start`] next.
    pub fn arrive(&mut self, call: usize) {
        self.requests += 1;
        self.waiting.push_back(call);
    }

    /// Starts the next prefill if one can start.
    pub fn start(&mut self, spec: &EngineSpec, trace: &Trace, now: Micros) -> Option<Prefill> {
        if self.prefilling || self.running >= spec.max_running {
            return None;
        }
        let &index = self.waiting.front()?;
        let call = &trace.calls[index];
        let cached_tokens = cached_tokens(&self.cache, call, trace.block_tokens);
        if !self.cache.admit(&call.runs) {
            return None;
        }
        self.waiting.pop_front();
        self.prefilling = true;
        self.running += 1;
        let uncached = call.input_tokens - cached_tokens;
        self.prefilled_tokens += u64::from(uncached);
        let prefill = (f64::from(uncached) / spec.prefill_rate * 1e6) as Micros;
        Some(Prefill { call: index, cached_tokens, first_token_at: now + spec.prefill_fixed + prefill })
    }

    /// A prefill is done. Gives when the request will be. Call [`Self::start`] next.
    pub fn prefilled(&mut self, spec: &EngineSpec, call: &Call, now: Micros) -> Micros {
        self.prefilling = false;
        let others = self.running as Micros - 1;
        let token = spec.decode_token + spec.decode_share * others;
        now + token * Micros::from(call.output_tokens.saturating_sub(1))
    }

    /// A request is done. Call [`Self::start`] next.
    pub fn finish(&mut self, call: &Call) {
        self.running -= 1;
        self.cache.release(&call.runs);
    }

    /// Its cache is emptied. Running requests keep what they use.
    pub fn reset(&mut self) {
        self.cache.drop_idle();
    }

    /// Requests that wait for their prefill to start.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Share of the cache that running requests use.
    pub fn kv_use(&self) -> f64 {
        self.cache.pinned() as f64 / self.cache.capacity() as f64
    }
}

/// Tokens of `call`'s prompt that `cache` spares it.
pub fn cached_tokens(cache: &BlockCache, call: &Call, block_tokens: u32) -> u32 {
    let whole = call.input_tokens.saturating_sub(1) / block_tokens;
    (cache.hits(&call.runs) as u32).min(whole) * block_tokens
}
