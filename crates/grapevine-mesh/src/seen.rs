//! Who has seen how much of whom: finds what this router lacks, and tells whether the fleet agrees. Pure.
//!
//! Every router publishes its version vector now and then, when it changed: for each origin the number
//! up to which it has all segments. A peer that is ahead shows that this router lacks something, even
//! where no hole shows: an origin's last words.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use grapevine_tree::{Millis, RouterId};

use crate::codec::{Seen, SeenOrigin};

/// Ticks between two vectors: 5 s at the default, which costs each peer about 5 bytes a second.
const EVERY_TICKS: u32 = 20;

/// How long a segment may be on its way before a peer without it counts as behind, in milliseconds.
const SETTLE_MS: Millis = 2_000;

/// Peers remembered.
const MAX_PEERS: usize = 1_024;

#[derive(Debug)]
struct PeerSeen {
    at: Millis,
    origins: BTreeMap<RouterId, SeenOrigin>,
}

/// How far an origin was, when.
#[derive(Debug, Default)]
struct Heads {
    generation: u64,
    /// Times and numbers; the first is the newest that is older than anything compares with.
    heads: VecDeque<(Millis, u64)>,
}

/// All vectors.
#[derive(Debug)]
pub struct Vectors {
    every_ms: Millis,
    due: Millis,
    published: Vec<SeenOrigin>,
    peers: BTreeMap<RouterId, PeerSeen>,
    heads: BTreeMap<RouterId, Heads>,
}

impl Vectors {
    /// For a mesh that ticks every `interval`; the first vector is due after `offset` of the time
    /// between two, so that not all routers publish at once.
    pub fn new(interval: Duration, offset: f64) -> Self {
        let every_ms = (interval * EVERY_TICKS).as_millis() as Millis;
        let due = (every_ms as f64 * offset) as Millis;
        Self { every_ms, due, published: Vec::new(), peers: BTreeMap::new(), heads: BTreeMap::new() }
    }

    /// The vector to publish now, if it is time and there is news. `origins` is how far this router has
    /// come, itself included.
    pub fn publish(&mut self, generation: u64, origins: Vec<SeenOrigin>, now: Millis) -> Option<Seen> {
        origins.iter().for_each(|it| self.note_head(it, now));
        if now < self.due {
            return None;
        }
        self.due = now.saturating_add(self.every_ms);
        self.heads.retain(|origin, _| origins.iter().any(|it| it.origin == *origin));
        if origins == self.published {
            return None;
        }
        self.published.clone_from(&origins);
        Some(Seen { generation, origins })
    }

    /// Gossip starts over with an empty state: what was published is to be published again.
    pub fn begin(&mut self) {
        self.published.clear();
    }

    /// A peer's vector came.
    pub fn hear(&mut self, peer: RouterId, seen: &Seen, now: Millis) {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&peer) {
            return;
        }
        let origins = seen.origins.iter().map(|it| (it.origin, *it)).collect();
        self.peers.insert(peer, PeerSeen { at: now, origins });
    }

    /// Forgets peers that are not among those.
    pub fn keep_only(&mut self, is_peer: impl Fn(RouterId) -> bool) {
        self.peers.retain(|&peer, _| is_peer(peer));
    }

    /// Up to which segment `peer` has that generation of `origin`, as far as it said.
    pub fn settled(&self, peer: RouterId, origin: RouterId, generation: u64) -> Option<u64> {
        let seen = self.peers.get(&peer)?.origins.get(&origin)?;
        (seen.generation == generation).then_some(seen.settled)
    }

    /// Whether `peer` is as far with that origin as `mine` and has lost less of it.
    pub fn knows_better(&self, peer: RouterId, mine: &SeenOrigin) -> bool {
        let its = self.peers.get(&peer).and_then(|it| it.origins.get(&mine.origin));
        its.is_some_and(|its| {
            let is_level = its.generation == mine.generation && its.settled >= mine.settled;
            is_level && (its.lost < mine.lost || mine.lost == 0)
        })
    }

    /// Segments that a peer says it lost, of all origins: who has lost less is the better teacher.
    pub fn lost(&self, peer: RouterId) -> u64 {
        let origins = self.peers.get(&peer).map(|it| it.origins.values());
        origins.map_or(0, |origins| origins.map(|it| it.lost).fold(0, u64::saturating_add))
    }

    /// How well `peer` agrees with this router: of how many other origins it has all that was known here a
    /// moment before its vector came, and of how many that can be said.
    pub fn agreement(&self, peer: RouterId, now: Millis) -> (usize, usize) {
        let Some(seen) = self.peers.get(&peer) else { return (0, 0) };
        let as_of = seen.at.max(now.saturating_sub(2 * self.every_ms)).saturating_sub(SETTLE_MS);
        let others = self.heads.iter().filter(|(origin, _)| **origin != peer);
        let known = others.filter_map(|(origin, heads)| Some((origin, (heads.generation, heads.at(as_of)?))));
        known.fold((0, 0), |(level, pairs), (origin, head)| {
            let settled = seen.origins.get(origin).map(|it| (it.generation, it.settled));
            (level + usize::from(settled >= Some(head)), pairs + 1)
        })
    }

    fn note_head(&mut self, seen: &SeenOrigin, now: Millis) {
        let heads = self.heads.entry(seen.origin).or_default();
        if heads.generation != seen.generation {
            *heads = Heads { generation: seen.generation, heads: VecDeque::new() };
        }
        if heads.heads.back().is_none_or(|&(_, head)| head < seen.settled) {
            heads.heads.push_back((now, seen.settled));
        }
        let oldest = now.saturating_sub(2 * self.every_ms + SETTLE_MS);
        while heads.heads.get(1).is_some_and(|&(at, _)| at <= oldest) {
            heads.heads.pop_front();
        }
    }
}

