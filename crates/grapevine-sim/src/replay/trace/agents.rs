//! Agents' calls with full text: one JSON line a call with `timestamp` (microseconds), `input`,
//! `output` and `session_id`.

use std::collections::HashMap;

use serde::Deserialize;

use super::text::{self, Blocks};
use super::{Call, ReadOptions, Start, Trace};
use crate::replay::engine::Micros;

#[derive(Deserialize)]
struct Line {
    timestamp: Micros,
    input: String,
    #[serde(default)]
    output: String,
    session_id: String,
}

/// Reads agents' calls.
#[derive(Debug)]
pub(super) struct Reader {
    /// Time stamps and calls, as they come.
    calls: Vec<(Micros, Call)>,
    blocks: Blocks,
    sessions: HashMap<String, u32>,
}

impl Reader {
    pub(super) fn new(options: &ReadOptions) -> Self {
        Self { calls: Vec::new(), blocks: Blocks::new(options.block_tokens), sessions: HashMap::new() }
    }

    pub(super) fn line(&mut self, text: &[u8]) -> Result<(), String> {
        let line: Line = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        let next = self.sessions.len() as u32;
        let input = line.input.as_bytes();
        let call = Call {
            session: *self.sessions.entry(line.session_id).or_insert(next),
            start: Start::At(0),
            input_tokens: text::tokens(input),
            output_tokens: text::tokens(line.output.as_bytes()),
            runs: self.blocks.runs(input),
            key: text::key(input),
        };
        self.calls.push((line.timestamp, call));
        Ok(())
    }

    /// The first calls in the order of time.
    pub(super) fn end(mut self, options: &ReadOptions) -> Trace {
        self.calls.sort_by_key(|(at, _)| *at);
        self.calls.truncate(options.limit);
        let began = self.calls.first().map_or(0, |(at, _)| *at);
        let started = |(at, call)| Call { start: Start::At(at - began), ..call };
        let calls = self.calls.into_iter().map(started).collect();
        Trace { block_tokens: options.block_tokens, calls, ..Trace::default() }
    }
}
