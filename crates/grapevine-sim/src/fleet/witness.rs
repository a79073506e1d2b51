//! How long until everybody knows? New prefixes are followed from the pick that made them until every
//! live peer would find them.

use std::collections::BTreeSet;
use std::sync::Arc;

use grapevine_tree::{PrefixKey, ReplicaId};

use super::clock::SECOND;
use crate::replay::engine::Micros;

/// Prefixes followed at a time; more would tell nothing new.
const MOST_OPEN: usize = 256;

/// A prefix that a reachable peer does not know after this long will never reach it.
pub(super) const GIVE_UP: Micros = 30 * SECOND;

/// A prefix on its way.
#[derive(Debug)]
struct Sighting {
    origin: usize,
    key: Arc<PrefixKey>,
    replica: ReplicaId,
    at: Micros,
    waiting: BTreeSet<usize>,
}

/// Follows prefixes.
#[derive(Debug, Default)]
pub(super) struct Witness {
    open: Vec<Sighting>,
    /// Time until the last peer knew, for each prefix followed to its end.
    spread: Vec<Micros>,
}

impl Witness {
    /// Router `origin` sent a prefix that it did not know to `replica`.
    pub(super) fn seen(
        &mut self,
        origin: usize,
        key: Arc<PrefixKey>,
        replica: ReplicaId,
        at: Micros,
        peers: BTreeSet<usize>,
    ) {
        if self.open.len() < MOST_OPEN && !peers.is_empty() {
            self.open.push(Sighting { origin, key, replica, at, waiting: peers });
        }
    }

    /// Router `peer` heard something: which of what it waits for does it know now?
    pub(super) fn heard(
        &mut self,
        peer: usize,
        now: Micros,
        mut knows: impl FnMut(&PrefixKey, ReplicaId) -> bool,
    ) {
        for sighting in &mut self.open {
            if sighting.waiting.contains(&peer) && knows(&sighting.key, sighting.replica) {
                sighting.waiting.remove(&peer);
            }
        }
        let spread = &mut self.spread;
        self.open.retain(|sighting| {
            let done = sighting.waiting.is_empty();
            if done {
                spread.push(now - sighting.at);
            }
            !done
        });
    }

    /// Router `index` is gone: nobody waits for it, and what it did not say it never will.
    pub(super) fn gone(&mut self, index: usize) {
        self.open.retain(|sighting| sighting.origin != index);
        for sighting in &mut self.open {
            sighting.waiting.remove(&index);
        }
        self.open.retain(|sighting| !sighting.waiting.is_empty());
    }

    /// A replica lost its cache: nobody is to believe in what was there.
    pub(super) fn emptied(&mut self, replica: ReplicaId) {
        self.open.retain(|sighting| sighting.replica != replica);
    }

    /// The network was cut: how long things take now says nothing.
    pub(super) fn forget(&mut self) {
        self.open.clear();
    }

    /// Takes out one that was given up: its origin, since when, and who does not know it.
    pub(super) fn overdue(&mut self, now: Micros) -> Option<(usize, Micros, Vec<usize>)> {
        let at = self.open.iter().position(|sighting| now - sighting.at > GIVE_UP)?;
        let sighting = self.open.swap_remove(at);
        Some((sighting.origin, sighting.at, sighting.waiting.into_iter().collect()))
    }

    /// All times to spread.
    pub(super) fn spread(&self) -> &[Micros] {
        &self.spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_peer_decides() {
        let mut witness = Witness::default();
        let key = Arc::new(PrefixKey::default());
        witness.seen(0, key.clone(), ReplicaId(7), 100, [1, 2, 3].into());
        witness.heard(1, 150, |_, replica| replica == ReplicaId(7));
        witness.heard(2, 160, |_, _| false);
        witness.gone(3);
        assert!(witness.spread().is_empty());
        witness.heard(2, 400, |_, _| true);
        assert_eq!(witness.spread(), [300]);
        witness.seen(0, key.clone(), ReplicaId(7), 500, [1].into());
        witness.seen(1, key, ReplicaId(8), 500, [0].into());
        witness.emptied(ReplicaId(7));
        assert_eq!(witness.overdue(500 + GIVE_UP), None);
        assert_eq!(witness.overdue(501 + GIVE_UP), Some((1, 500, vec![0])));
    }
}
