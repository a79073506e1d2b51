//! The tree as a whole, piece by piece: for a peer that joins, and from one.
//!
//! Each message is at most about a millisecond of work, so lookups wait no longer than that.

use std::sync::Arc;

use grapevine_tree::{Millis, PrefixTree, ReplicaHistory, RouterId, SnapshotNode, SnapshotPage, Translation};
use tokio::sync::oneshot;

use super::TreeHandle;

/// Nodes restored by one message: about a millisecond.
const SLICE: usize = 500;

impl TreeHandle {
    /// Ask: the dates that the pages of [`Self::snapshot`] refer to. `None` when the mailbox is full.
    pub async fn histories(&self) -> Option<Vec<ReplicaHistory>> {
        let (reply, answer) = oneshot::channel();
        self.try_whole(Msg::Histories { reply });
        answer.await.ok()
    }

    /// Ask: the tree from `cursor` on, at most about `budget` bytes of it. `None` when the mailbox is
    /// full.
    pub async fn snapshot(&self, cursor: u64, budget: usize) -> Option<SnapshotPage> {
        let (reply, answer) = oneshot::channel();
        self.try_whole(Msg::Page { cursor, budget, reply });
        answer.await.ok()
    }

    /// Must: makes room for a snapshot's dates. `None` when the tree has ended.
    pub async fn adopt(&self, histories: Vec<ReplicaHistory>) -> Option<Arc<Translation>> {
        let (reply, answer) = oneshot::channel();
        self.whole(Msg::Adopt { histories, reply }).await;
        answer.await.ok()
    }

    /// Must: puts a snapshot's nodes into the tree. Resolves when they are there.
    pub async fn restore(&self, teacher: RouterId, nodes: &[SnapshotNode], dates: &Arc<Translation>) {
        for slice in nodes.chunks(SLICE) {
            let (nodes, dates) = (slice.to_vec(), Arc::clone(dates));
            let (done, restored) = oneshot::channel();
            self.whole(Msg::Restore { teacher, nodes, dates, done }).await;
            // One slice at a time: the mailbox stays free for requests.
            let _ = restored.await;
        }
    }
}

#[derive(Debug)]
pub(super) enum Msg {
    Histories {
        reply: oneshot::Sender<Vec<ReplicaHistory>>,
    },
    Page {
        cursor: u64,
        budget: usize,
        reply: oneshot::Sender<SnapshotPage>,
    },
    Adopt {
        histories: Vec<ReplicaHistory>,
        reply: oneshot::Sender<Arc<Translation>>,
    },
    Restore {
        teacher: RouterId,
        nodes: Vec<SnapshotNode>,
        dates: Arc<Translation>,
        done: oneshot::Sender<()>,
    },
}

impl Msg {
    /// Does it. An asker that has given up is no harm: nothing is taken out.
    pub(super) fn handle(self, tree: &mut PrefixTree, now: Millis) {
        match self {
            Self::Histories { reply } => _ = reply.send(tree.histories()),
            Self::Page { cursor, budget, reply } => _ = reply.send(tree.snapshot(cursor, budget, now)),
            Self::Adopt { histories, reply } => _ = reply.send(Arc::new(tree.adopt(&histories))),
            Self::Restore { teacher, nodes, dates, done } => {
                for node in &nodes {
                    tree.restore(teacher, node, &dates, now);
                }
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use grapevine_tree::{PrefixKey, ReplicaId, TreeConfig};

    use super::super::spawn;
    use super::*;
    use crate::clock::Clock;

    fn key(tag: u64) -> Arc<PrefixKey> {
        let hash = |i: u64| (tag * 100 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Arc::new(PrefixKey { hashes: (0..8u64).map(hash).collect(), bytes: 1_024 })
    }

    #[tokio::test(start_paused = true)]
    async fn one_tree_teaches_another_piece_by_piece() {
        let (first, _one) = spawn(TreeConfig::default(), Clock::start());
        let (second, _two) = spawn(TreeConfig::default(), Clock::start());
        for tag in 0..3_000 {
            drop(first.observe(&key(tag), ReplicaId(3), 256, None));
        }
        let histories = first.histories().await.unwrap();
        let dates = second.adopt(histories).await.unwrap();
        let (mut next, mut pages) = (Some(0), 0);
        while let Some(cursor) = next {
            let page = first.snapshot(cursor, 64 * 1_024).await.unwrap();
            second.restore(RouterId(1), &page.nodes, &dates).await;
            (next, pages) = (page.next, pages + 1);
        }
        assert!(pages > 2);
        for tag in 0..3_000 {
            let matches = second.ask(&key(tag), Duration::from_secs(5)).await.unwrap().matches;
            assert_eq!(matches.first().map(|m| m.replica), Some(ReplicaId(3)), "{tag}");
        }
    }
}
