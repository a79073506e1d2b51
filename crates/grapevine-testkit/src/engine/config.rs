//! Everything that can be set on a simulated engine.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::fault::FaultRule;
use super::text::TOKEN_BYTES;

/// The model that an engine serves unless told otherwise.
pub const DEFAULT_MODEL: &str = "mock-model";

/// Prefill speed of the default engine: a mid-size model on one GPU.
pub const DEFAULT_PREFILL_TOKENS_PER_SECOND: f64 = 12_000.0;

/// A simulated engine's settings. The defaults resemble one GPU with a mid-size model.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Where to listen. Port 0 takes a free one. Default `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Models served; the first answers requests that name none. Default `mock-model`.
    pub models: Vec<String>,
    /// Key that `/v1` requests must carry as a bearer token. Default none.
    pub api_key: Option<Secret>,
    /// Blocks in the prefix cache; 0 switches it off. Default 4096 (65,536 tokens).
    pub cache_blocks: usize,
    /// Bytes of prompt in a block, four of which make a token. Default 64.
    pub block_bytes: usize,
    /// Time every prefill takes, however much is cached. Default 1 ms.
    pub base: Duration,
    /// Prefill time of a block that is not cached. Default 1.333 ms (12,000 tokens a second).
    pub prefill_per_block: Duration,
    /// One prefill at a time, first come first served, as on one GPU. Default true.
    pub serial_prefill: bool,
    /// Time from one output token to the next. Default 10 ms.
    pub decode_per_token: Duration,
    /// Sequences in prefill and decode at the same time. Default 64.
    pub slots: usize,
    /// Sequences that may wait for a slot; one more gets a 503. Default 4096.
    pub max_queue: usize,
    /// Longest prompt, in tokens. Default 131,072.
    pub max_model_tokens: u64,
    /// Output tokens of a request that sets no limit. Default 64.
    pub default_max_tokens: u32,
    /// Output tokens enter the cache, for the next turn of a conversation. Default true.
    pub cache_output: bool,
    /// `usage.prompt_tokens_details` is given (vLLM has a flag for it, off by default). Default true.
    pub prompt_tokens_details: bool,
    /// A connection idle for so long is closed. Default 5 s, as in vLLM, SGLang and llama.cpp.
    pub keep_alive_idle: Duration,
    /// Requests whose head and body digest are remembered, for tests to look at. Default 0.
    pub record_requests: usize,
    /// Faults from the start on. Default none.
    pub faults: Vec<FaultRule>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            models: vec![DEFAULT_MODEL.to_owned()],
            api_key: None,
            cache_blocks: 4096,
            block_bytes: 64,
            base: Duration::from_millis(1),
            prefill_per_block: prefill_per_block(DEFAULT_PREFILL_TOKENS_PER_SECOND, 64),
            serial_prefill: true,
            decode_per_token: Duration::from_millis(10),
            slots: 64,
            max_queue: 4096,
            max_model_tokens: 131_072,
            default_max_tokens: 64,
            cache_output: true,
            prompt_tokens_details: true,
            keep_alive_idle: Duration::from_secs(5),
            record_requests: 0,
            faults: Vec::new(),
        }
    }
}

impl EngineConfig {
    /// An engine that takes no time to prefill or decode: for tests of what is said, not of when.
    pub fn instant() -> Self {
        Self {
            base: Duration::ZERO,
            prefill_per_block: Duration::ZERO,
            decode_per_token: Duration::ZERO,
            ..Self::default()
        }
    }

    /// Tokens in one block.
    pub fn block_tokens(&self) -> u64 {
        (self.block_bytes / TOKEN_BYTES) as u64
    }
}

/// Prefill time of one block at a speed given in tokens a second.
pub fn prefill_per_block(tokens_per_second: f64, block_bytes: usize) -> Duration {
    let tokens = (block_bytes / TOKEN_BYTES) as f64;
    Duration::try_from_secs_f64(tokens / tokens_per_second).unwrap_or(Duration::ZERO)
}

/// A string that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Does `candidate` equal it?
    pub fn matches(&self, candidate: &str) -> bool {
        self.0 == candidate
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl FromStr for Secret {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
