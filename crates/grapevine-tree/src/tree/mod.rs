//! The radix tree: which replica has been sent which prefix, and probably still holds it.
//!
//! ```text
//!   own pick ──observe──▶ path ─▶ arena (nodes, labels, index) ◀─ path ◀──apply── a peer's entry
//!                          │            │ credits per node: count, freshness       │
//!                       outbox ─drain─▶ entries for peers                       lookup ─▶ Matches
//! ```
//!
//! A node's label is a run of boundaries; it splits where a later request diverges. **A partial
//! label match counts**: what matters is the shared head, because that is what the engine cached.
//! A lookup answers for every replica how deep its longest matched prefix is; it costs at most one
//! probe per boundary, whatever the size of the tree.
//!
//! **Invariant:** sizes never exceed [`TreeConfig::max_boundaries`] after a call returns.
//! **Invariant:** the same calls with the same `now` give the same tree, on every machine.

mod arena;
mod credit;
mod heaviest;
mod index;
mod labels;
mod last_use;
mod lookup;
mod outbox;
mod path;
mod recency;
mod replicas;
mod snapshot;
mod sweep;

use hashbrown::HashTable;
use smallvec::SmallVec;

use self::arena::{Arena, NONE, NodeId, PackedMark, pack};
use self::credit::{Slot, Tick, tick};
pub use self::heaviest::{Heaviest, HeavyPrefix};
pub use self::last_use::LastUse;
pub use self::lookup::{Match, Matches, Teacher};
use self::outbox::Outbox;
use self::recency::Epoch;
use self::replicas::Replicas;
pub use self::snapshot::{ReplicaHistory, SnapshotCredit, SnapshotNode, SnapshotPage, Translation};
use crate::delta::{DeltaEntry, Mark};
use crate::id::{Millis, ReplicaId, RouterId};
use crate::key::PrefixKey;

/// Limits and time constants of a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeConfig {
    /// Most boundaries kept, at most 16,000,000; enforced on every insert, least recently used
    /// first. 17 to 23 B each: a million is room for 25,000 prompts of 16 KiB that share nothing.
    pub max_boundaries: usize,
    /// Cache size in tokens assumed for a replica until [`PrefixTree::set_capacity`] says better.
    /// 500,000: an 8-billion-parameter model on an 80 GB accelerator.
    pub default_capacity_tokens: u64,
    /// Bytes of prompt text for one token, on average.
    pub bytes_per_token: f32,
    /// Half-life of counts, ms. Two minutes: longer than the time to reuse of real chats, shorter
    /// than a change of traffic.
    pub half_life_ms: u64,
    /// A credit unused for this long is dropped whatever the clock of new tokens says, ms.
    pub idle_ttl_ms: u64,
    /// What was used this recently is believed whatever the clock of new tokens says, ms.
    pub grace_ms: u64,
}

impl Default for TreeConfig {
    fn default() -> Self {
        Self {
            max_boundaries: 1_000_000,
            default_capacity_tokens: 500_000,
            bytes_per_token: 4.0,
            half_life_ms: 120_000,
            idle_ttl_ms: 1_800_000,
            grace_ms: 5_000,
        }
    }
}

/// Largest [`TreeConfig::max_boundaries`]: the index names nodes with 24 bits.
pub const MAX_BOUNDARIES_LIMIT: usize = 16_000_000;

/// Index memory reserved at start, boundaries: 6 MB, so that most trees never rehash.
const RESERVED: usize = 1_000_000;

/// Counts below this are noise: ten half-lives after a single pick.
const MIN_COUNT: f32 = 0.001;

/// Sizes and counters of a tree; counters since start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Radix nodes now.
    pub nodes: usize,
    /// Boundaries stored now.
    pub boundaries: usize,
    /// Credits stored now.
    pub credits: usize,
    /// Estimated heap bytes now.
    pub bytes: usize,
    /// Boundaries dropped because of the limit.
    pub evicted: u64,
    /// Boundaries dropped because nobody is believed to hold them any more.
    pub expired: u64,
    /// Changes waiting to be gossiped now.
    pub dirty: usize,
    /// Changes that were not queued for gossip because the queue was full.
    pub overflowed: u64,
    /// Peers' entries ignored because they contradict what is known.
    pub contradictions: u64,
    /// Peers' entries ignored because they tell of a cache that was lost since.
    pub outdated: u64,
}

/// A use of a path.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: Tick,
    /// As the replica's cache dates it.
    epoch: Epoch,
    /// Its new tokens are reported too; otherwise the path alone tells of them.
    reported: bool,
}

/// Which replica has prefilled which prefix, as far as this router knows.
pub struct PrefixTree {
    config: TreeConfig,
    arena: Arena,
    replicas: Replicas,
    teachers: Vec<RouterId>,
    teacher_index: HashTable<u16>,
    outbox: Outbox,
    stats: TreeStats,
    sweep_at: usize,
    retired: Vec<Slot>,
    scratch: Vec<PackedMark>,
    closed: Vec<PackedMark>,
}

