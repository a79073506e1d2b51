//! Traces of block ids: `{"meta":{"block_tokens":N}}`, then one request a line.
//!
//! `in` and `out` are tokens, `sess` names the session, `runs` lists the ids of the prompt's full
//! blocks as [first, count]. A request starts at `t` seconds, or `delay` seconds after its `parent`
//! (a request number) has arrived or finished (`gate`). Requests are numbered from 0 by their lines,
//! bad ones too.

use std::collections::HashMap;

use serde::Deserialize;

use super::synth::Synth;
use super::{Call, Gate, Start, Trace, micros};

/// Ids are indices into flat arrays: 64 M of them are 0.8 GB in each cache.
const MAX_ID: u64 = 64 << 20;

/// Longest prompt and answer, tokens.
const MAX_TOKENS: u32 = 16 << 20;

/// Latest time and longest delay, s: a year.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

#[derive(Deserialize)]
struct Head {
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    block_tokens: u32,
}

#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    sess: u32,
    #[serde(rename = "in")]
    input: u32,
    #[serde(rename = "out", default)]
    output: u32,
    runs: Vec<(u64, u64)>,
    t: Option<f64>,
    parent: Option<u32>,
    #[serde(default)]
    gate: GateName,
    #[serde(default)]
    delay: f64,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum GateName {
    #[default]
    Finish,
    Arrival,
}

/// Reads block-id traces.
#[derive(Debug, Default)]
pub(super) struct Reader {
    block_tokens: u32,
    calls: Vec<Call>,
    synth: Option<Synth>,
    /// Request numbers of good lines, and where they stand.
    places: HashMap<u32, usize>,
    number: u32,
}

impl Reader {
    /// A line that is no request, but stands in the place of one.
    pub(super) fn skip(&mut self) {
        self.number += 1;
    }

    pub(super) fn line(&mut self, text: &[u8]) -> Result<(), String> {
        if let Ok(Head { meta }) = serde_json::from_slice(text) {
            self.block_tokens = meta.block_tokens.clamp(1, MAX_TOKENS);
            return Ok(());
        }
        let number = self.number;
        self.number += 1;
        if self.block_tokens == 0 {
            return Err("no line with meta.block_tokens before it".to_owned());
        }
        let synth = self.synth.get_or_insert_with(|| Synth::new(self.block_tokens));
        let call = call(text, number, self.block_tokens, &self.places, synth)?;
        self.places.insert(number, self.calls.len());
        self.calls.push(call);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn end(self) -> Trace {
        Trace { block_tokens: self.block_tokens, calls: self.calls, ..Trace::default() }
    }
}

fn call(
    text: &[u8],
    number: u32,
    block_tokens: u32,
    places: &HashMap<u32, usize>,
    synth: &mut Synth,
) -> Result<Call, String> {
    let line: Line = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    if line.input == 0 || line.input > MAX_TOKENS || line.output > MAX_TOKENS {
        return Err(format!("in {} or out {} is not a length", line.input, line.output));
    }
    let mut runs = runs(&line, block_tokens)?;
    let start = start(&line, places)?;
    let key = synth.key(&runs, line.input, number);
    keep(&mut runs, line.input / block_tokens);
    Ok(Call {
        session: line.sess,
        start,
        input_tokens: line.input,
        output_tokens: line.output,
        runs: runs.into(),
        key,
    })
}

fn runs(line: &Line, block_tokens: u32) -> Result<Vec<(u32, u32)>, String> {
    let mut blocks = 0;
    let mut runs = Vec::with_capacity(line.runs.len());
    for &(first, count) in &line.runs {
        let end = first.checked_add(count).filter(|&end| end <= MAX_ID);
        end.ok_or_else(|| format!("block id {first}+{count} is beyond {MAX_ID}"))?;
        blocks += count;
        runs.push((first as u32, count as u32));
    }
    match blocks <= u64::from(line.input.div_ceil(block_tokens)) {
        true => Ok(runs),
        false => Err(format!("{blocks} blocks are more than {} tokens", line.input)),
    }
}

/// Keeps the first `blocks` blocks: some traces name the last, partial one too, which is text that
/// equal prompts share, but no engine keeps it.
fn keep(runs: &mut Vec<(u32, u32)>, blocks: u32) {
    let mut left = blocks;
    for (_, count) in runs.iter_mut() {
        *count = left.min(*count);
        left -= *count;
    }
    runs.retain(|&(_, count)| count > 0);
}

fn start(line: &Line, places: &HashMap<u32, usize>) -> Result<Start, String> {
    let time = |seconds: f64| match (0.0..MAX_SECONDS).contains(&seconds) {
        true => Ok(micros(seconds)),
        false => Err(format!("{seconds} s is not a time")),
    };
    match (line.t, line.parent) {
        (Some(t), None) => Ok(Start::At(time(t)?)),
        (None, Some(number)) => {
            let parent = *places.get(&number).ok_or(format!("parent {number} is not before it"))?;
            let gate = match line.gate {
                GateName::Finish => Gate::Finish,
                GateName::Arrival => Gate::Arrival,
            };
            Ok(Start::After { parent, gate, delay: time(line.delay)? })
        }
        _ => Err("needs either t or parent".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ReadOptions;
    use super::*;

    fn read(text: &str) -> Trace {
        Trace::of_text(text, &ReadOptions { rate: 1.0, ..ReadOptions::default() })
    }

    #[test]
    fn reads_roots_and_children_and_numbers_bad_lines() {
        let text = concat!(
            "{\"meta\":{\"block_tokens\":64}}\n",
            "{\"sess\":3,\"in\":130,\"out\":5,\"runs\":[[0,2]],\"t\":1.5}\n",
            "nonsense\n",
            "{\"in\":64,\"runs\":[[0,2]],\"t\":0}\n",
            "{\"in\":200,\"out\":1,\"runs\":[[0,2],[7,1]],\"parent\":0,\"gate\":\"arrival\",\"delay\":2}\n",
            "{\"in\":200,\"out\":1,\"runs\":[],\"parent\":1,\"gate\":\"finish\",\"delay\":2}\n",
            "\n",
            "{\"in\":200,\"out\":1,\"runs\":[],\"t\":-1}\n",
        );
        let trace = read(text);
        assert_eq!((trace.calls.len(), trace.rejected.count), (2, 4));
        assert_eq!(trace.calls[0].start, Start::At(1_500_000));
        assert_eq!((trace.calls[0].session, trace.calls[0].input_tokens), (3, 130));
        let after = Start::After { parent: 0, gate: Gate::Arrival, delay: 2_000_000 };
        assert_eq!(trace.calls[1].start, after);
        assert_eq!(trace.calls[1].runs[..], [(0, 2), (7, 1)]);
        assert!(trace.rejected.examples[0].starts_with("line 3: "), "{}", trace.rejected);
        assert!(trace.rejected.examples[2].contains("parent 1 is not before it"));
    }

    #[test]
    fn without_a_block_size_every_line_is_bad() {
        let trace = read("{\"in\":10,\"runs\":[],\"t\":0}\n");
        assert_eq!((trace.calls.len(), trace.rejected.count), (0, 1));
    }
}
