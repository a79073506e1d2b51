//! Real engines: what the prefix key predicts as shared, held against what vLLM reports as cached; and fleets
//! in front of vLLM and of llama.cpp.
//!
//! Each runs when `GRAPEVINE_TEST_VLLM` or `GRAPEVINE_TEST_LLAMA` names its engine; README.md says how to make
//! them.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod fleet;
mod llama;
mod pairs;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "shared with the tests of simulated engines, which use more of it")]
mod process;
mod scenario;
mod server;
mod vllm;

use std::fmt::Write as _;
use std::io::Write as _;

use grapevine_tree::{Extractor, KeySeed, PrefixKey, boundary};

use pairs::{Expect, Pair, pairs};
use server::Server;
use vllm::{BLOCK, Usage};

/// Blocks by which a report may differ: the last one is never whole, and a tokenizer cuts text a little
/// more finely here than there.
const SLACK_BLOCKS: f64 = 2.0;

/// A pair, what the key says of it and what the engine said.
struct Row {
    name: &'static str,
    prompt: u64,
    predicted: f64,
    reported: f64,
    /// How far the prediction may be off.
    slack: f64,
    expect: Expect,
}

#[test]
fn what_the_key_predicts_as_shared_is_what_vllm_finds_in_its_cache() {
    let Some(vllm) = vllm::from_env() else { return skip(vllm::SETTING) };
    let rows: Vec<_> = pairs().iter().map(|pair| measure(&vllm, pair)).collect();
    println!("{}", table(&rows));
    let wrong: Vec<_> = rows.iter().filter(|row| !row.is_right()).map(|row| row.name).collect();
    assert!(wrong.is_empty(), "the key is wrong about {wrong:?}");
    for (a, b) in rows.iter().flat_map(|a| rows.iter().map(move |b| (a, b))) {
        let apart = a.reported - b.reported > a.slack + b.slack;
        let comparable = a.expect == Expect::Equal && b.expect == Expect::Equal;
        assert!(!(apart && comparable) || a.predicted > b.predicted, "{} against {}", a.name, b.name);
    }
}

/// Not by `eprintln`, which a passing test's runner keeps to itself.
fn skip(setting: &str) {
    let said = format!("SKIPPED: {setting} is not set, see tests/engines/README.md\n");
    std::io::stderr().write_all(said.as_bytes()).unwrap();
}

fn measure(vllm: &Server, pair: &Pair) -> Row {
    let (first, second) = (vllm::ask(vllm, &pair.first), vllm::ask(vllm, &pair.second));
    let (a, b) = (key(pair, true), key(pair, false));
    let Usage { prompt_tokens, cached_tokens } = second;
    assert!(first.prompt_tokens > 0, "{}", pair.name);
    let tokens_per_byte = prompt_tokens as f64 / b.bytes as f64;
    let (shared, step) = shared_bytes(&a, &b);
    Row {
        name: pair.name,
        prompt: prompt_tokens,
        predicted: shared * tokens_per_byte,
        reported: cached_tokens as f64,
        slack: SLACK_BLOCKS * BLOCK as f64 + step / 2.0 * tokens_per_byte,
        expect: pair.expect,
    }
}

fn key(pair: &Pair, first: bool) -> PrefixKey {
    let request = if first { &pair.first } else { &pair.second };
    Extractor::new(KeySeed(7)).extract(request.api(), request.body.as_bytes(), b"").key
}

/// Bytes that two keys share, as the tree takes them: half the way from the last boundary that matches to
/// the next; and how long that way is.
fn shared_bytes(a: &PrefixKey, b: &PrefixKey) -> (f64, f64) {
    let shared = a.hashes.iter().zip(&b.hashes).take_while(|(a, b)| a == b).count();
    let Some(last) = shared.checked_sub(1) else { return (0.0, boundary::STEP as f64) };
    let from = boundary::depth(last);
    let step = boundary::depth(shared).min(b.bytes as usize).saturating_sub(from) as f64;
    (from as f64 + step / 2.0, step)
}

impl Row {
    fn is_right(&self) -> bool {
        match self.expect {
            Expect::Equal => (self.predicted - self.reported).abs() <= self.slack,
            // What engines differ in: the key must not promise what this one might not keep.
            Expect::AtMost => self.predicted <= self.reported + self.slack,
        }
    }
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| pair | prompt | predicted | reported | off by | may be |\n|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let off = row.predicted - row.reported;
        let may = match row.expect {
            Expect::Equal => format!("±{:.0}", row.slack),
            Expect::AtMost => format!("less, +{:.0}", row.slack),
        };
        let (name, prompt, predicted, reported) = (row.name, row.prompt, row.predicted, row.reported);
        writeln!(out, "| {name} | {prompt} | {predicted:.0} | {reported:.0} | {off:+.0} | {may} |").unwrap();
    }
    out
}
