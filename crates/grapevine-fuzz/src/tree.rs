//! The tree beside a naive model: lists of what was sent where.

use std::collections::BTreeMap;

use grapevine_tree::{
    DeltaEntry, Mark, Matches, PrefixKey, PrefixTree, ReplicaId, RouterId, TreeConfig, boundary,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::input::Input;

/// Replicas that are sent to.
const REPLICAS: usize = 3;

/// Letters of which paths are made: few, so that paths share heads.
const LETTERS: usize = 3;

/// Longest path.
const MAX_PATH: usize = 12;

/// Operations of one run, at most.
const MAX_OPS: usize = 200;

/// What was sent where, in the order in which it was.
#[derive(Default)]
struct Naive(Vec<(Vec<u8>, ReplicaId)>);

impl Naive {
    /// How many boundaries of `path` each replica holds, at most.
    fn found(&self, path: &[u8]) -> BTreeMap<ReplicaId, usize> {
        let mut found = BTreeMap::new();
        for (known, replica) in &self.0 {
            let shared = known.iter().zip(path).take_while(|(a, b)| a == b).count();
            let best = found.entry(*replica).or_insert(0);
            *best = shared.max(*best);
        }
        found.retain(|_, shared| *shared > 0);
        found
    }

    /// All that was ever sent, and every path once.
    fn paths(&self) -> Vec<Vec<u8>> {
        let mut paths: Vec<_> = self.0.iter().map(|(path, _)| path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

/// A router's tree, one of a peer that hears of it, and the truth.
struct World {
    tree: PrefixTree,
    peer: PrefixTree,
    naive: Naive,
    asked: Vec<Vec<u8>>,
    epochs: BTreeMap<ReplicaId, u32>,
    limit: usize,
    now: u64,
    /// Nothing happened yet that makes a tree forget, or know less than all.
    exact: bool,
}

/// The first byte chooses the limit of boundaries; the rest are operations.
pub fn tree(data: &[u8]) {
    let mut input = Input::new(data);
    let limit = match input.byte() {
        0..128 => 10_000,
        byte => 5 + usize::from(byte) % 60,
    };
    let new = || PrefixTree::new(TreeConfig { max_boundaries: limit, ..TreeConfig::default() });
    let mut world = World {
        tree: new(),
        peer: new(),
        naive: Naive::default(),
        asked: Vec::new(),
        epochs: BTreeMap::new(),
        limit,
        now: 0,
        exact: limit >= MAX_OPS * MAX_PATH,
    };
    for _ in 0..MAX_OPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.tree.check();
        world.peer.check();
        assert!(world.tree.stats().boundaries <= world.limit && world.peer.stats().boundaries <= world.limit);
    }
    world.compare();
}

impl World {
    fn step(&mut self, input: &mut Input<'_>) {
        match input.below(12) {
            0..4 => self.observe(input),
            4 | 5 => self.hear(input),
            6 => self.forget(input),
            7 => self.tree.sweep(self.now),
            8 => self.tell(usize::from(input.byte()) * 8),
            9 => self.pass(input),
            10 => self.retract(input),
            _ => self.asked.push(path(input)),
        }
    }

    fn observe(&mut self, input: &mut Input<'_>) {
        let (path, replica) = (path(input), replica(input));
        self.tree.observe(&key(&path), replica, 1, self.now);
        self.naive.0.push((path, replica));
    }

    /// An entry of somebody else's: some of a path's boundaries, the last of them at least.
    fn hear(&mut self, input: &mut Input<'_>) {
        let (path, replica, chosen) = (path(input), replica(input), input.byte());
        let last = path.len().saturating_sub(1);
        let marks = (0u8..).zip(key(&path).hashes);
        let marks = marks.filter(|(index, _)| usize::from(*index) == last || chosen >> (index % 8) & 1 == 1);
        let marks: Vec<Mark> = marks.map(|(index, hash)| Mark { index, hash: hash & !0xff }).collect();
        let from = marks.len().saturating_sub(grapevine_tree::delta::MAX_MARKS);
        let marks = marks.get(from..).unwrap_or_default().into();
        let epoch = self.epochs.get(&replica).copied().unwrap_or(0);
        let entry = DeltaEntry { replica, epoch, count: f32::from(chosen) + 0.5, marks };
        for tree in [&mut self.tree, &mut self.peer] {
            tree.apply(RouterId(9), &entry, self.now);
            tree.apply(RouterId(9), &entry, self.now);
        }
        self.naive.0.push((path, replica));
        self.exact = false;
    }

    fn forget(&mut self, input: &mut Input<'_>) {
        let replica = replica(input);
        let epoch = self.epochs.entry(replica).or_insert(0);
        *epoch += 1;
        self.tree.forget(replica, *epoch);
        self.peer.forget(replica, *epoch);
        self.naive.0.retain(|(_, other)| *other != replica);
    }

    /// Gossip: by deltas, and now and then by a snapshot.
    fn tell(&mut self, budget: usize) {
        for entry in self.tree.drain(budget, self.now) {
            assert!(!entry.marks.is_empty() && entry.count > 0.0);
            self.peer.apply(RouterId(1), &entry, self.now);
        }
        if budget > 1_500 {
            let dates = self.peer.adopt(&self.tree.histories());
            let page = self.tree.snapshot(0, usize::MAX, self.now);
            page.nodes.iter().for_each(|node| self.peer.restore(RouterId(1), node, &dates, self.now));
        }
    }

    fn pass(&mut self, input: &mut Input<'_>) {
        self.now += u64::from(input.byte()) * 1_000;
        self.tree.add_peer_tokens(replica(input), u64::from(input.byte()));
        self.exact = false;
    }

    fn retract(&mut self, input: &mut Input<'_>) {
        let (path, replica) = (path(input), replica(input));
        self.tree.retract(&key(&path), replica, self.now);
        self.exact = false;
    }

    fn compare(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        for path in self.naive.paths().iter().chain(&asked) {
            let truth = self.naive.found(path);
            let found = found(&mut self.tree, path, self.now);
            if self.exact {
                assert_eq!(found, truth, "{path:?}");
            }
            for (replica, depth) in found.into_iter().chain(self::found(&mut self.peer, path, self.now)) {
                let most = truth.get(&replica).copied().unwrap_or(0);
                assert!(depth <= most, "{replica:?} claims {depth} of {most} at {path:?}");
            }
        }
    }
}

fn found(tree: &mut PrefixTree, path: &[u8], now: u64) -> BTreeMap<ReplicaId, usize> {
    let mut matches = Matches::new();
    tree.lookup(&key(path), now, &mut matches);
    matches.iter().map(|it| (it.replica, boundary::count(it.bytes as usize))).collect()
}

fn path(input: &mut Input<'_>) -> Vec<u8> {
    (0..=input.below(MAX_PATH)).map(|_| input.below(LETTERS) as u8).collect()
}

fn replica(input: &mut Input<'_>) -> ReplicaId {
    ReplicaId(input.below(REPLICAS) as u32)
}

/// A key whose boundary `i` depends on the first `i + 1` letters.
fn key(path: &[u8]) -> PrefixKey {
    let mut chain = 1;
    let mut hash = |letter: &u8| {
        chain = xxh3_64_with_seed(&[*letter], chain);
        chain
    };
    let hashes: Vec<u64> = path.iter().map(&mut hash).collect();
    PrefixKey { bytes: boundary::depth(path.len().max(1) - 1) as u64, hashes }
}
