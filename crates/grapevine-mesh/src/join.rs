//! When to ask whom for a snapshot: at the start, before this router is ready, and later whenever more
//! was missed than can be asked for. Pure.
//!
//! ```text
//! joining --snapshot restored----------------------> ready, nothing wanted
//!    |----time is over-----------------------------> ready, tries on in the background
//!    '----all peers are joining too: a cold start--> ready, nothing wanted
//! ready ---missed too much--> wants one, at most once a minute
//! ```

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use grapevine_tree::{Millis, RouterId};
use rand::RngExt;
use rand::rngs::SmallRng;

/// How long a joiner that knows peers waits for warm ones to show up before it believes that all start
/// at once, in milliseconds: a seed may be as new as itself and knows the rest within two exchanges. Whoever was met by
/// then and may live is waited for besides.
const COLD_START_MS: Millis = 1_500;

/// Pause between two tries while joining, in milliseconds: a peer that refuses does so at once.
const JOIN_RETRY_MS: Millis = 100;

/// Pause between two tries in the background, in milliseconds; doubled after each failure.
const RETRY_MS: Millis = 2_000;

/// The longest such pause, and the shortest time between two snapshots that were taken over, in
/// milliseconds: one of a million boundaries is 20 MB and a second of two cores.
const REST_MS: Millis = 60_000;

/// Doublings of what was said that make a difference between two teachers: a factor of eight, so that
/// those of about one age share the joiners.
const AGE_DOUBLINGS: u32 = 3;

/// A peer that a snapshot could come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teacher {
    /// Who.
    pub id: RouterId,
    /// Of how many origins it knows what was lost here.
    pub knows: usize,
    /// Segments that it says it lost.
    pub lost: u64,
    /// How much it has said so far: who has been there longer has said more.
    pub said: u64,
}

/// What became of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// All of it is in the tree.
    Restored,
    /// The peer is joining itself.
    Joining,
    /// Anything else.
    Failed,
}

/// Decides about snapshots.
#[derive(Debug)]
pub struct Joiner {
    ready: bool,
    wanted: bool,
    running: bool,
    /// When this router gives up waiting.
    until: Millis,
    met_at: Option<Millis>,
    not_before: Millis,
    failures: u32,
    /// Who said that it is joining, and who failed, since the last success.
    joining: BTreeSet<RouterId>,
    failed: BTreeSet<RouterId>,
}