impl PrefixTree {
    /// An empty tree.
    pub fn new(mut config: TreeConfig) -> Self {
        config.max_boundaries = config.max_boundaries.clamp(1, MAX_BOUNDARIES_LIMIT);
        let replicas = Replicas::new(&config);
        Self {
            arena: Arena::new(config.max_boundaries, config.max_boundaries.min(RESERVED)),
            config,
            replicas,
            teachers: Vec::new(),
            teacher_index: HashTable::new(),
            outbox: Outbox::default(),
            stats: TreeStats::default(),
            sweep_at: 0,
            retired: Vec::new(),
            scratch: Vec::new(),
            closed: Vec::new(),
        }
    }

    /// Records that the picker sent `key` to `replica`, which will newly prefill about
    /// `new_tokens`.
    pub fn observe(&mut self, key: &PrefixKey, replica: ReplicaId, new_tokens: u32, now: Millis) {
        let Some(slot) = self.replicas.slot(replica) else { return };
        let mut path = std::mem::take(&mut self.scratch);
        path.clear();
        path.extend((0..=u8::MAX).zip(&key.hashes).map(|(index, &hash)| pack(index, hash)));
        let nodes = self.arena.len();
        let epoch = self.replicas.today(slot);
        let known = self.arena.trace(path.len(), |at| path[at]);
        let reach = known.last().map_or(0, |&(_, deepest)| deepest + 1);
        if let Some(end) = self.insert(&path, reach, now) {
            let used = Use { at: tick(now), epoch, reported: true };
            self.credit_path(end, slot, used, |credit| credit.own += 1.0);
            self.outbox.note(&mut self.arena, end, slot);
            // A label that was split has a new end, here or above, which peers do not know.
            if self.arena.len() > nodes {
                self.note_untold(end);
                self.note_untold(self.arena.node(end).parent);
            }
        }
        self.replicas.sent(slot, u64::from(new_tokens), epoch);
        self.scratch = path;
        self.enforce_limit();
    }

    fn insert(&mut self, path: &[PackedMark], reach: usize, now: Millis) -> Option<NodeId> {
        let (now, half_life) = (tick(now).max(1), self.config.half_life_ms);
        let replicas = &mut self.replicas;
        path::insert(&mut self.arena, path, reach, &mut |arena, moved, before| {
            lift(arena, replicas, moved, before, now, half_life);
        })
    }

    fn note_untold(&mut self, id: NodeId) {
        if id == NONE {
            return;
        }
        let untold = self.arena.node(id).credits().iter().filter(|c| c.own > 0.0 && c.sent().is_none());
        let slots: SmallVec<[Slot; 8]> = untold.map(|c| c.slot).collect();
        for slot in slots {
            self.outbox.note(&mut self.arena, id, slot);
        }
    }

    /// Takes back one [`Self::observe`]: the replica refused the request before reading it.
    pub fn retract(&mut self, key: &PrefixKey, replica: ReplicaId, now: Millis) {
        let Some(slot) = self.replicas.find(replica) else { return };
        let Some(last) = key.hashes.len().checked_sub(1) else { return };
        let Some((mut id, _)) = key.hashes.get(last).and_then(|&h| self.arena.find(pack(last as u8, h)))
        else {
            return;
        };
        let half_life = self.config.half_life_ms;
        while id != NONE {
            self.arena.edit_credits(id, |credits| {
                credits.retain(|c| c.slot != slot || c.take_back(tick(now), half_life));
            });
            id = self.arena.node(id).parent;
        }
    }

    /// Applies what a peer said. Idempotent and independent of order within a `now`. What it says of a cache that
    /// was lost since is ignored, and what it says of a newer one than was known voids the rest.
    pub fn apply(&mut self, origin: RouterId, entry: &DeltaEntry, now: Millis) {
        let Some(slot) = self.replicas.slot_of_cache(entry.replica, entry.epoch) else {
            self.stats.outdated += 1;
            return;
        };
        let Some(teacher) = self.teacher(origin) else { return };
        if let Some(end) = self.insert_described(&entry.marks, now) {
            let epoch = self.replicas.today(slot);
            let used = Use { at: tick(now), epoch, reported: true };
            self.credit_path(end, slot, used, |credit| credit.learn(entry.count, teacher));
        }
        self.enforce_limit();
    }

    /// Makes a path that a peer described by some of its boundaries. Gives the node where it ends, unless it
    /// contradicts what is known.
    fn insert_described(&mut self, marks: &[Mark], now: Millis) -> Option<NodeId> {
        let mut path = std::mem::take(&mut self.scratch);
        let mut closed = std::mem::take(&mut self.closed);
        path.clear();
        path.extend(marks.iter().map(|m| pack(m.index, m.hash)));
        let end = match path::close(&self.arena, &path, &mut closed) {
            Ok(reach) => self.insert(&closed, reach, now),
            Err(path::Contradiction) => {
                self.stats.contradictions += 1;
                None
            }
        };
        self.scratch = path;
        self.closed = closed;
        end
    }

