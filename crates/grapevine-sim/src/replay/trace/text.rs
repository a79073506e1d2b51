//! Engine blocks of prompts that come as text.

use std::collections::HashMap;

use grapevine_tree::{PrefixKey, boundary};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{BYTES_PER_TOKEN, SEED};

/// Gives every distinct prefix of whole blocks a small number.
#[derive(Debug)]
pub(super) struct Blocks {
    block_bytes: usize,
    ids: HashMap<u64, u32>,
}

impl Blocks {
    pub(super) fn new(block_tokens: u32) -> Self {
        Self { block_bytes: block_tokens as usize * BYTES_PER_TOKEN, ids: HashMap::new() }
    }

    /// The blocks of `text` as runs of ids.
    pub(super) fn runs(&mut self, text: &[u8]) -> Box<[(u32, u32)]> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        let mut chain = 0;
        for block in text.chunks_exact(self.block_bytes) {
            chain = xxh3_64_with_seed(block, chain);
            let next = self.ids.len() as u32;
            let id = *self.ids.entry(chain).or_insert(next);
            match runs.last_mut() {
                Some((first, count)) if *first + *count == id => *count += 1,
                _ => runs.push((id, 1)),
            }
        }
        runs.into()
    }
}

/// Tokens of a text: at least one.
pub(super) fn tokens(text: &[u8]) -> u32 {
    text.len().div_ceil(BYTES_PER_TOKEN).clamp(1, u32::MAX as usize) as u32
}

/// The key of a prompt that is nothing but text.
pub(super) fn key(text: &[u8]) -> PrefixKey {
    let mut hashes = Vec::new();
    boundary::hash_into(SEED.0, text, &mut hashes);
    PrefixKey { hashes, bytes: text.len() as u64 }
}