impl Joiner {
    /// A router that starts now. It waits at most `limit`, and not at all when it looks for nobody.
    pub fn new(limit: Duration, has_seeds: bool) -> Self {
        let until = if has_seeds { limit.as_millis() as Millis } else { 0 };
        Self {
            ready: until == 0,
            wanted: true,
            running: false,
            until,
            met_at: None,
            not_before: 0,
            failures: 0,
            joining: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Whether this router knows what there is to know, or waited long enough.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Whether a snapshot is wanted.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// More was missed than can be asked for.
    pub fn want(&mut self) {
        self.wanted = true;
    }

    /// Looks at the clock and at who is there. Whom to ask, if anyone, is then on its way. While it is `unsure` who
    /// else lives, nothing is a cold start.
    pub fn next(
        &mut self,
        teachers: &[Teacher],
        unsure: bool,
        now: Millis,
        rng: &mut SmallRng,
    ) -> Option<RouterId> {
        if !teachers.is_empty() {
            self.met_at.get_or_insert(now);
        }
        self.ready |= now >= self.until;
        let long_met = self.met_at.is_some_and(|at| now.saturating_sub(at) >= COLD_START_MS);
        if !self.ready && long_met && !unsure && teachers.iter().all(|it| self.joining.contains(&it.id)) {
            (self.ready, self.wanted) = (true, false);
        }
        if !self.wanted || self.running || now < self.not_before {
            return None;
        }
        let teacher = self.choose(teachers, rng)?;
        self.running = true;
        Some(teacher)
    }

    /// No answer will come to what is on its way.
    pub fn reset(&mut self) {
        self.running = false;
    }

    /// What became of the try.
    pub fn tried(&mut self, teacher: RouterId, tried: Tried, now: Millis) {
        self.running = false;
        match tried {
            Tried::Restored => {
                (self.ready, self.wanted, self.failures) = (true, false, 0);
                self.joining.clear();
                self.failed.clear();
                self.not_before = now.saturating_add(REST_MS);
            }
            Tried::Joining => _ = self.joining.insert(teacher),
            Tried::Failed => _ = self.failed.insert(teacher),
        }
        if tried != Tried::Restored && !self.ready {
            self.not_before = now.saturating_add(JOIN_RETRY_MS);
        } else if tried != Tried::Restored {
            self.not_before = now.saturating_add((RETRY_MS << self.failures.min(10)).min(REST_MS));
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// The one that knows most of what was lost, has been there longest, roughly, and lost least itself:
    /// who has just started has lost nothing and knows nothing. Before one that failed; when all failed or
    /// are joining, all over again.
    fn choose(&mut self, teachers: &[Teacher], rng: &mut SmallRng) -> Option<RouterId> {
        let tried = |it: &Teacher| self.failed.contains(&it.id) || self.joining.contains(&it.id);
        let mut fresh: Vec<Teacher> = teachers.iter().filter(|it| !tried(it)).copied().collect();
        if fresh.is_empty() {
            // While not ready, who is joining is worth asking again only after who is not.
            self.failed.clear();
            if self.ready {
                self.joining.clear();
            }
            fresh = teachers.to_vec();
        }
        let age = |it: &Teacher| it.said.checked_ilog2().unwrap_or(0) / AGE_DOUBLINGS;
        let rank = |it: &Teacher| (Reverse(it.knows), Reverse(age(it)), it.lost);
        let best = fresh.iter().map(rank).min()?;
        fresh.retain(|it| rank(it) == best);
        let last = fresh.len().checked_sub(1)?;
        fresh.get(rng.random_range(0..=last)).map(|it| it.id)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const WAIT: Duration = Duration::from_secs(3);

    fn teacher(id: u32) -> Teacher {
        Teacher { id: RouterId(id), knows: 0, lost: 0, said: 1 }
    }

    struct Desk {
        joiner: Joiner,
        rng: SmallRng,
    }

    impl Desk {
        fn new(limit: Duration, has_seeds: bool) -> Self {
            Self { joiner: Joiner::new(limit, has_seeds), rng: SmallRng::seed_from_u64(1) }
        }

        fn next(&mut self, teachers: &[Teacher], now: Millis) -> Option<u32> {
            self.joiner.next(teachers, false, now, &mut self.rng).map(|id| id.0)
        }

        fn tried(&mut self, teacher: u32, tried: Tried, now: Millis) {
            self.joiner.tried(RouterId(teacher), tried, now);
        }
    }

    #[test]
    fn who_looks_for_nobody_is_ready_at_once_and_still_takes_a_snapshot() {
        for mut desk in [Desk::new(WAIT, false), Desk::new(Duration::ZERO, true)] {
            assert!(desk.joiner.is_ready());
            assert_eq!(desk.next(&[], 0), None);
            assert_eq!(desk.next(&[teacher(1)], 5_000), Some(1));
        }
    }

    #[test]
    fn a_joiner_is_ready_with_its_snapshot_or_when_its_time_is_over() {
        let mut desk = Desk::new(WAIT, true);
        assert_eq!(desk.next(&[teacher(1)], 100), Some(1));
        assert_eq!(desk.next(&[teacher(1)], 200), None, "one at a time");
        desk.tried(1, Tried::Restored, 300);
        assert!(desk.joiner.is_ready() && !desk.joiner.is_wanted());

        let mut desk = Desk::new(WAIT, true);
        assert_eq!(desk.next(&[teacher(1)], 2_900), Some(1));
        desk.next(&[teacher(1)], 2_999);
        assert!(!desk.joiner.is_ready());
        desk.next(&[teacher(1)], 3_000);
        assert!(desk.joiner.is_ready());
        desk.tried(1, Tried::Failed, 3_100);
        assert_eq!(desk.next(&[teacher(1)], 5_000), None);
        assert_eq!(desk.next(&[teacher(1)], 5_100), Some(1), "in the background");
    }

    #[test]
    fn every_candidate_has_its_turn_the_best_first() {
        let mut desk = Desk::new(WAIT, true);
        let warm = Teacher { said: 900, ..teacher(2) };
        let lossy = Teacher { said: 800, lost: 1, ..teacher(3) };
        let knowing = Teacher { lost: 7, knows: 1, ..teacher(4) };
        let teachers = [teacher(1), warm, lossy, knowing];
        for (at, expected) in [4, 2, 3, 1, 4].into_iter().enumerate() {
            let now = at as Millis * 100;
            assert_eq!(desk.next(&teachers, now), Some(expected));
            desk.tried(expected, Tried::Failed, now);
        }
    }

    #[test]
    fn when_everyone_is_joining_it_is_a_cold_start() {
        let mut desk = Desk::new(WAIT, true);
        let teachers = [teacher(1), teacher(2)];
        for now in [100, 200] {
            let asked = desk.next(&teachers, now).unwrap();
            desk.tried(asked, Tried::Joining, now);
        }
        desk.next(&teachers, 1_550);
        assert!(!desk.joiner.is_ready());
        desk.next(&[teacher(1), teacher(2), teacher(3)], 1_600);
        assert!(!desk.joiner.is_ready(), "the third may be warm");
        desk.tried(3, Tried::Joining, 1_700);
        desk.next(&[teacher(1), teacher(2), teacher(3)], 1_700);
        assert!(desk.joiner.is_ready() && !desk.joiner.is_wanted());
    }

    #[test]
    fn later_snapshots_are_rare() {
        let mut desk = Desk::new(WAIT, true);
        desk.next(&[teacher(1)], 0);
        desk.tried(1, Tried::Restored, 0);
        let mut taken = 0;
        for now in (0..600_000).step_by(250) {
            desk.joiner.want();
            if let Some(from) = desk.next(&[teacher(1)], now) {
                taken += 1;
                desk.tried(from, Tried::Restored, now);
            }
        }
        assert_eq!(taken, 9);
    }
}