    fn teacher(&mut self, origin: RouterId) -> Option<u16> {
        let hash = u64::from(origin.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let teachers = &mut self.teachers;
        if let Some(&at) = self.teacher_index.find(hash, |&t| teachers.get(usize::from(t)) == Some(&origin)) {
            return Some(at);
        }
        let at = u16::try_from(teachers.len()).ok().filter(|&t| t < NOBODY)?;
        teachers.push(origin);
        let rehash = |&t: &u16| {
            u64::from(teachers.get(usize::from(t)).map_or(0, |r| r.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        self.teacher_index.insert_unique(hash, at, rehash);
        Some(at)
    }

    /// Credits every node from `end` to the top: whoever prefilled a prompt prefilled its head.
    /// Heads are touched last, so the least recently used node is a leaf.
    fn credit_path(&mut self, end: NodeId, slot: Slot, used: Use, mut add: impl FnMut(&mut credit::Credit)) {
        let mut id = end;
        while id != NONE {
            self.arena.touch(id);
            let bytes = self.arena.own_bytes(id);
            let (replicas, half_life_ms) = (&mut self.replicas, self.config.half_life_ms);
            self.arena.edit_credits(id, |credits| {
                let known = credits.get(slot).map(|c| c.epoch);
                let credit = credits.entry(slot);
                credit.touch(used.at, replicas.date(slot, known, used, bytes), half_life_ms);
                add(credit);
            });
            id = self.arena.node(id).parent;
        }
    }

    /// Notes tokens that peers newly sent to a replica. What their entries do not account for ages the
    /// rest all the same.
    pub fn add_peer_tokens(&mut self, replica: ReplicaId, tokens: u64) {
        if let Some(slot) = self.replicas.slot(replica) {
            self.replicas.peers_sent(slot, tokens);
        }
    }

    /// Tokens that this router has newly sent to each replica since start (absolute, for gossip).
    pub fn own_tokens(&self) -> impl Iterator<Item = (ReplicaId, u64)> + '_ {
        self.replicas.own_tokens()
    }

    /// Tokens that the replica's cache holds, when known.
    pub fn set_capacity(&mut self, replica: ReplicaId, tokens: u64) {
        if let Some(slot) = self.replicas.slot(replica) {
            self.replicas.set_capacity(slot, tokens);
        }
    }

    /// Drops every credit of a replica's caches before number `epoch`: they are gone, it itself is not. Does
    /// nothing when that is known.
    pub fn forget(&mut self, replica: ReplicaId, epoch: u32) {
        self.replicas.forget(replica, epoch);
    }

    /// Drops every trace of a replica that is gone for good.
    pub fn remove(&mut self, replica: ReplicaId) {
        self.replicas.remove(replica);
    }

    /// Takes what changed by own picks since the last drain, most valuable first, at most about
    /// `budget` bytes on the wire; the rest stays for the next drain.
    pub fn drain(&mut self, budget: usize, now: Millis) -> Vec<DeltaEntry> {
        let due = self.outbox.take(&mut self.arena, budget, tick(now), self.config.half_life_ms);
        let entry = |d: outbox::Due| DeltaEntry {
            replica: self.replicas.id(d.slot),
            epoch: self.replicas.cache(d.slot),
            count: d.count.max(MIN_COUNT),
            marks: outbox::describe(&mut self.arena, d.node),
        };
        due.into_iter().map(entry).collect()
    }

    /// Checks every invariant; panics where one does not hold. For tests: it looks at all of the tree.
    pub fn check(&self) {
        self.arena.check();
    }

    /// Sizes and counters.
    pub fn stats(&self) -> TreeStats {
        TreeStats {
            nodes: self.arena.len(),
            boundaries: self.arena.boundaries(),
            credits: self.arena.credits(),
            bytes: self.arena.heap_bytes() + self.outbox.heap_bytes(),
            dirty: self.outbox.len(),
            overflowed: self.outbox.overflowed,
            ..self.stats.clone()
        }
    }
}

/// Gives a node's credits to its new ancestors, which are those below its former parent. Their bytes
/// were dated as the node's own until now.
fn lift(
    arena: &mut Arena,
    replicas: &mut Replicas,
    id: NodeId,
    before: NodeId,
    now: Tick,
    half_life_ms: u64,
) {
    let credits = arena.node(id).credits().clone();
    let (mut above, mut dated_twice) = (arena.node(id).parent, true);
    while above != NONE {
        dated_twice &= above != before;
        let bytes = arena.own_bytes(above);
        arena.edit_credits(above, |upper| {
            for credit in credits.iter() {
                let known = upper.get(credit.slot).map(|c| c.epoch);
                let upper = upper.entry(credit.slot);
                upper.absorb(credit, now, half_life_ms);
                upper.epoch = match known {
                    Some(known) if dated_twice => replicas.redate(credit.slot, known, credit.epoch, bytes),
                    Some(known) => known,
                    None => credit.epoch,
                };
            }
        });
        above = arena.node(above).parent;
    }
}

/// No teacher: more peers than this are not told apart.
const NOBODY: u16 = u16::MAX;

#[cfg(test)]
mod tests;
