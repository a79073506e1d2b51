//! Agents' calls with full text: one JSON line a call with `timestamp` (microseconds), `input`,
//! `output` and `session_id`.

use std::collections::HashMap;

use serde::Deserialize;

use super::lines::Source;
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
pub(super) fn read(sources: &[Source], options: &ReadOptions) -> Trace {
    let mut trace = Trace { block_tokens: text::BLOCK_TOKENS, ..Trace::default() };
    let mut lines: Vec<Line> = Vec::new();
    for (source, (at, text)) in sources.iter().flat_map(|s| s.lines().map(move |line| (s, line))) {
        match serde_json::from_slice(text) {
            Ok(line) => lines.push(line),
            Err(e) => trace.rejected.note(source, at, e),
        }
    }
    lines.sort_by_key(|line| line.timestamp);
    lines.truncate(options.limit);
    let began = lines.first().map_or(0, |line| line.timestamp);
    let mut blocks = Blocks::default();
    let mut sessions = HashMap::new();
    for line in &lines {
        let next = sessions.len() as u32;
        let session = *sessions.entry(line.session_id.as_str()).or_insert(next);
        let input = line.input.as_bytes();
        trace.calls.push(Call {
            session,
            start: Start::At(line.timestamp - began),
            input_tokens: text::tokens(input),
            output_tokens: text::tokens(line.output.as_bytes()),
            runs: blocks.runs(input),
            key: text::key(input),
        });
    }
    trace
}
