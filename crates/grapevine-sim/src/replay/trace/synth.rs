//! From block ids to the key that a router would make of the text behind them.
//!
//! Every id stands for a fixed pseudo-random text of 4 bytes a token; what a prompt has past its
//! last full block is its own. The key is exactly what hashing that text gives (a test holds it), but
//! an id names the whole prefix before it, so the hash at a boundary inside a block is the same in
//! every prompt with that block there: each is computed once, and text is only made for that.

use std::collections::HashMap;

use grapevine_tree::{PrefixKey, boundary};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{BYTES_PER_TOKEN, SEED};
use crate::replay::engine::cache;

/// Keeps the text of one prompt's tail apart from every block's.
const TAIL: u64 = 1 << 40;

#[derive(Debug)]
pub(super) struct Synth {
    block_bytes: usize,
    /// Hash at a boundary (by index) that lies in a block (by id).
    known: HashMap<(u32, u8), u64>,
    ids: Vec<u32>,
    chunk: Vec<u8>,
}

impl Synth {
    pub(super) fn new(block_tokens: u32) -> Self {
        let block_bytes = block_tokens as usize * BYTES_PER_TOKEN;
        Self { block_bytes, known: HashMap::new(), ids: Vec::new(), chunk: Vec::new() }
    }

    /// The key of a prompt of `tokens`; `number` makes its tail its own.
    pub(super) fn key(&mut self, runs: &cache::Runs, tokens: u32, number: u32) -> PrefixKey {
        self.ids.clear();
        self.ids.extend(cache::ids(runs));
        let bytes = tokens as usize * BYTES_PER_TOKEN;
        let count = boundary::count(bytes);
        let mut hashes = Vec::with_capacity(count);
        let (mut chain, mut from) = (SEED.0, 0);
        for index in 0..count {
            let to = boundary::depth(index);
            let block = self.ids.get((to - 1) / self.block_bytes).map(|&id| (id, index as u8));
            chain = match block.and_then(|block| self.known.get(&block)) {
                Some(&hash) => hash,
                None => self.link(chain, from, to, number),
            };
            if let Some(block) = block {
                self.known.insert(block, chain);
            }
            hashes.push(chain);
            from = to;
        }
        PrefixKey { hashes, bytes: bytes as u64 }
    }

    /// Hashes the text from byte `from` to `to` onto `chain`.
    fn link(&mut self, chain: u64, from: usize, to: usize, number: u32) -> u64 {
        self.chunk.clear();
        let mut at = from;
        while at < to {
            let block = at / self.block_bytes;
            let (id, end) = match self.ids.get(block) {
                Some(&id) => (u64::from(id), (block + 1) * self.block_bytes),
                None => (TAIL + u64::from(number), usize::MAX),
            };
            let start = if id >= TAIL { self.ids.len() * self.block_bytes } else { block * self.block_bytes };
            write_text(id, at - start, to.min(end) - start, &mut self.chunk);
            at = to.min(end);
        }
        xxh3_64_with_seed(&self.chunk, chain)
    }
}

/// Appends bytes `from..to` of the text of `id`.
fn write_text(id: u64, from: usize, to: usize, out: &mut Vec<u8>) {
    let mut at = from;
    while at < to {
        let word = mix(id ^ mix((at / 8) as u64)).to_le_bytes();
        let end = to.min(at / 8 * 8 + 8);
        out.extend_from_slice(&word[at % 8..at % 8 + (end - at)]);
        at = end;
    }
}

/// A 64-bit finaliser (SplitMix64).
const fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole text, written out.
    fn text(runs: &cache::Runs, block_bytes: usize, tokens: u32, number: u32) -> Vec<u8> {
        let mut text = Vec::new();
        for id in cache::ids(runs) {
            write_text(u64::from(id), 0, block_bytes, &mut text);
        }
        let rest = tokens as usize * BYTES_PER_TOKEN - text.len();
        write_text(TAIL + u64::from(number), 0, rest, &mut text);
        text
    }

    #[test]
    fn the_key_is_that_of_the_text() {
        for block_tokens in [1, 16, 64, 512] {
            let mut synth = Synth::new(block_tokens);
            let whole = 4_000 / block_tokens;
            // Two prompts that share a head, and one that is new; asked twice, as memory must not
            // change anything.
            let half = whole / 2;
            let prompts = [vec![(0, whole)], vec![(0, half), (whole, whole - half)], vec![(9_000, 2)]];
            for (number, runs) in prompts.iter().chain(&prompts).enumerate() {
                let tokens = cache::len(runs) as u32 * block_tokens + 70;
                let text = text(runs, synth.block_bytes, tokens, number as u32);
                let mut hashes = Vec::new();
                boundary::hash_into(SEED.0, &text, &mut hashes);
                let expected = PrefixKey { hashes, bytes: text.len() as u64 };
                assert_eq!(synth.key(runs, tokens, number as u32), expected, "{block_tokens}");
            }
        }
    }
}
