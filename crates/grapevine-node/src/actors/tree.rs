//! The tree actor: owns the prefix tree.
//!
//! ```text
//! request actors -- ask lookup, tell observe/retract --> +------------+ --> TreeStats snapshot
//! replica actor --- must forget/remove, tell tokens --> | PrefixTree |
//! mesh host ------- ask drain, tell apply -------------> +------------+
//!                   ask and must snapshots (`snapshot`)
//! ```
//!
//! Handlers are short (microseconds) and never wait. A lookup has a deadline on the asking side: a
//! request is never failed because the tree is busy, it is routed by load alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use grapevine_tree::{
    DeltaEntry, LastUse, Matches, Millis, PrefixKey, PrefixTree, ReplicaId, RouterId, TreeConfig, TreeStats,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

mod heaviest;
mod snapshot;

use super::mailbox::{Gauges, Mailbox, MailboxView};
use crate::clock::Clock;

/// Messages that may wait. At 5 us each a full mailbox is 20 ms of work: later than that an answer
/// is of no use to a request.
const MAILBOX: usize = 4_096;

/// Messages taken at one wake-up.
const BURST: usize = 128;

/// Time between two pieces of housekeeping.
const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Speaks to the tree actor.
#[derive(Clone, Debug)]
pub struct TreeHandle {
    mailbox: Mailbox<Msg>,
    stats: Arc<ArcSwap<TreeStats>>,
}

/// What the tree has to gossip.
#[derive(Debug, Default)]
pub struct Drained {
    /// Changed prefixes, most valuable first.
    pub entries: Vec<DeltaEntry>,
    /// Tokens newly sent to each replica since the start.
    pub own_tokens: Vec<(ReplicaId, u64)>,
}

impl TreeHandle {
    /// Ask: every replica believed to hold a prefix of `key`, deepest first. `None` when the tree
    /// did not answer within `limit`.
    pub async fn lookup(&self, key: &Arc<PrefixKey>, limit: Duration) -> Option<Matches> {
        let (reply, answer) = oneshot::channel();
        if !self.mailbox.try_send(Msg::Lookup { key: Arc::clone(key), reply }) {
            return None;
        }
        timeout(limit, answer).await.ok()?.ok()
    }

    /// Tell: the picker sent `key` to `replica`, which will prefill about `new_tokens`. How the replica
    /// had used this prefix before comes back, for whoever is still interested; it comes never when the
    /// mailbox is full.
    pub fn observe(
        &self,
        key: &Arc<PrefixKey>,
        replica: ReplicaId,
        new_tokens: u32,
    ) -> oneshot::Receiver<Option<LastUse>> {
        let (before, last_use) = oneshot::channel();
        self.mailbox.try_send(Msg::Observe { key: Arc::clone(key), replica, new_tokens, before });
        last_use
    }

    /// Tell: `replica` refused what [`Self::observe`] said it got.
    pub fn retract(&self, key: &Arc<PrefixKey>, replica: ReplicaId) {
        self.mailbox.try_send(Msg::Retract { key: Arc::clone(key), replica });
    }

    /// Tell: what a peer said of its picks.
    pub fn apply(&self, origin: RouterId, entries: Vec<DeltaEntry>) {
        self.mailbox.try_send(Msg::Apply { origin, entries });
    }

    /// Tell: peers newly sent this many tokens to each replica.
    pub fn peer_tokens(&self, growth: Vec<(ReplicaId, u64)>) {
        self.mailbox.try_send(Msg::PeerTokens { growth });
    }

    /// Must: the replica's cache holds `tokens`.
    pub async fn set_capacity(&self, replica: ReplicaId, tokens: u64) {
        self.mailbox.send(Msg::SetCapacity { replica, tokens }).await;
    }

    /// Must: the replica's caches before number `epoch` are gone.
    pub async fn forget(&self, replica: ReplicaId, epoch: u32) {
        self.mailbox.send(Msg::Forget { replica, epoch }).await;
    }

    /// Must: the replica is gone for good.
    pub async fn remove(&self, replica: ReplicaId) {
        self.mailbox.send(Msg::Remove { replica }).await;
    }

    /// Ask: what changed by own picks, at most about `budget` bytes of it. Nothing when the mailbox
    /// is full; what there was to say is then said next time. Without a deadline, as a drain takes:
    /// an answer that comes too late would be lost.
    pub async fn drain(&self, budget: usize) -> Option<Drained> {
        let (reply, answer) = oneshot::channel();
        if !self.mailbox.try_send(Msg::Drain { budget, reply }) {
            return None;
        }
        answer.await.ok()
    }

