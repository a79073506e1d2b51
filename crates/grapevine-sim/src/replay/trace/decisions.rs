//! A router's decision log: the hashes of each prompt's boundaries are its key, so the replay decides on
//! exactly what the router decided on, without a word of the prompt.
//!
//! An engine's cache blocks are the finest step between boundaries. Two prompts share a boundary's blocks
//! when they have its hash.

use std::collections::HashMap;

use grapevine_tree::{PrefixKey, boundary};
use serde::Deserialize;

use super::{BYTES_PER_TOKEN, Call, ReadOptions, Start, Trace};
use crate::replay::engine::Micros;

/// Tokens of a block.
const BLOCK_TOKENS: u32 = (boundary::STEP / BYTES_PER_TOKEN) as u32;

/// All ids are below this; see `blocks`.
const MAX_ID: u32 = 64 << 20;

#[derive(Deserialize)]
struct Line {
    at_ms: u64,
    key: Vec<String>,
    bytes: u64,
    #[serde(default = "first")]
    attempt: u32,
}

const fn first() -> u32 {
    1
}

/// Reads decision logs.
#[derive(Debug, Default)]
pub(super) struct Reader {
    calls: Vec<(u64, Call)>,
    /// The first block id of each boundary.
    ids: HashMap<u64, u32>,
    next: u32,
}

impl Reader {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn line(&mut self, text: &[u8]) -> Result<(), String> {
        let line: Line = serde_json::from_slice(text).map_err(|e| e.to_string())?;
        if line.attempt != 1 {
            // The same request again.
            return Ok(());
        }
        if line.key.len() > boundary::MAX_BOUNDARIES {
            return Err(format!("a key of {} boundaries", line.key.len()));
        }
        let hash = |text: &String| u64::from_str_radix(text, 16).map_err(|e| format!("{text}: {e}"));
        let hashes = line.key.iter().map(hash).collect::<Result<Vec<u64>, _>>()?;
        let runs = self.runs(&hashes)?;
        let call = Call {
            session: 0,
            start: Start::At(0),
            input_tokens: u32::try_from(line.bytes / BYTES_PER_TOKEN as u64).unwrap_or(u32::MAX).max(1),
            output_tokens: 0,
            runs: runs.into(),
            key: PrefixKey { hashes, bytes: line.bytes },
        };
        self.calls.push((line.at_ms, call));
        Ok(())
    }

    /// The blocks of a prompt: those of each boundary's stretch.
    fn runs(&mut self, hashes: &[u64]) -> Result<Vec<(u32, u32)>, String> {
        let (mut runs, mut above): (Vec<(u32, u32)>, _) = (Vec::new(), 0);
        for (index, &hash) in hashes.iter().enumerate() {
            let blocks = ((boundary::depth(index) - above) / boundary::STEP) as u32;
            above = boundary::depth(index);
            let next = self.next;
            let first = *self.ids.entry(hash).or_insert(next);
            if first == next {
                self.next += blocks;
            }
            if self.next > MAX_ID {
                return Err("too many different prompts for one replay".to_owned());
            }
            match runs.last_mut() {
                Some((start, count)) if *start + *count == first => *count += blocks,
                _ => runs.push((first, blocks)),
            }
        }
        Ok(runs)
    }

    pub(super) fn end(mut self, options: &ReadOptions) -> Trace {
        // Routers write as they decide; several logs read as one are not in the order of time.
        self.calls.sort_by_key(|(at_ms, _)| *at_ms);
        let began = self.calls.first().map_or(0, |(at_ms, _)| *at_ms);
        let timed = |(at_ms, call): (u64, Call)| Call {
            start: Start::At((at_ms - began) as Micros * 1_000),
            output_tokens: options.output_tokens,
            ..call
        };
        let calls = self.calls.into_iter().take(options.limit).map(timed).collect();
        Trace { block_tokens: BLOCK_TOKENS, calls, ..Trace::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReadOptions, Start, Trace};

    #[test]
    fn a_log_is_replayed_by_its_hashes() {
        let log = r#"{"at_ms":5000,"router":"a","replica":"r0","reason":"home","key":["0a","0b"],"bytes":300}
{"at_ms":7000,"router":"a","replica":"r0","reason":"affinity","key":["0a","0c"],"bytes":256}
{"at_ms":7001,"router":"a","replica":"r1","reason":"load","key":["0a","0c"],"bytes":256,"attempt":2}
{"at_ms":6000,"router":"b","replica":"r1","reason":"no_key","key":[],"bytes":0}
{"at_ms":1,"reason":"x","replica":"r","key":["not hex"],"bytes":1}
"#;
        let trace = Trace::of_text(log, &ReadOptions::default());
        assert_eq!((trace.calls.len(), trace.rejected.count, trace.block_tokens), (3, 1, 32));
        let starts: Vec<_> = trace.calls.iter().map(|call| call.start).collect();
        assert_eq!(starts, [Start::At(0), Start::At(1_000_000), Start::At(2_000_000)]);
        assert_eq!(*trace.calls[0].runs, [(0, 2)]);
        assert_eq!(*trace.calls[2].runs, [(0, 1), (2, 1)], "the head is shared");
        assert_eq!(trace.calls[0].key.hashes, [10, 11]);
        assert_eq!((trace.calls[0].input_tokens, trace.calls[1].input_tokens), (75, 1));
        assert_eq!(trace.distinct_blocks, 3);
    }
}
