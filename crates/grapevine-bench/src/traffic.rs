//! Keys of many prompts without their text, and trees that know them.
//!
//! The tree sees hashes only, so a chain of random ones serves as well as a hashed text, and a million
//! prompts are made in a second.

use grapevine_tree::{PrefixKey, PrefixTree, ReplicaId, TreeConfig, boundary};

/// How prompts are alike.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Length of every prompt, bytes.
    pub bytes: usize,
    /// Length of what it shares with others, bytes.
    pub head: usize,
    /// Different heads.
    pub heads: u64,
}

impl Shape {
    /// Prompts of `bytes`, a quarter of them one of 64 system prompts.
    pub const fn of(bytes: usize) -> Self {
        Self { bytes, head: bytes / 4, heads: 64 }
    }

    /// The key of prompt `n`.
    pub fn key(&self, n: u64) -> PrefixKey {
        let mut hashes = Vec::with_capacity(boundary::count(self.bytes));
        let mut chain = mix(1 + n % self.heads);
        for index in 0..boundary::count(self.bytes) {
            if boundary::depth(index) > self.head {
                chain ^= mix(!n);
            }
            chain = mix(chain.wrapping_add(index as u64));
            hashes.push(chain);
        }
        PrefixKey { hashes, bytes: self.bytes as u64 }
    }

    /// A tree that was asked `prompts` different prompts, spread over `replicas`; every prompt's home
    /// is [`home`].
    pub fn tree(&self, prompts: u64, replicas: u32) -> PrefixTree {
        let mut tree = PrefixTree::new(unlimited());
        for n in 0..prompts {
            tree.observe(&self.key(n), home(n, replicas), (self.bytes / 4) as u32, 0);
        }
        tree
    }
}

/// Room for everything, and nothing ages.
pub fn unlimited() -> TreeConfig {
    TreeConfig { max_boundaries: 16_000_000, default_capacity_tokens: 1 << 50, ..TreeConfig::default() }
}

/// Where prompt `n` was sent.
pub fn home(n: u64, replicas: u32) -> ReplicaId {
    ReplicaId((mix(n) % u64::from(replicas)) as u32 * 7 + 1)
}

/// Spreads a number over 64 bits.
pub fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