impl Heads {
    fn at(&self, time: Millis) -> Option<u64> {
        self.heads.iter().rev().find(|&&(at, _)| at <= time).map(|&(_, head)| head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(250);
    const A: RouterId = RouterId(1);
    const B: RouterId = RouterId(2);
    const C: RouterId = RouterId(3);

    fn seen(origin: RouterId, settled: u64) -> SeenOrigin {
        SeenOrigin { origin, generation: 9, settled, lost: 0 }
    }

    fn vector(origins: &[SeenOrigin]) -> Seen {
        Seen { generation: 1, origins: origins.to_vec() }
    }

    #[test]
    fn a_vector_is_published_when_it_is_due_and_changed() {
        let mut vectors = Vectors::new(TICK, 0.5);
        assert_eq!(vectors.publish(1, vec![seen(A, 1)], 2_000), None);
        assert_eq!(vectors.publish(1, vec![seen(A, 2)], 2_500), Some(vector(&[seen(A, 2)])));
        assert_eq!(vectors.publish(1, vec![seen(A, 3)], 5_000), None);
        assert_eq!(vectors.publish(1, vec![seen(A, 3)], 7_500), Some(vector(&[seen(A, 3)])));
        assert!((0..100).all(|i| vectors.publish(1, vec![seen(A, 3)], 12_500 + i * 5_000).is_none()), "idle");
        vectors.begin();
        assert!(vectors.publish(2, vec![seen(A, 3)], 600_000).is_some());
    }

    #[test]
    fn agreement_compares_with_what_was_known_a_moment_before() {
        let mut vectors = Vectors::new(TICK, 0.0);
        for now in 0..40 {
            vectors.publish(1, vec![seen(A, now)], now * 250);
        }
        assert_eq!(vectors.agreement(B, 10_000), (0, 0), "nothing was heard of it");
        vectors.hear(B, &vector(&[seen(A, 32)]), 10_000);
        vectors.hear(C, &vector(&[seen(A, 31)]), 10_000);
        vectors.hear(A, &vector(&[]), 10_000);
        assert_eq!([A, B, C].map(|peer| vectors.agreement(peer, 10_000)), [(0, 0), (1, 1), (0, 1)]);
        for now in 40..120 {
            vectors.publish(1, vec![seen(A, now)], now * 250);
        }
        assert_eq!(vectors.agreement(B, 30_000), (0, 1), "it stands still while others go on");
        vectors.hear(B, &vector(&[SeenOrigin { generation: 8, ..seen(A, 900) }]), 30_000);
        assert_eq!(vectors.agreement(B, 30_000), (0, 1), "another generation");
        assert!(vectors.heads[&A].heads.len() <= 50);
    }

    #[test]
    fn what_peers_said_is_found_and_forgotten() {
        let mut vectors = Vectors::new(TICK, 0.0);
        vectors.hear(B, &vector(&[SeenOrigin { lost: 3, ..seen(A, 32) }, seen(C, 1)]), 0);
        assert_eq!(vectors.settled(B, A, 9), Some(32));
        assert_eq!((vectors.settled(B, A, 8), vectors.settled(C, A, 9)), (None, None));
        assert_eq!((vectors.lost(B), vectors.lost(C)), (3, 0));
        for (settled, lost, better) in [(32, 4, true), (32, 3, false), (33, 4, false), (9, 0, true)] {
            let mine = SeenOrigin { lost, ..seen(A, settled) };
            assert_eq!((vectors.knows_better(B, &mine), vectors.knows_better(C, &mine)), (better, false));
        }
        vectors.keep_only(|peer| peer != B);
        assert_eq!(vectors.settled(B, A, 9), None);
    }
}
