//! The prefix cache of an engine: least recently used blocks go first, tails before heads, and what
//! a running request uses does not go at all.
//!
//! As vLLM's block pool does it: a request pins its blocks from the start of its prefill to its end,
//! then hands them back tail first, so among blocks handed back together the tail is the older.
//!
//! **Invariant: prefix-closed.** Whoever pins a block pins all blocks before it and hands them back
//! after it, so a held block's head is held.

const NONE: u32 = u32::MAX;

/// Neither pinned nor idle.
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    older: u32,
    newer: u32,
    pins: u32,
}

/// An LRU over block ids, which are dense: all state is in flat arrays.
#[derive(Clone, Debug)]
pub struct BlockCache {
    capacity: usize,
    slots: Vec<Slot>,
    oldest: u32,
    newest: u32,
    held: usize,
    idle: usize,
}

/// Blocks of a prompt in prefix order, as runs of ids: (first, count).
pub type Runs = [(u32, u32)];

/// The ids of `runs`, in prefix order.
pub fn ids(runs: &Runs) -> impl DoubleEndedIterator<Item = u32> + '_ {
    runs.iter().flat_map(|&(first, count)| first..first + count)
}

/// How many blocks `runs` are.
pub fn len(runs: &Runs) -> usize {
    runs.iter().map(|&(_, count)| count as usize).sum()
}

impl BlockCache {
    /// A cache of `capacity` blocks whose ids are below `ids`.
    pub fn new(capacity: usize, ids: usize) -> Self {
        let absent = Slot { older: NONE, newer: NONE, pins: ABSENT };
        Self { capacity, slots: vec![absent; ids], oldest: NONE, newest: NONE, held: 0, idle: 0 }
    }

    /// How many leading blocks of `runs` are held.
    pub fn hits(&self, runs: &Runs) -> usize {
        ids(runs).take_while(|&id| self.slots[id as usize].pins != ABSENT).count()
    }

    /// Pins the blocks of `runs` (or as much of their head as the cache can ever hold), making room
    /// for those that are not held. False, and nothing is done, when what others have pinned leaves
    /// no room.
    pub fn admit(&mut self, runs: &Runs) -> bool {
        let fits = || ids(runs).take(self.capacity);
        let (mut fresh, mut woken) = (0, 0);
        for id in fits() {
            match self.slots[id as usize].pins {
                ABSENT => fresh += 1,
                0 => woken += 1,
                _ => {}
            }
        }
        if self.held - self.idle + woken + fresh > self.capacity {
            return false;
        }
        for id in ids(runs).take(self.capacity) {
            if self.slots[id as usize].pins != ABSENT {
                self.pin(id);
            }
        }
        while self.held + fresh > self.capacity {
            self.evict_oldest();
        }
        for id in ids(runs).take(self.capacity) {
            let slot = &mut self.slots[id as usize];
            if slot.pins == ABSENT {
                slot.pins = 1;
                self.held += 1;
            }
        }
        true
    }

    /// Hands back what [`Self::admit`] pinned.
    pub fn release(&mut self, runs: &Runs) {
        let fits = len(runs).min(self.capacity);
        for id in ids(runs).rev().skip(len(runs) - fits) {
            let slot = &mut self.slots[id as usize];
            slot.pins -= 1;
            if slot.pins == 0 {
                self.push_newest(id);
            }
        }
    }

    /// Drops everything that is not in use.
    pub fn drop_idle(&mut self) {
        while self.oldest != NONE {
            self.evict_oldest();
        }
    }

    /// Blocks it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Blocks in use by running requests.
    pub fn pinned(&self) -> usize {
        self.held - self.idle
    }

    fn pin(&mut self, id: u32) {
        if self.slots[id as usize].pins == 0 {
            self.unlink(id);
        }
        self.slots[id as usize].pins += 1;
    }

    fn evict_oldest(&mut self) {
        let id = self.oldest;
        self.unlink(id);
        self.slots[id as usize].pins = ABSENT;
        self.held -= 1;
    }

    fn push_newest(&mut self, id: u32) {
        let before = std::mem::replace(&mut self.newest, id);
        match before {
            NONE => self.oldest = id,
            before => self.slots[before as usize].newer = id,
        }
        let slot = &mut self.slots[id as usize];
        (slot.older, slot.newer) = (before, NONE);
        self.idle += 1;
    }

