//! Recorded traffic, in whatever form it comes, as calls that can be replayed.
//!
//! | form | prompt | engine blocks | clock |
//! |---|---|---|---|
//! | block ids (`blocks`) | each id a fixed pseudo-random text | the ids | start times and closed-loop gates |
//! | agents' calls (`agents`) | full text | 16 tokens of text | time stamps |
//! | OpenAI request log (`openai`) | the body, through the real extractor | 16 tokens of the rendered chat | time stamps, or a fixed rate |
//!
//! Any of them plain or xz; agents also as a tar of one file per session. Lines that cannot be used
//! are counted and reported with their number; a file of nothing else is an error.

mod agents;
mod blocks;
mod lines;
mod openai;
mod render;
mod synth;
mod text;

use std::path::Path;

use grapevine_tree::{KeySeed, PrefixKey};

use self::lines::Source;
use super::engine::Micros;

pub use self::lines::Rejected;

/// Key of the hash chain. Any constant does.
const SEED: KeySeed = KeySeed(0x7265_706c_6179);

/// Bytes of text for one token, in every text that stands for tokens here.
pub const BYTES_PER_TOKEN: usize = 4;

/// When a call starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At a time of its own.
    At(Micros),
    /// Some time after another call, which stands before it in the trace.
    After {
        /// Position of that call in [`Trace::calls`].
        parent: usize,
        /// What of that call.
        gate: Gate,
        /// How long after that.
        delay: Micros,
    },
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The end of its parent's answer.
    Finish,
    /// Its parent's arrival.
    Arrival,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose.
    pub session: u32,
    /// When.
    pub start: Start,
    /// Prompt length.
    pub input_tokens: u32,
    /// Answer length.
    pub output_tokens: u32,
    /// The prompt's full blocks, as runs of ids; an equal id means an equal prefix up to there.
    pub runs: Box<[(u32, u32)]>,
    /// The key that a router makes of it.
    pub key: PrefixKey,
}

/// A trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Tokens of a block.
    pub block_tokens: u32,
    /// The calls, parents before their children.
    pub calls: Vec<Call>,
    /// All block ids are below this.
    pub ids: usize,
    /// Blocks that occur.
    pub distinct_blocks: u64,
    /// Lines that could not be used.
    pub rejected: Rejected,
}

/// How to read what a file does not say.
#[derive(Clone, Copy, Debug)]
pub struct ReadOptions {
    /// Requests a second where there are no time stamps.
    pub rate: f64,
    /// Answer length where none is given, tokens.
    pub output_tokens: u32,
    /// Read no more calls than this.
    pub limit: usize,
}

/// A trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what its head says.
    #[error("cannot unpack {path}: {reason}")]
    Unpack {
        /// Which file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Nothing in the file is a request.
    #[error("no usable request in {path}: {rejected}")]
    Empty {
        /// Which file.
        path: String,
        /// What was wrong with its lines.
        rejected: Rejected,
    },
}

impl Trace {
    /// Reads a trace of any known form.
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self, TraceError> {
        let sources = lines::sources(path)?;
        let mut trace = Self::parse(&sources, options);
        if trace.calls.is_empty() {
            let path = path.display().to_string();
            return Err(TraceError::Empty { path, rejected: trace.rejected });
        }
        trace.count_blocks();
        Ok(trace)
    }

    fn parse(sources: &[Source], options: &ReadOptions) -> Self {
        let first = sources.iter().flat_map(Source::lines).find_map(|(_, line)| lines::object(line).ok());
        let has = |name: &str| first.as_ref().is_some_and(|object| object.contains_key(name));
        if has("meta") || has("runs") {
            blocks::read(sources, options)
        } else if has("input") && has("output") && has("session_id") {
            agents::read(sources, options)
        } else {
            openai::read(sources, options)
        }
    }

    fn count_blocks(&mut self) {
        let end = |call: &Call| call.runs.iter().map(|&(first, count)| first + count).max().unwrap_or(0);
        self.ids = self.calls.iter().map(end).max().unwrap_or(0) as usize;
        let mut seen = vec![false; self.ids];
        for &(first, count) in self.calls.iter().flat_map(|call| call.runs.iter()) {
            seen[first as usize..(first + count) as usize].fill(true);
        }
        self.distinct_blocks = seen.iter().filter(|&&seen| seen).count() as u64;
    }

    /// Tokens in all distinct blocks.
    pub fn working_set_tokens(&self) -> u64 {
        self.distinct_blocks * u64::from(self.block_tokens)
    }
}

/// Seconds to microseconds.
fn micros(seconds: f64) -> Micros {
    (seconds * 1e6).round() as Micros
}
