//! What caches could give: one endless cache, or a few finite ones under a rule.

use std::collections::HashSet;

use super::Ask;
use crate::engine::{PrefixCache, block_hashes};

/// Where chains of an ideal cache start; any number does.
const SEED: u64 = 0;

/// Blocks asked for and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Prompt blocks asked for.
    pub asked: u64,
    /// Those of them that were there.
    pub found: u64,
}

impl Hits {
    /// Found of asked, 0 to 1; 0 when nothing was asked.
    pub fn rate(self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.found as f64 / self.asked as f64 }
    }

    fn add(&mut self, asked: usize, found: usize) {
        self.asked += asked as u64;
        self.found += found as u64;
    }
}

/// One endless cache that sees every request: no router can do better.
#[derive(Clone, Debug)]
pub struct Ideal {
    block_bytes: usize,
    seen: HashSet<u64>,
    hits: Hits,
}

impl Ideal {
    /// A cache of blocks of that size, still empty.
    pub fn new(block_bytes: usize) -> Self {
        Self { block_bytes, seen: HashSet::new(), hits: Hits::default() }
    }

    /// Sees a request.
    pub fn observe(&mut self, ask: &Ask) {
        let chain = block_hashes(SEED, self.block_bytes, &ask.render());
        let found = chain.iter().take_while(|hash| self.seen.contains(hash)).count();
        self.hits.add(chain.len(), found);
        self.seen.extend(chain);
    }

    /// What it found so far.
    pub fn hits(&self) -> Hits {
        self.hits
    }
}

/// What an endless cache finds in all of a workload. The workload must end.
pub fn ideal(asks: impl IntoIterator<Item = Ask>, block_bytes: usize) -> Hits {
    let mut ideal = Ideal::new(block_bytes);
    asks.into_iter().for_each(|ask| ideal.observe(&ask));
    ideal.hits()
}

/// What `engines` caches of `cache_blocks` each find, one request after the other, when `pick` says
/// which of them gets it (a number past the last counts from the first again).
pub fn replay(
    asks: impl IntoIterator<Item = Ask>,
    block_bytes: usize,
    engines: usize,
    cache_blocks: usize,
    mut pick: impl FnMut(&Ask) -> usize,
) -> Hits {
    let mut caches: Vec<PrefixCache> = (0..engines).map(|_| PrefixCache::new(cache_blocks)).collect();
    let mut hits = Hits::default();
    for ask in asks {
        let chosen = pick(&ask) % engines.max(1);
        let Some(cache) = caches.get_mut(chosen) else { break };
        let chain = block_hashes(SEED, block_bytes, &ask.render());
        hits.add(chain.len(), cache.lookup(&chain));
        cache.insert(&chain);
    }
    hits
}
