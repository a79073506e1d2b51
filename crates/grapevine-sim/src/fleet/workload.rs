//! Seeded traffic: chats that begin with one of a few shared heads, the popular ones often, and
//! requests that share nothing.
//!
//! Every chat starts, asks, reads the answer, asks again; each turn's prompt is all of it so far. Text
//! is never made: a hash chain over what stands where is all that a router or an engine would see of
//! it. Chats start before the clock does, so that the first second is like any other.

use grapevine_tree::{PrefixKey, boundary};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::replay::engine::Micros;
use crate::replay::trace::{BYTES_PER_TOKEN, Call, Start, Trace};

use super::clock::SECOND;

/// Tokens of an engine's block. Larger than real ones: a fleet's caches must fit in memory.
const BLOCK_TOKENS: u32 = 64;
const BLOCK_BYTES: u64 = BLOCK_TOKENS as u64 * BYTES_PER_TOKEN as u64;

/// Shared heads: system prompts, tools, few-shot examples.
const HEADS: usize = 100;

/// Exponent of their popularity: the n-th is asked for 1/n as often as the first.
const ZIPF: f64 = 1.0;

/// Length of a head, bytes: 256 to 2,048 tokens.
const HEAD_BYTES: std::ops::Range<u64> = 1_024..8_192;

/// A question, and an answer, bytes.
const QUESTION_BYTES: std::ops::Range<u64> = 100..1_600;
const ANSWER_BYTES: std::ops::Range<u64> = 200..1_600;

/// Turns of a chat.
const TURNS: std::ops::Range<usize> = 1..12;

/// Time between two turns of a chat.
const PAUSE: std::ops::Range<Micros> = 2 * SECOND..14 * SECOND;

/// Longest time that a chat can have gone on before the clock starts.
const BEFORE: Micros = (TURNS.end as Micros) * PAUSE.end;

/// Share of requests that are alone: no head, no second turn.
const LONE: f64 = 0.1;

/// How much traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Seed of all of it.
    pub(super) seed: u64,
    /// Requests a second, at all routers together.
    pub(super) rate: f64,
    /// For how long.
    pub(super) lasts: Micros,
}

/// A stretch of a prompt: whose text, and how long.
#[derive(Clone, Copy, Debug)]
struct Piece {
    text: u64,
    bytes: u64,
}

struct Head {
    piece: Piece,
    first_block: u32,
}

struct Maker {
    dice: SmallRng,
    heads: Vec<Head>,
    /// Popularity of the heads, summed up.
    popularity: Vec<f64>,
    blocks: u32,
    texts: u64,
    calls: Vec<(Micros, Call)>,
    lasts: Micros,
}

/// The traffic as a trace, in the order of arrival.
pub(super) fn generate(load: &Load) -> Trace {
    let mut maker = Maker::new(load);
    let turns = (TURNS.start + TURNS.end - 1) as f64 / 2.0;
    let chats_per_second = load.rate / (LONE + (1.0 - LONE)) / (LONE + (1.0 - LONE) * turns);
    let span = load.lasts + BEFORE;
    let chats = (chats_per_second * span as f64 / SECOND as f64).round() as u32;
    for session in 0..chats {
        let begins = maker.dice.random_range(0..span);
        maker.chat(session, begins);
    }
    maker.finish()
}

/// Which chat a call belongs to.
pub(super) fn chat_of(call: &Call) -> u32 {
    call.session / TURNS.end as u32
}

impl Maker {
    fn new(load: &Load) -> Self {
        let mut dice = SmallRng::seed_from_u64(load.seed);
        let (mut heads, mut popularity, mut blocks, mut sum) = (Vec::new(), Vec::new(), 0, 0.0);
        for rank in 1..=HEADS {
            let piece = Piece { text: rank as u64, bytes: dice.random_range(HEAD_BYTES) };
            heads.push(Head { piece, first_block: blocks });
            blocks += (piece.bytes / BLOCK_BYTES) as u32;
            sum += (rank as f64).powf(-ZIPF);
            popularity.push(sum);
        }
        let (texts, calls) = (HEADS as u64, Vec::new());
        Self { dice, heads, popularity, blocks, texts, calls, lasts: load.lasts }
    }