    fn unlink(&mut self, id: u32) {
        let Slot { older, newer, .. } = self.slots[id as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        self.idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A list of blocks, most recent first; slow and obvious.
    struct Naive {
        capacity: usize,
        recent: Vec<u32>,
        pinned: Vec<Vec<u32>>,
    }

    impl Naive {
        fn is_pinned(&self, id: u32) -> bool {
            self.pinned.iter().any(|chain| chain.contains(&id))
        }

        fn admit(&mut self, chain: &[u32]) -> bool {
            let chain = &chain[..chain.len().min(self.capacity)];
            let mut pinned: Vec<u32> = self.pinned.iter().flatten().chain(chain).copied().collect();
            pinned.sort_unstable();
            pinned.dedup();
            if pinned.len() > self.capacity {
                return false;
            }
            self.pinned.push(chain.to_vec());
            for &id in chain {
                if !self.recent.contains(&id) {
                    self.recent.insert(0, id);
                }
            }
            while self.recent.len() > self.capacity {
                let at = self.recent.iter().rposition(|&id| !self.is_pinned(id)).unwrap();
                self.recent.remove(at);
            }
            true
        }

        fn release(&mut self, which: usize) {
            for id in self.pinned.remove(which).into_iter().rev() {
                if !self.is_pinned(id) {
                    self.recent.retain(|&r| r != id);
                    self.recent.insert(0, id);
                }
            }
        }
    }

    /// A prefix tree with four children a node: a path is its digits.
    fn chain(path: &[u32]) -> Vec<u32> {
        let mut at = 0;
        path.iter()
            .map(|digit| {
                at = at * 4 + digit + 1;
                at
            })
            .collect()
    }

    fn runs(chain: &[u32]) -> Vec<(u32, u32)> {
        chain.iter().map(|&id| (id, 1)).collect()
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_lru_and_stays_prefix_closed(
            capacity in 1usize..12,
            steps in prop::collection::vec((prop::collection::vec(0u32..4, 1..5), 0usize..4), 1..80),
        ) {
            let mut cache = BlockCache::new(capacity, 400);
            let mut naive = Naive { capacity, recent: vec![], pinned: vec![] };
            let mut open: Vec<Vec<u32>> = vec![];
            for (path, close) in steps {
                let chain = chain(&path);
                let naive_hits = chain.iter().take_while(|id| naive.recent.contains(id)).count();
                prop_assert_eq!(cache.hits(&runs(&chain)), naive_hits);
                let admitted = cache.admit(&runs(&chain));
                prop_assert_eq!(admitted, naive.admit(&chain));
                if admitted {
                    open.push(chain.clone());
                }
                if close < open.len() {
                    cache.release(&runs(&open.remove(close)));
                    naive.release(close);
                }
                prop_assert_eq!(cache.held, naive.recent.len());
                prop_assert!(cache.held <= capacity);
                for id in 1..400u32 {
                    let held = cache.slots[id as usize].pins != ABSENT;
                    prop_assert_eq!(held, naive.recent.contains(&id));
                    let parent = (id - 1) / 4;
                    prop_assert!(!held || parent == 0 || cache.slots[parent as usize].pins != ABSENT);
                }
            }
        }
    }

    #[test]
    fn what_is_in_use_outlives_a_reset() {
        let mut cache = BlockCache::new(8, 10);
        assert!(cache.admit(&[(0, 3)]) && cache.admit(&[(5, 3)]));
        cache.release(&[(0, 3)]);
        cache.drop_idle();
        assert_eq!((cache.hits(&[(0, 3)]), cache.hits(&[(5, 3)]), cache.held), (0, 3, 3));
        cache.release(&[(5, 3)]);
        cache.drop_idle();
        assert_eq!((cache.held, cache.idle), (0, 0));
    }

    #[test]
    fn a_prompt_larger_than_the_cache_keeps_its_head() {
        let mut cache = BlockCache::new(4, 10);
        assert!(cache.admit(&[(0, 10)]));
        assert_eq!((cache.hits(&[(0, 10)]), cache.pinned()), (4, 4));
        assert!(!cache.admit(&[(5, 1)]), "everything is in use");
        cache.release(&[(0, 10)]);
        assert_eq!((cache.hits(&[(0, 10)]), cache.pinned()), (4, 0));
        assert!(cache.admit(&[(5, 1)]));
        assert_eq!(cache.hits(&[(0, 10)]), 3, "the tail went first");
    }
}
