//! Recorded traffic, in whatever form it comes, as calls that can be replayed.
//!
//! | form | prompt | engine blocks | clock |
//! |---|---|---|---|
//! | block ids (`blocks`) | each id a fixed pseudo-random text | the ids | start times and closed-loop gates |
//! | agents' calls (`agents`) | full text | 16 tokens of text | time stamps |
//! | decision log (`decisions`) | the hashes of its boundaries | 32 tokens, by hash | time stamps |
//! | OpenAI request log (`openai`) | the body, through the real extractor | 16 tokens of the rendered chat | time stamps, or a fixed rate |
//!
//! Any of them plain, gzip or xz; a tar or a directory of them counts as one, files by name. Lines that
//! cannot be used are counted and reported with their number; a file of nothing else is an error.
//!
//! Text is not kept: of a call its key and the ids of its blocks remain, about 1 KiB. Each distinct
//! block of text (64 B) costs 24 B here and 12 B in every replica's cache.

mod agents;
mod blocks;
mod decisions;
mod lines;
mod openai;
mod render;
mod synth;
mod text;
mod time;

use std::ops::ControlFlow;
use std::path::Path;

use grapevine_tree::{KeySeed, PrefixKey};

use self::lines::{Place, TooLong};
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
    /// Tokens of an engine's cache block where the trace is text.
    pub block_tokens: u32,
    /// Read no more calls than this.
    pub limit: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { rate: 4.0, output_tokens: 256, block_tokens: 16, limit: usize::MAX }
    }
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
        let mut reader = Reader::new(*options);
        lines::feed(path, &mut |place, line| reader.line(place, line))?;
        let trace = reader.end();
        if trace.calls.is_empty() {
            let path = path.display().to_string();
            return Err(TraceError::Empty { path, rejected: trace.rejected });
        }
        Ok(trace)
    }

    #[cfg(test)]
    fn of_text(text: &str, options: &ReadOptions) -> Self {
        let mut reader = Reader::new(*options);
        lines::each(text, &mut |place, line| reader.line(place, line));
        reader.end()
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

/// Reads lines of whatever form the first good one is.
struct Reader {
    options: ReadOptions,
    form: Form,
    rejected: Rejected,
}

/// The forms, and how a line tells them.
enum Form {
    /// Nothing good so far.
    Unknown,
    Blocks(blocks::Reader),
    Agents(agents::Reader),
    Decisions(decisions::Reader),
    OpenAi(Box<openai::Reader>),
}

impl Reader {
    fn new(options: ReadOptions) -> Self {
        Self { options, form: Form::Unknown, rejected: Rejected::default() }
    }

    fn line(&mut self, place: Place<'_>, line: Result<&[u8], TooLong>) -> ControlFlow<()> {
        let read = line.map_err(|e| e.to_string()).and_then(|text| self.form_of(text)?.line(text));
        if let Err(reason) = read {
            self.rejected.note(place, reason);
            if let (Err(TooLong), Form::Blocks(reader)) = (line, &mut self.form) {
                reader.skip();
            }
        }
        match self.form.len() >= self.options.limit {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The form, told by this line if by none before.
    fn form_of(&mut self, text: &[u8]) -> Result<&mut Form, String> {
        if let Form::Unknown = self.form {
            let first = lines::object(text)?;
            let has = |name: &str| first.contains_key(name);
            self.form = if has("meta") || has("runs") {
                let mut reader = blocks::Reader::default();
                (0..self.rejected.count).for_each(|_| reader.skip());
                Form::Blocks(reader)
            } else if has("input") && has("output") && has("session_id") {
                Form::Agents(agents::Reader::new(&self.options))
            } else if has("key") && has("reason") && has("replica") {
                Form::Decisions(decisions::Reader::default())
            } else {
                Form::OpenAi(Box::new(openai::Reader::new(&self.options)))
            };
        }
        Ok(&mut self.form)
    }

    fn end(self) -> Trace {
        let mut trace = match self.form {
            Form::Unknown => Trace::default(),
            Form::Blocks(reader) => reader.end(),
            Form::Agents(reader) => reader.end(&self.options),
            Form::Decisions(reader) => reader.end(&self.options),
            Form::OpenAi(reader) => reader.end(&self.options),
        };
        trace.rejected = self.rejected;
        trace.count_blocks();
        trace
    }
}

impl Form {
    fn line(&mut self, text: &[u8]) -> Result<(), String> {
        match self {
            Self::Unknown => Ok(()),
            Self::Blocks(reader) => reader.line(text),
            Self::Agents(reader) => reader.line(text),
            Self::Decisions(reader) => reader.line(text),
            Self::OpenAi(reader) => reader.line(text),
        }
    }

    /// Calls that will be kept however many follow: agents' are not in the order of time.
    fn len(&self) -> usize {
        match self {
            Self::Unknown | Self::Agents(_) => 0,
            Self::Blocks(reader) => reader.len(),
            Self::Decisions(reader) => reader.len(),
            Self::OpenAi(reader) => reader.len(),
        }
    }
}

/// Seconds to microseconds.
fn micros(seconds: f64) -> Micros {
    (seconds * 1e6).round() as Micros
}