    /// One chat, from `begins` before the clock starts plus [`BEFORE`].
    fn chat(&mut self, session: u32, begins: Micros) {
        let is_lone = self.dice.random_bool(LONE);
        let head = if is_lone { None } else { Some(self.any_head()) };
        let turns = if is_lone { 1 } else { self.dice.random_range(TURNS) };
        let head_blocks = head.map_or(0, |at| (self.heads[at].piece.bytes / BLOCK_BYTES) as u32);
        let mut pieces: Vec<Piece> = head.map(|at| self.heads[at].piece).into_iter().collect();
        let (own_blocks, mut at, mut longest) = (self.blocks, begins, head_blocks);
        for turn in 0..turns {
            pieces.push(self.text(QUESTION_BYTES));
            let answer = self.text(ANSWER_BYTES);
            let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
            let blocks = (bytes / BLOCK_BYTES) as u32;
            longest = longest.max(blocks);
            if let Some(arrives) = at.checked_sub(BEFORE).filter(|&arrives| arrives < self.lasts) {
                let head_run = head.map(|at| (self.heads[at].first_block, head_blocks));
                let runs = [head_run, Some((own_blocks, blocks - head_blocks))];
                let call = Call {
                    session: session * TURNS.end as u32 + turn as u32,
                    start: Start::At(arrives),
                    input_tokens: (bytes / BYTES_PER_TOKEN as u64) as u32,
                    output_tokens: (answer.bytes / BYTES_PER_TOKEN as u64) as u32,
                    runs: runs.into_iter().flatten().filter(|run| run.1 > 0).collect(),
                    key: key(&pieces),
                };
                self.calls.push((arrives, call));
            }
            pieces.push(answer);
            at += self.dice.random_range(PAUSE);
        }
        self.blocks += longest - head_blocks;
    }

    fn any_head(&mut self) -> usize {
        let total = self.popularity.last().copied().unwrap_or(0.0);
        let drawn = self.dice.random_range(0.0..total);
        self.popularity.partition_point(|&sum| sum <= drawn).min(HEADS - 1)
    }

    fn text(&mut self, bytes: std::ops::Range<u64>) -> Piece {
        self.texts += 1;
        Piece { text: self.texts, bytes: self.dice.random_range(bytes) }
    }

    fn finish(mut self) -> Trace {
        self.calls.sort_by_key(|(arrives, call)| (*arrives, call.session));
        Trace {
            block_tokens: BLOCK_TOKENS,
            calls: self.calls.into_iter().map(|(_, call)| call).collect(),
            ids: self.blocks as usize,
            distinct_blocks: u64::from(self.blocks),
            ..Trace::default()
        }
    }
}

/// The key of a prompt: at every boundary a hash of what stands between it and the one before.
fn key(pieces: &[Piece]) -> PrefixKey {
    let bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
    let count = boundary::count(bytes as usize);
    let mut hashes = Vec::with_capacity(count);
    let (mut chain, mut from, mut piece, mut starts) = (0, 0, 0, 0);
    for index in 0..count {
        let to = boundary::depth(index) as u64;
        while let Some(here) = pieces.get(piece) {
            let ends = starts + here.bytes;
            chain = link(chain, here.text, from.max(starts) - starts, to.min(ends) - starts);
            if to < ends {
                break;
            }
            (piece, starts) = (piece + 1, ends);
            if to == ends {
                break;
            }
        }
        hashes.push(chain);
        from = to;
    }
    PrefixKey { hashes, bytes }
}

/// Hashes bytes `from..to` of a text onto a chain.
fn link(chain: u64, text: u64, from: u64, to: u64) -> u64 {
    let mut words = [0; 24];
    for (bytes, word) in words.chunks_exact_mut(8).zip([text, from, to]) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    xxh3_64_with_seed(&words, chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { seed: 7, rate: 50.0, lasts: 60 * SECOND };

    #[test]
    fn the_rate_is_as_asked_from_the_first_second_on() {
        let trace = generate(&LOAD);
        let share = trace.calls.len() as f64 / (50.0 * 60.0);
        assert!((0.9..1.1).contains(&share), "{share}");
        let early =
            trace.calls.iter().filter(|c| matches!(c.start, Start::At(at) if at < 10 * SECOND)).count();
        assert!((400..600).contains(&early), "{early}");
        let mean =
            trace.calls.iter().map(|c| u64::from(c.input_tokens)).sum::<u64>() / trace.calls.len() as u64;
        assert!((1_000..4_000).contains(&mean), "{mean}");
    }

    #[test]
    fn one_seed_one_workload() {
        let keys =
            |seed| generate(&Load { seed, ..LOAD }).calls.into_iter().map(|c| c.key).collect::<Vec<_>>();
        assert_eq!(keys(1), keys(1));
        assert_ne!(keys(1), keys(2));
    }

    #[test]
    fn keys_share_exactly_what_prompts_share() {
        let [head, a, b] = [1, 2, 3].map(|text| Piece { text, bytes: 1_000 });
        let (one, other, longer) = (key(&[head, a]), key(&[head, b]), key(&[head, a, b]));
        let shared =
            |x: &PrefixKey, y: &PrefixKey| x.hashes.iter().zip(&y.hashes).take_while(|(x, y)| x == y).count();
        assert_eq!(shared(&one, &other), boundary::count(1_000), "only the head");
        assert_eq!(shared(&one, &longer), boundary::count(2_000), "all of the shorter one");
        assert_eq!(key(&[head, a]), one);
    }

    #[test]
    fn blocks_follow_the_prompts() {
        let trace = generate(&LOAD);
        for call in &trace.calls {
            let blocks: u32 = call.runs.iter().map(|run| run.1).sum();
            assert_eq!(blocks, call.input_tokens / BLOCK_TOKENS);
            assert!(call.runs.iter().all(|&(first, count)| (first + count) as usize <= trace.ids));
        }
    }
}
