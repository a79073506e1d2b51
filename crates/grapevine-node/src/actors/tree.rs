//! The tree actor: owns the prefix tree.
//!
//! ```text
//! request actors -- tell observe/retract, ask lookup --> +------------+ --> TreeStats snapshot
//! replica actor --- must forget/remove, tell tokens --> | PrefixTree | --> read by requests
//! mesh host ------- ask drain, tell apply -------------> +------------+
//!                   ask and must snapshots (`snapshot`)
//! ```
//!
//! Only the actor changes the tree. A request reads it where it is, between two of the actor's handlers: to
//! ask would cost several times what looking costs. It asks when the actor is at work, and has a deadline
//! then: a request is never failed because the tree is busy, it is routed by load alone. Handlers are short
//! (microseconds) and never wait.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
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
    shared: Arc<Shared>,
    clock: Clock,
}

/// What is read without asking.
struct Shared {
    /// Written by the actor alone, one message at a time.
    tree: RwLock<PrefixTree>,
    /// Own picks that the tree knows.
    picks: AtomicU64,
    stats: ArcSwap<TreeStats>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("picks", &self.picks)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

/// What the tree knows of a prompt.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Every replica believed to hold a prefix of it, deepest first.
    pub matches: Matches,
    /// Picks of this router that it takes into account: those numbered below this.
    pub picks: u64,
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
    /// Every replica believed to hold a prefix of `key`: read at once, or asked for while the actor is at work.
    /// What was just told may still wait for the actor. `None` when the tree did not answer within `limit`.
    pub async fn lookup(&self, key: &Arc<PrefixKey>, limit: Duration) -> Option<Found> {
        match self.shared.read(key, self.clock.now()) {
            Some(found) => Some(found),
            None => self.ask(key, limit).await,
        }
    }

    /// Ask: what [`Self::lookup`] finds, once everything that was told before is in the tree.
    pub async fn ask(&self, key: &Arc<PrefixKey>, limit: Duration) -> Option<Found> {
        let (reply, answer) = oneshot::channel();
        if !self.mailbox.try_send(Msg::Lookup { key: Arc::clone(key), reply }) {
            return None;
        }
        timeout(limit, answer).await.ok()?.ok()
    }