    fn try_whole(&self, message: snapshot::Msg) {
        self.mailbox.try_send(Msg::Whole(message));
    }

    async fn heavy(&self, message: heaviest::Msg) {
        self.mailbox.send(Msg::Heavy(message)).await;
    }

    async fn whole(&self, message: snapshot::Msg) {
        self.mailbox.send(Msg::Whole(message)).await;
    }

    /// Sizes and counters as of the last housekeeping.
    pub fn stats(&self) -> Arc<TreeStats> {
        self.stats.load_full()
    }

    /// The mailbox's figures.
    pub fn mailbox(&self) -> MailboxView {
        self.mailbox.view()
    }
}

#[derive(Debug)]
enum Msg {
    Lookup {
        key: Arc<PrefixKey>,
        reply: oneshot::Sender<Matches>,
    },
    Observe {
        key: Arc<PrefixKey>,
        replica: ReplicaId,
        new_tokens: u32,
        before: oneshot::Sender<Option<LastUse>>,
    },
    Retract {
        key: Arc<PrefixKey>,
        replica: ReplicaId,
    },
    Apply {
        origin: RouterId,
        entries: Vec<DeltaEntry>,
    },
    PeerTokens {
        growth: Vec<(ReplicaId, u64)>,
    },
    SetCapacity {
        replica: ReplicaId,
        tokens: u64,
    },
    Forget {
        replica: ReplicaId,
        epoch: u32,
    },
    Remove {
        replica: ReplicaId,
    },
    Drain {
        budget: usize,
        reply: oneshot::Sender<Drained>,
    },
    Whole(snapshot::Msg),
    Heavy(heaviest::Msg),
}

struct TreeActor {
    tree: PrefixTree,
    stats: Arc<ArcSwap<TreeStats>>,
}

/// Starts the actor. It ends when every handle is gone.
pub fn spawn(config: TreeConfig, clock: Clock) -> (TreeHandle, JoinHandle<()>) {
    let (mailbox, inbox, gauges) = Mailbox::new(MAILBOX);
    let stats = Arc::new(ArcSwap::from_pointee(TreeStats::default()));
    let actor = TreeActor { tree: PrefixTree::new(config), stats: Arc::clone(&stats) };
    let task = tokio::spawn(run(actor, inbox, clock, gauges));
    (TreeHandle { mailbox, stats }, task)
}

async fn run(mut actor: TreeActor, mut inbox: mpsc::Receiver<Msg>, clock: Clock, gauges: Arc<Gauges>) {
    let mut burst = Vec::with_capacity(BURST);
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let received = tokio::select! {
            received = inbox.recv_many(&mut burst, BURST) => received,
            _ = sweep.tick() => {
                let began = Instant::now();
                actor.sweep(clock.now());
                gauges.progress(clock.now(), 0, began.elapsed());
                continue;
            }
        };
        if received == 0 {
            return;
        }
        let began = Instant::now();
        let now = clock.now();
        for message in burst.drain(..) {
            actor.handle(message, now);
        }
        gauges.progress(now, received as u64, began.elapsed());
    }
}

impl TreeActor {
    fn handle(&mut self, message: Msg, now: Millis) {
        match message {
            Msg::Lookup { key, reply } => self.lookup(&key, reply, now),
            Msg::Observe { key, replica, new_tokens, before } => {
                if !before.is_closed() {
                    let _ = before.send(self.tree.last_use(&key, replica, now));
                }
                self.tree.observe(&key, replica, new_tokens, now);
            }
            Msg::Retract { key, replica } => self.tree.retract(&key, replica, now),
            Msg::Apply { origin, entries } => {
                for entry in &entries {
                    self.tree.apply(origin, entry, now);
                }
            }
            Msg::PeerTokens { growth } => {
                for (replica, tokens) in growth {
                    self.tree.add_peer_tokens(replica, tokens);
                }
            }
            Msg::SetCapacity { replica, tokens } => self.tree.set_capacity(replica, tokens),
            Msg::Forget { replica, epoch } => self.tree.forget(replica, epoch),
            Msg::Remove { replica } => self.tree.remove(replica),
            Msg::Drain { budget, reply } => self.drain(budget, reply, now),
            Msg::Whole(message) => message.handle(&mut self.tree, now),
            Msg::Heavy(message) => message.handle(&self.tree, now),
        }
    }

