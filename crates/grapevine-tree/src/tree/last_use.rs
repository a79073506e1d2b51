//! How a replica last used a prompt's prefix: what an answer's report of cached tokens is held against.

use super::PrefixTree;
use super::arena::NONE;
use super::credit::{TICK_MS, tick};
use crate::boundary;
use crate::id::{Millis, ReplicaId};
use crate::key::PrefixKey;

/// The deepest prefix of a prompt that a replica was sent, whether or not it is still believed to be
/// there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastUse {
    /// How much of the prompt it is, tokens: up to the last boundary that matched, so all of it is shared.
    pub matched_tokens: u32,
    /// Its tail: tokens last used when its end was. What lies before has been used since, by prompts
    /// that share it.
    pub tail_tokens: u32,
    /// Distinct tokens that the replica has used since, as far as is known: where the tail begins in a
    /// cache that orders by use.
    pub newer_tokens: u64,
    /// How long ago.
    pub unused_ms: Millis,
}

impl PrefixTree {
    /// How `replica` last used a prefix of `key`. Ask before [`Self::observe`], which is a use.
    pub fn last_use(&self, key: &PrefixKey, replica: ReplicaId, now: Millis) -> Option<LastUse> {
        let slot = self.replicas.find(replica)?;
        let credit = |id| self.arena.node(id).credits().get(slot);
        let (end, index) = self.trace(key).into_iter().rev().find(|&(id, _)| credit(id).is_some())?;
        let last = credit(end)?;
        let mut above = self.arena.node(end).parent;
        while above != NONE && credit(above).is_some_and(|c| c.epoch == last.epoch) {
            above = self.arena.node(above).parent;
        }
        let tail_from = match above {
            NONE => 0,
            above => boundary::depth(usize::from(self.arena.node(above).last())),
        };
        let tokens = |bytes: u64| (bytes as f64 / f64::from(self.config.bytes_per_token)) as u64;
        let matched = boundary::depth(index) as u64;
        Some(LastUse {
            matched_tokens: tokens(matched) as u32,
            tail_tokens: tokens(matched.saturating_sub(tail_from as u64)) as u32,
            newer_tokens: tokens(self.replicas.depth(slot, last.epoch)),
            unused_ms: u64::from(tick(now).saturating_sub(last.at)) * TICK_MS,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::TreeConfig;
    use super::*;

    const A: ReplicaId = ReplicaId(1);

    /// `tokens` of text that is `name`'s own after the first `head` tokens.
    fn key(name: u8, head: usize, tokens: usize) -> PrefixKey {
        let mut text = vec![b'h'; head * 4];
        text.resize(tokens * 4, name);
        let mut hashes = Vec::new();
        boundary::hash_into(7, &text, &mut hashes);
        PrefixKey { hashes, bytes: text.len() as u64 }
    }

    #[test]
    fn says_how_much_when_and_what_came_after() {
        let mut tree =
            PrefixTree::new(TreeConfig { default_capacity_tokens: 64_000, ..TreeConfig::default() });
        let first = key(b'a', 1_024, 4_096);
        assert_eq!(tree.last_use(&first, A, 0), None);
        tree.observe(&first, A, 4_096, 640);
        for (name, at) in [(b'b', 2_000), (b'c', 3_000)] {
            tree.observe(&key(name, 1_024, 4_096), A, 3_072, at);
        }
        let longer = key(b'a', 1_024, 6_144);
        let last = tree.last_use(&longer, A, 5_760).unwrap();
        assert_eq!(last.matched_tokens, 4_096);
        assert_eq!(last.tail_tokens, 3_072, "the head was used since");
        // The head and two tails, to within an epoch.
        assert!((5_000..9_000).contains(&last.newer_tokens), "{last:?}");
        assert_eq!(last.unused_ms, 5_120);
        assert_eq!(tree.last_use(&longer, ReplicaId(2), 5_120), None);
    }

    #[test]
    fn says_so_of_what_is_not_believed_any_more_too() {
        let mut tree =
            PrefixTree::new(TreeConfig { default_capacity_tokens: 8_000, ..TreeConfig::default() });
        let first = key(b'a', 0, 2_048);
        tree.observe(&first, A, 2_048, 0);
        for name in 0..6 {
            tree.observe(&key(name, 0, 2_048), A, 2_048, 1_000);
        }
        let mut matches = Vec::new();
        tree.lookup(&first, 60_000, &mut matches);
        assert!(matches.is_empty());
        let last = tree.last_use(&first, A, 60_000).unwrap();
        assert!(last.newer_tokens > 8_000, "{last:?}");
    }
}
