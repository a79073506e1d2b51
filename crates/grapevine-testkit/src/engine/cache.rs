//! The engine's prefix cache: an LRU of chained block hashes.
//!
//! A prompt is cut into blocks of fixed size; a block's hash covers everything before it, so an
//! equal hash means an equal prefix. A trailing part of a block is never cached, as in real engines.
//!
//! **Invariant: prefix-closed.** Whenever a block is held, so are all blocks before it in its chain:
//! a chain is always touched from its tail to its head, so that the head is the younger and pressure
//! takes tails first (engines free a finished sequence's blocks in reverse order).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Touches kept beyond four per block held, before stale ones are thrown out.
const ORDER_SLACK: usize = 1024;

/// Hashes of `text`'s whole blocks, chained from `seed`.
pub fn block_hashes(seed: u64, block_bytes: usize, text: &[u8]) -> Vec<u64> {
    let mut chain = Vec::with_capacity(text.len() / block_bytes + 1);
    extend_chain(&mut chain, seed, block_bytes, text);
    chain
}

/// Adds the hashes of the blocks of `text` that `chain` does not cover yet.
pub(crate) fn extend_chain(chain: &mut Vec<u64>, seed: u64, block_bytes: usize, text: &[u8]) {
    let mut parent = chain.last().copied().unwrap_or(seed);
    for block in text.chunks_exact(block_bytes).skip(chain.len()) {
        parent = xxh3_64_with_seed(block, parent);
        chain.push(parent);
    }
}

/// An LRU of block hashes.
///
/// Recency is a tick per block, and a queue of touches in which outdated ones are skipped when they
/// come up: constant time a touch without a linked list.
#[derive(Debug, Default)]
pub struct PrefixCache {
    capacity: usize,
    tick: u64,
    last_touch: HashMap<u64, u64, BuildHasherDefault<Identity>>,
    touches: VecDeque<(u64, u64)>,
    evicted: u64,
}

impl PrefixCache {
    /// A cache of `capacity` blocks; 0 holds nothing.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// How many leading blocks of `chain` are held; they become the most recently used.
    pub fn lookup(&mut self, chain: &[u64]) -> usize {
        let hit = chain.iter().take_while(|hash| self.last_touch.contains_key(hash)).count();
        self.touch(chain.iter().take(hit));
        hit
    }

    /// Holds all of `chain`, or as much of its head as fits.
    pub fn insert(&mut self, chain: &[u64]) {
        self.touch(chain.iter().take(self.capacity));
        self.evict();
    }

    /// Blocks held.
    pub fn len(&self) -> usize {
        self.last_touch.len()
    }

    /// Nothing is held.
    pub fn is_empty(&self) -> bool {
        self.last_touch.is_empty()
    }

    /// Blocks it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks dropped for want of room, in total.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    fn touch<'a>(&mut self, head_first: impl DoubleEndedIterator<Item = &'a u64>) {
        for hash in head_first.rev() {
            self.tick += 1;
            self.last_touch.insert(*hash, self.tick);
            self.touches.push_back((*hash, self.tick));
        }
        if self.touches.len() > 4 * self.last_touch.len() + ORDER_SLACK {
            let current = &self.last_touch;
            self.touches.retain(|(hash, tick)| current.get(hash) == Some(tick));
        }
    }

    fn evict(&mut self) {
        while self.last_touch.len() > self.capacity {
            let Some((hash, tick)) = self.touches.pop_front() else { return };
            if self.last_touch.get(&hash) == Some(&tick) {
                self.last_touch.remove(&hash);
                self.evicted += 1;
            }
        }
    }
}

/// Block hashes are uniform already: hashing them again would only cost time.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: usize = 4;

    /// A list of held chains' blocks, most recent first; slow and obvious.
    #[derive(Default)]
    struct Naive {
        capacity: usize,
        recent: Vec<u64>,
    }

    impl Naive {
        fn lookup(&mut self, chain: &[u64]) -> usize {
            let hit = chain.iter().take_while(|h| self.recent.contains(h)).count();
            self.touch(&chain[..hit]);
            hit
        }

        fn insert(&mut self, chain: &[u64]) {
            self.touch(chain);
            self.recent.truncate(self.capacity);
        }

        fn touch(&mut self, chain: &[u64]) {
            self.recent.retain(|h| !chain.contains(h));
            self.recent.splice(0..0, chain.iter().copied());
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        // Two letters and short texts: chains that share heads and differ in tails.
        prop::collection::vec(prop::sample::select(vec![b'a', b'b']), 0..40)
            .prop_map(|letters| letters.into_iter().flat_map(|l| [l; BLOCK / 2]).collect())
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_lru_and_stays_prefix_closed(
            capacity in 0usize..24,
            prompts in prop::collection::vec((text(), any::<bool>()), 1..60),
        ) {
            let mut cache = PrefixCache::new(capacity);
            let mut naive = Naive { capacity, ..Naive::default() };
            let mut chains = Vec::new();
            for (prompt, fill) in prompts {
                let chain = block_hashes(7, BLOCK, &prompt);
                prop_assert_eq!(cache.lookup(&chain), naive.lookup(&chain));
                if fill {
                    cache.insert(&chain);
                    naive.insert(&chain);
                }
                prop_assert!(cache.len() <= capacity);
                prop_assert_eq!(cache.len(), naive.recent.len());
                chains.push(chain);
                for chain in &chains {
                    let held: Vec<bool> = chain.iter().map(|h| cache.last_touch.contains_key(h)).collect();
                    prop_assert!(held.is_sorted_by(|a, b| a >= b), "a tail outlived its head");
                }
            }
        }

        #[test]
        fn a_chain_grows_as_if_hashed_at_once(head in text(), tail in text()) {
            let whole: Vec<u8> = head.iter().chain(&tail).copied().collect();
            let mut grown = block_hashes(7, BLOCK, &head);
            extend_chain(&mut grown, 7, BLOCK, &whole);
            prop_assert_eq!(grown, block_hashes(7, BLOCK, &whole));
        }
    }

    #[test]
    fn a_prompt_larger_than_the_cache_keeps_its_head() {
        let chain: Vec<u64> = (1..=10).collect();
        let mut cache = PrefixCache::new(4);
        cache.insert(&chain);
        assert_eq!(cache.lookup(&chain), 4);
    }

    #[test]
    fn the_queue_of_touches_stays_bounded() {
        let chain: Vec<u64> = (1..=8).collect();
        let mut cache = PrefixCache::new(8);
        for _ in 0..10_000 {
            cache.insert(&chain);
        }
        assert!(cache.touches.len() <= 4 * 8 + ORDER_SLACK);
    }
}