    /// Tell: the picker sent `key` to `replica`, which will prefill about `new_tokens`; its pick number `pick`, if
    /// it counts as one. How the replica had used this prefix before comes back, for whoever is still
    /// interested; it comes never when the mailbox is full.
    pub fn observe(
        &self,
        key: &Arc<PrefixKey>,
        replica: ReplicaId,
        new_tokens: u32,
        pick: Option<u64>,
    ) -> oneshot::Receiver<Option<LastUse>> {
        let (before, last_use) = oneshot::channel();
        self.mailbox.try_send(Msg::Observe { key: Arc::clone(key), replica, new_tokens, pick, before });
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
        self.shared.stats.load_full()
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
        reply: oneshot::Sender<Found>,
    },
    Observe {
        key: Arc<PrefixKey>,
        replica: ReplicaId,
        new_tokens: u32,
        pick: Option<u64>,
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

/// Starts the actor. It ends when every handle is gone.
pub fn spawn(config: TreeConfig, clock: Clock) -> (TreeHandle, JoinHandle<()>) {
    let (mailbox, inbox, gauges) = Mailbox::new(MAILBOX);
    let shared = shared(config);
    let task = tokio::spawn(run(Arc::clone(&shared), inbox, clock, gauges));
    (TreeHandle { mailbox, shared, clock }, task)
}

fn shared(config: TreeConfig) -> Arc<Shared> {
    let tree = RwLock::new(PrefixTree::new(config));
    Arc::new(Shared { tree, picks: AtomicU64::new(0), stats: ArcSwap::default() })
}

async fn run(shared: Arc<Shared>, mut inbox: mpsc::Receiver<Msg>, clock: Clock, gauges: Arc<Gauges>) {
    let mut burst = Vec::with_capacity(BURST);
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let received = tokio::select! {
            received = inbox.recv_many(&mut burst, BURST) => received,
            _ = sweep.tick() => {
                let began = Instant::now();
                shared.sweep(clock.now());
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
            shared.handle(message, now);
        }
        gauges.progress(now, received as u64, began.elapsed());
    }
}

impl Shared {
    /// Looks, unless the actor is at work.
    fn read(&self, key: &PrefixKey, now: Millis) -> Option<Found> {
        let tree = self.tree.try_read().ok()?;
        Some(self.find(&tree, key, now))
    }

    fn find(&self, tree: &PrefixTree, key: &PrefixKey, now: Millis) -> Found {
        let mut found = Found { matches: Matches::new(), picks: self.picks.load(Relaxed) };
        tree.lookup(key, now, &mut found.matches);
        found
    }

    /// For the actor. Readers need microseconds.
    fn write(&self) -> RwLockWriteGuard<'_, PrefixTree> {
        // A handler that panics ends the actor, and with it the router.
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, message: Msg, now: Millis) {
        let mut tree = self.write();
        match message {
            // Whoever asked may have given up while the question waited.
            Msg::Lookup { reply, .. } if reply.is_closed() => {}
            Msg::Lookup { key, reply } => _ = reply.send(self.find(&tree, &key, now)),
            Msg::Observe { key, replica, new_tokens, pick, before } => {
                if !before.is_closed() {
                    let _ = before.send(tree.last_use(&key, replica, now));
                }
                tree.observe(&key, replica, new_tokens, now);
                if let Some(pick) = pick {
                    self.picks.fetch_max(pick + 1, Relaxed);
                }
            }
            Msg::Retract { key, replica } => tree.retract(&key, replica, now),
            Msg::Apply { origin, entries } => {
                for entry in &entries {
                    tree.apply(origin, entry, now);
                }
            }
            Msg::PeerTokens { growth } => {
                for (replica, tokens) in growth {
                    tree.add_peer_tokens(replica, tokens);
                }
            }
            Msg::SetCapacity { replica, tokens } => tree.set_capacity(replica, tokens),
            Msg::Forget { replica, epoch } => tree.forget(replica, epoch),
            Msg::Remove { replica } => tree.remove(replica),
            // A drain takes: it must not be done for nobody.
            Msg::Drain { reply, .. } if reply.is_closed() => {}
            Msg::Drain { budget, reply } => {
                let entries = tree.drain(budget, now);
                let _ = reply.send(Drained { entries, own_tokens: tree.own_tokens().collect() });
            }
            Msg::Whole(message) => message.handle(&mut tree, now),
            Msg::Heavy(message) => message.handle(&tree, now),
        }
    }

    fn sweep(&self, now: Millis) {
        let mut tree = self.write();
        tree.sweep(now);
        let stats = tree.stats();
        drop(tree);
        if **self.stats.load() != stats {
            self.stats.store(Arc::new(stats));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

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
        let tree = TreeHandle { mailbox, shared: shared(TreeConfig::default()), clock: Clock::start() };
        let (begun, is_at_work) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(&tree.shared);
        let actor = std::thread::spawn(move || {
            let _tree = shared.write();
            begun.send(()).unwrap();
            let _ = ended.recv();
        });
        is_at_work.recv().unwrap();
        let key = Arc::new(PrefixKey { hashes: vec![1], bytes: 128 });
        let limit = Duration::from_millis(5);
        for _ in 0..5 {
            let asked = tokio::time::Instant::now();
            assert_eq!(tree.lookup(&key, limit).await, None);
            assert!(asked.elapsed() <= 2 * limit);
            drop(tree.observe(&key, ReplicaId(1), 32, None));
        }
        drop(end);
        actor.join().unwrap();
    }

    async fn held(tree: &TreeHandle, tag: u64) -> Matches {
        tree.ask(&key(tag), LIMIT).await.unwrap().matches
    }

    #[tokio::test(start_paused = true)]
    async fn a_lookup_does_not_wait_for_what_waits_for_the_actor_and_says_so() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        drop(tree.observe(&key(1), ReplicaId(1), 256, Some(0)));
        let looked = tree.lookup(&key(1), Duration::ZERO).await.unwrap();
        assert_eq!(looked, Found { matches: vec![], picks: 0 }, "the actor had no turn yet");
        let asked = tree.ask(&key(1), LIMIT).await.unwrap();
        assert_eq!((asked.matches.len(), asked.picks), (1, 1));
        assert_eq!(tree.lookup(&key(1), Duration::ZERO).await.unwrap(), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_observed_is_found_and_what_was_retracted_is_not() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        let (a, b) = (ReplicaId(1), ReplicaId(2));
        tree.observe(&key(1), a, 256, None);
        tree.observe(&key(2), b, 256, None);
        tree.retract(&key(2), b);
        let matches = held(&tree, 1).await;
        assert_eq!(matches.first().map(|m| (m.replica, m.bytes)), Some((a, 1_024)));
        assert_eq!(held(&tree, 2).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pick_learns_how_its_prefix_was_used_before() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        let first = tree.observe(&key(1), ReplicaId(1), 256, None);
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = tree.observe(&key(1), ReplicaId(1), 0, None);
        assert_eq!(first.await.unwrap(), None);
        let last_use = second.await.unwrap().unwrap();
        assert_eq!(last_use.matched_tokens, 256);
    }

    #[tokio::test(start_paused = true)]
    async fn forgetting_a_replica_drops_its_credit() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        tree.observe(&key(1), ReplicaId(1), 256, None);
        tree.forget(ReplicaId(1), 1).await;
        assert_eq!(held(&tree, 1).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_hands_over_what_a_second_tree_can_use() {
        let (first, _one) = spawn(TreeConfig::default(), Clock::start());
        let (second, _two) = spawn(TreeConfig::default(), Clock::start());
        first.observe(&key(7), ReplicaId(3), 256, None);
        let drained = first.drain(64 * 1_024).await.unwrap();
        assert_eq!(drained.own_tokens, [(ReplicaId(3), 256)]);
        second.apply(RouterId(1), drained.entries);
        let matches = held(&second, 7).await;
        assert_eq!(matches.first().map(|m| m.replica), Some(ReplicaId(3)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_mailbox_drops_and_counts() {
        let (tree, _task) = spawn(TreeConfig::default(), Clock::start());
        for i in 0..MAILBOX as u64 + 5 {
            tree.observe(&key(i), ReplicaId(1), 1, None);
        }
        assert_eq!(tree.mailbox().dropped, 5);
        assert!(tree.ask(&key(1), LIMIT).await.is_none(), "busy is an answer too");
    }

    #[tokio::test(start_paused = true)]
    async fn the_actor_ends_with_its_last_handle() {
        let (tree, task) = spawn(TreeConfig::default(), Clock::start());
        drop(tree);
        task.await.unwrap();
    }
}
