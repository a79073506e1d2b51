//! The heaviest prefixes, weighed slice by slice: each message is about a tenth of a millisecond of work.

use grapevine_tree::{Heaviest, HeavyPrefix, Millis, PrefixTree};
use tokio::sync::oneshot;

use super::TreeHandle;

/// Slices weighed, at most: those of the largest tree that can be configured.
const MAX_SLICES: usize = 4_096;

impl TreeHandle {
    /// Must: the `most` heaviest prefixes with those above them, parents first.
    pub async fn heaviest(&self, most: usize) -> Vec<HeavyPrefix> {
        let (mut found, mut cursor) = (Heaviest::new(most), 0);
        for _ in 0..MAX_SLICES {
            let (reply, answer) = oneshot::channel();
            self.heavy(Msg::Weigh { cursor, found, reply }).await;
            let Ok((weighed, next)) = answer.await else { return Vec::new() };
            found = weighed;
            let Some(next) = next else { break };
            cursor = next;
        }
        let (reply, answer) = oneshot::channel();
        self.heavy(Msg::Describe { found, reply }).await;
        answer.await.unwrap_or_default()
    }
}

#[derive(Debug)]
pub(super) enum Msg {
    Weigh { cursor: u64, found: Heaviest, reply: oneshot::Sender<(Heaviest, Option<u64>)> },
    Describe { found: Heaviest, reply: oneshot::Sender<Vec<HeavyPrefix>> },
}

impl Msg {
    pub(super) fn handle(self, tree: &PrefixTree, now: Millis) {
        match self {
            Self::Weigh { cursor, mut found, reply } => {
                let next = tree.weigh(cursor, now, &mut found);
                let _ = reply.send((found, next));
            }
            Self::Describe { found, reply } => _ = reply.send(tree.describe_heaviest(&found, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grapevine_tree::{PrefixKey, ReplicaId, TreeConfig};

    use super::super::spawn;
    use crate::clock::Clock;

    #[tokio::test(start_paused = true)]
    async fn the_tree_says_what_is_used_most() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        let hash = |tag: u64, i: u64| (tag * 100 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for tag in 1..=2_500u64 {
            let hashes = (0..8).map(|i| hash(if i < 4 { 0 } else { tag }, i)).collect();
            drop(tree.observe(&Arc::new(PrefixKey { hashes, bytes: 1_024 }), ReplicaId(1), 256, None));
        }
        let found = tree.heaviest(10).await;
        assert_eq!((found.len(), found[0].own_bytes, found[0].count), (10, 512, 2_500.0));
        assert!(found[1..].iter().all(|tail| tail.parent == Some(0)));
    }
}
