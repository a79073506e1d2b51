//! What was placed and was not yet in the tree when a request's prompt was looked up.
//!
//! A burst of equal prompts is looked up all at once, before the first of them is placed, or before the tree
//! actor comes round to noting it: each would be placed as if it were the only one. So picks are also kept
//! here for a moment, and each pick looks at those that its lookup cannot have seen.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grapevine_tree::{Match, Matches, PrefixKey, ReplicaId, Teacher, boundary};

/// Picks kept. More are not placed between a lookup and its pick, which take microseconds, nor wait for the
/// tree actor.
const KEPT: usize = 128;

/// The last picks of this router.
#[derive(Debug, Default)]
pub(super) struct Recent {
    picks: Mutex<Picks>,
}

#[derive(Debug, Default)]
struct Picks {
    /// Number of the next one.
    next: u64,
    kept: VecDeque<(Arc<PrefixKey>, ReplicaId)>,
}

impl Recent {
    /// A replica was picked for `key`. Gives the pick's number, which the tree is told.
    pub(super) fn add(&self, key: &Arc<PrefixKey>, replica: ReplicaId) -> u64 {
        let mut picks = self.lock();
        let number = picks.next;
        picks.next += 1;
        if picks.kept.len() == KEPT {
            picks.kept.pop_back();
        }
        picks.kept.push_front((Arc::clone(key), replica));
        number
    }

    /// Adds to `matches` what was placed from number `known` on.
    pub(super) fn complete(&self, known: u64, key: &PrefixKey, matches: &mut Matches) {
        let picks = self.lock();
        let unseen = picks.next.saturating_sub(known) as usize;
        for (placed, replica) in picks.kept.iter().take(unseen) {
            let bytes = shared_bytes(placed, key);
            if bytes > 0 {
                deepen(matches, *replica, bytes);
            }
        }
        if unseen > 0 {
            matches.sort_by_key(|m| std::cmp::Reverse(m.bytes));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Picks> {
        // Nothing in here panics half-way.
        self.picks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that both begin with, up to a boundary. Hashes are chained: where they differ, all later ones do.
fn shared_bytes(a: &PrefixKey, b: &PrefixKey) -> u32 {
    let shared = a.hashes.iter().zip(&b.hashes).take_while(|(a, b)| a == b).count();
    shared.checked_sub(1).map_or(0, |last| boundary::depth(last) as u32)
}

fn deepen(matches: &mut Matches, replica: ReplicaId, bytes: u32) {
    match matches.iter_mut().find(|m| m.replica == replica) {
        Some(known) => known.bytes = known.bytes.max(bytes),
        None => matches.push(Match { replica, bytes, count: 1.0, teacher: Teacher::Own }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(hashes: &[u64]) -> Arc<PrefixKey> {
        Arc::new(PrefixKey { hashes: hashes.to_vec(), bytes: 128 * hashes.len() as u64 })
    }

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);

    #[test]
    fn a_pick_sees_what_its_lookup_could_not() {
        let recent = Recent::default();
        let since = recent.add(&key(&[1, 2, 3, 4]), A) + 1;
        let mut matches = Matches::new();
        recent.complete(since, &key(&[1, 2, 3, 4]), &mut matches);
        assert_eq!(matches, [], "that one the lookup saw");
        recent.add(&key(&[1, 2, 7]), A);
        recent.add(&key(&[1, 2, 3, 9]), B);
        recent.add(&key(&[5, 2, 3]), A);
        recent.complete(since, &key(&[1, 2, 3, 4]), &mut matches);
        let found: Vec<_> = matches.iter().map(|m| (m.replica, m.bytes)).collect();
        assert_eq!(found, [(B, 384), (A, 256)], "deepest first");
    }

    #[test]
    fn what_the_tree_knows_better_stays() {
        let recent = Recent::default();
        recent.add(&key(&[1, 2]), A);
        let known = Match { replica: A, bytes: 512, count: 3.0, teacher: Teacher::Own };
        let mut matches = vec![known];
        recent.complete(0, &key(&[1, 2, 3, 4]), &mut matches);
        assert_eq!(matches, [known]);
    }

    #[test]
    fn it_is_bounded() {
        let recent = Recent::default();
        (0..10 * KEPT as u64).for_each(|i| _ = recent.add(&key(&[i]), A));
        assert_eq!(recent.lock().kept.len(), KEPT);
        let mut matches = Matches::new();
        recent.complete(0, &key(&[1]), &mut matches);
        assert_eq!(matches, [], "long gone");
    }
}