    fn lookup(&mut self, key: &PrefixKey, reply: oneshot::Sender<Matches>, now: Millis) {
        // Whoever asked may have given up while the question waited.
        if reply.is_closed() {
            return;
        }
        let mut matches = Matches::new();
        self.tree.lookup(key, now, &mut matches);
        let _ = reply.send(matches);
    }

    fn drain(&mut self, budget: usize, reply: oneshot::Sender<Drained>, now: Millis) {
        // A drain takes: it must not be done for nobody.
        if reply.is_closed() {
            return;
        }
        let entries = self.tree.drain(budget, now);
        let own_tokens = self.tree.own_tokens().collect();
        let _ = reply.send(Drained { entries, own_tokens });
    }

    fn sweep(&mut self, now: Millis) {
        self.tree.sweep(now);
        let stats = self.tree.stats();
        if **self.stats.load() != stats {
            self.stats.store(Arc::new(stats));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    fn key(tag: u64) -> Arc<PrefixKey> {
        // Spread like real hashes: the tree does not look at every bit.
        let hash = |i: u64| (tag * 100 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Arc::new(PrefixKey { hashes: (0..8u64).map(hash).collect(), bytes: 1_024 })
    }

    #[tokio::test(start_paused = true)]
    async fn a65_a_tree_that_does_not_answer_holds_nobody_up() {
        let (mailbox, _unread, _) = Mailbox::new(2);
        let tree = TreeHandle { mailbox, stats: Arc::default() };
        let key = Arc::new(PrefixKey { hashes: vec![1], bytes: 128 });
        let limit = Duration::from_millis(5);
        for _ in 0..5 {
            let asked = tokio::time::Instant::now();
            assert_eq!(tree.lookup(&key, limit).await, None);
            assert!(asked.elapsed() <= 2 * limit);
            drop(tree.observe(&key, ReplicaId(1), 32));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_observed_is_found_and_what_was_retracted_is_not() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        let (a, b) = (ReplicaId(1), ReplicaId(2));
        tree.observe(&key(1), a, 256);
        tree.observe(&key(2), b, 256);
        tree.retract(&key(2), b);
        let matches = tree.lookup(&key(1), LIMIT).await.unwrap();
        assert_eq!(matches.first().map(|m| (m.replica, m.bytes)), Some((a, 1_024)));
        assert_eq!(tree.lookup(&key(2), LIMIT).await, Some(Matches::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pick_learns_how_its_prefix_was_used_before() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        let first = tree.observe(&key(1), ReplicaId(1), 256);
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = tree.observe(&key(1), ReplicaId(1), 0);
        assert_eq!(first.await.unwrap(), None);
        let last_use = second.await.unwrap().unwrap();
        assert_eq!(last_use.matched_tokens, 256);
    }

    #[tokio::test(start_paused = true)]
    async fn forgetting_a_replica_drops_its_credit() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        tree.observe(&key(1), ReplicaId(1), 256);
        tree.forget(ReplicaId(1), 1).await;
        assert_eq!(tree.lookup(&key(1), LIMIT).await, Some(Matches::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_hands_over_what_a_second_tree_can_use() {
        let (first, _one) = spawn(TreeConfig::default(), Clock::start());
        let (second, _two) = spawn(TreeConfig::default(), Clock::start());
        first.observe(&key(7), ReplicaId(3), 256);
        let drained = first.drain(64 * 1_024).await.unwrap();
        assert_eq!(drained.own_tokens, [(ReplicaId(3), 256)]);
        second.apply(RouterId(1), drained.entries);
        let matches = second.lookup(&key(7), LIMIT).await.unwrap();
        assert_eq!(matches.first().map(|m| m.replica), Some(ReplicaId(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_mailbox_drops_and_counts() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        for i in 0..MAILBOX as u64 + 5 {
            tree.observe(&key(i), ReplicaId(1), 1);
        }
        assert_eq!(tree.mailbox().dropped, 5);
        assert!(tree.lookup(&key(1), LIMIT).await.is_none(), "busy is an answer too");
    }

    #[tokio::test(start_paused = true)]
    async fn the_actor_ends_with_its_last_handle() {
        let (tree, task) = spawn(TreeConfig::default(), Clock::start());
        drop(tree);
        task.await.unwrap();
    }
}
