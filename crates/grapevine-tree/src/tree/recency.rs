//! How deep in a replica's cache something lies.
//!
//! A cache with room for C bytes that evicts what was used least recently holds whatever lies less
//! than C deep: what was used since, each byte once. Newly prefilled bytes alone do not tell that
//! depth: whatever was older and was used again has moved ahead too, and where most of every prompt
//! is a hit, that is nearly all of it.
//!
//! So uses are dated. An epoch ends when a 64th of the cache has been dated in it; per epoch we keep
//! the bytes that were last used in it. A use moves bytes from their old epoch to the newest, and the
//! depth of something is the sum of all newer epochs. Epochs that have emptied are joined with their
//! neighbours, so memory is bounded whatever the traffic.
//!
//! What is believed is what is dated at the horizon or later: one comparison at lookup. The horizon
//! is found anew when an epoch ends.

/// The date of a use; wraps, only differences count.
pub(super) type Epoch = u32;

/// Epochs that fill the cache: belief ends within 1/64 of the capacity.
const GRAIN: u64 = 64;

/// Depth that is kept, in capacities: what a capacity learnt later may bring back into belief.
const KEPT: u64 = 2;

/// Runs of epochs at most; joined, there are at most two for each grain kept.
const MAX_RUNS: usize = 512;

const _: () = assert!(MAX_RUNS as u64 > 2 * GRAIN * KEPT + 1);

/// The bytes last used in the epochs from `first` to the next run's.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: Epoch,
    bytes: u64,
}

/// One replica's cache in order of use, as far as known.
#[derive(Debug)]
pub(super) struct Recency {
    capacity: u64,
    /// Oldest first; the last is the epoch that is open.
    runs: Vec<Run>,
    horizon: Epoch,
}

impl Recency {
    /// An empty cache of `capacity` bytes.
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, runs: vec![Run { first: 1, bytes: 0 }], horizon: 1 }
    }

    /// What is used now is dated with this.
    pub(super) fn now(&self) -> Epoch {
        self.runs.last().map_or(0, |run| run.first)
    }

    /// The date of what lies `depth` bytes deep.
    pub(super) fn at_depth(&self, depth: u64) -> Epoch {
        let mut newer = 0;
        let run = self.runs.iter().rev().find(|run| {
            newer += run.bytes;
            newer > depth
        });
        run.or(self.runs.first()).filter(|_| depth > 0).map_or(self.now(), |run| run.first)
    }

    /// How deep what is dated `epoch` lies, on average: half of what has its date lies deeper.
    pub(super) fn depth(&self, epoch: Epoch) -> u64 {
        let age = self.now().wrapping_sub(epoch);
        let mut depth = 0;
        for run in self.runs.iter().rev() {
            if self.now().wrapping_sub(run.first) >= age {
                return depth + run.bytes / 2;
            }
            depth += run.bytes;
        }
        depth
    }

    /// Whether something dated `epoch` may still be held.
    pub(super) fn believes(&self, epoch: Epoch) -> bool {
        let now = self.now();
        now.wrapping_sub(epoch) <= now.wrapping_sub(self.horizon)
    }

    /// Dates bytes that had no date.
    pub(super) fn add(&mut self, epoch: Epoch, bytes: u64) {
        if let Some(run) = self.run(epoch) {
            run.bytes = run.bytes.saturating_add(bytes);
        }
        if self.runs.last().is_some_and(|run| run.bytes > self.capacity / GRAIN) {
            self.begin_epoch();
        }
    }

    /// Forgets bytes and their date.
    pub(super) fn take(&mut self, epoch: Epoch, bytes: u64) {
        if let Some(run) = self.run(epoch) {
            run.bytes = run.bytes.saturating_sub(bytes);
        }
    }

    /// Changes what the cache can hold.
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
        self.find_horizon();
    }

    /// Dates, oldest first, with how deep what was last used then lies: half of it deeper.
    pub(super) fn history(&self) -> Vec<(Epoch, u64)> {
        let mut newer = 0u64;
        let dated = self.joined().into_iter().rev().map(|run| {
            let depth = newer + run.bytes / 2;
            newer += run.bytes;
            (run.first, depth)
        });
        let mut dated: Vec<_> = dated.collect();
        dated.reverse();
        dated
    }

    /// Takes in another's [`history`](Self::history) of the same cache; gives its dates with ours. What
    /// lies deeper than anything dated here gets dates of its own, before all others.
    pub(super) fn adopt(&mut self, history: &[(Epoch, u64)]) -> Vec<(Epoch, Epoch)> {
        let known: u64 = self.runs.iter().map(|run| run.bytes).sum();
        let room = MAX_RUNS.saturating_sub(self.runs.len() + 1);
        let deeper = history.iter().take_while(|(_, depth)| *depth >= known).count();
        let (oldest, made) = (self.runs.first().map_or(0, |run| run.first), deeper.min(room));
        let new = (1..=made as Epoch).rev().map(|age| Run { first: oldest.wrapping_sub(age), bytes: 0 });
        self.runs.splice(0..0, new);
        // As yet empty, they do not move what is newer out of belief; deep enough, they are out of it.
        let believed =
            history.iter().take(deeper).skip(deeper - made).position(|(_, depth)| *depth < self.capacity);
        if let Some(run) = believed.and_then(|at| self.runs.get(at)) {
            self.horizon = run.first;
        }
        let at = |(i, &(theirs, depth)): (usize, &(Epoch, u64))| match (i + made).checked_sub(deeper) {
            Some(at) if i < deeper => (theirs, self.runs.get(at).map_or(oldest, |run| run.first)),
            Some(_) => (theirs, self.at_depth(depth)),
            None => (theirs, oldest.wrapping_sub(made as Epoch)),
        };
        history.iter().enumerate().map(at).collect()
    }

    fn run(&mut self, epoch: Epoch) -> Option<&mut Run> {
        let now = self.now();
        let age = now.wrapping_sub(epoch);
        let after = self.runs.partition_point(|run| now.wrapping_sub(run.first) >= age);
        self.runs.get_mut(after.checked_sub(1)?)
    }

    fn begin_epoch(&mut self) {
        let first = self.now().wrapping_add(1);
        if self.runs.len() >= MAX_RUNS {
            self.runs = self.joined();
        }
        self.runs.push(Run { first, bytes: 0 });
        self.find_horizon();
    }

    /// Neighbours that together are within a grain joined, and what lies too deep to matter dropped.
    fn joined(&self) -> Vec<Run> {
        let grain = self.capacity / GRAIN;
        let mut joined: Vec<Run> = Vec::with_capacity(MAX_RUNS);
        let mut newer = 0u64;
        for run in self.runs.iter().rev() {
            match joined.last_mut() {
                Some(last) if last.bytes + run.bytes <= grain => {
                    last.first = run.first;
                    last.bytes += run.bytes;
                }
                _ if newer > KEPT.saturating_mul(self.capacity) => break,
                _ => joined.push(*run),
            }
            newer += run.bytes;
        }
        joined.reverse();
        joined
    }

    /// The oldest run of which at least half lies within the capacity.
    fn find_horizon(&mut self) {
        let mut newer = 0u64;
        self.horizon = self.now();
        for run in self.runs.iter().rev() {
            if newer + run.bytes / 2 >= self.capacity {
                return;
            }
            newer += run.bytes;
            self.horizon = run.first;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Uses things of given sizes; gives each one's date.
    fn play(recency: &mut Recency, uses: &[(u8, u64)]) -> HashMap<u8, (Epoch, u64)> {
        let mut dates: HashMap<u8, (Epoch, u64)> = HashMap::new();
        for &(thing, bytes) in uses {
            let bytes = dates.get(&thing).map_or(bytes, |d| d.1);
            if let Some((epoch, _)) = dates.get(&thing) {
                recency.take(*epoch, bytes);
            }
            dates.insert(thing, (recency.now(), bytes));
            recency.add(recency.now(), bytes);
        }
        dates
    }

    /// Bytes of distinct things used since the last use of `thing`.
    fn depth(uses: &[(u8, u64)], sizes: &HashMap<u8, (Epoch, u64)>, thing: u8) -> u64 {
        let mut since: Vec<u8> = uses.iter().rev().map(|u| u.0).take_while(|&t| t != thing).collect();
        since.sort_unstable();
        since.dedup();
        since.iter().map(|t| sizes[t].1).sum()
    }

    proptest! {
        #[test]
        fn belief_agrees_with_a_naive_lru(
            capacity in 2_000u64..20_000,
            uses in prop::collection::vec((0u8..40, 1u64..1_500), 1..2_000),
        ) {
            let mut recency = Recency::new(capacity);
            let dates = play(&mut recency, &uses);
            prop_assert!(recency.runs.len() <= MAX_RUNS);
            for (&thing, &(epoch, _)) in &dates {
                let depth = depth(&uses, &dates, thing);
                // Within the open and one more epoch, each as large as a grain and one thing more.
                let slack = 2 * (capacity / GRAIN + 1_500);
                if depth + slack < capacity {
                    prop_assert!(recency.believes(epoch), "{thing} at {depth} of {capacity}");
                }
                if depth > capacity + slack {
                    prop_assert!(!recency.believes(epoch), "{thing} at {depth} of {capacity}");
                }
            }
        }
    }

    #[test]
    fn hits_age_what_is_not_hit_only_once() {
        let mut recency = Recency::new(6_400);
        let rare = recency.now();
        recency.add(rare, 1_000);
        let mut hot = recency.now();
        recency.add(hot, 4_000);
        for _ in 0..1_000 {
            recency.take(hot, 4_000);
            hot = recency.now();
            recency.add(hot, 4_000);
        }
        assert!(recency.believes(rare), "4,000 bytes a thousand times are 4,000 bytes");
        recency.add(recency.now(), 3_000);
        assert!(!recency.believes(rare) && recency.believes(hot));
        assert!(recency.runs.len() <= MAX_RUNS);
    }

    #[test]
    fn a_capacity_learnt_later_counts_at_once() {
        let mut recency = Recency::new(1_000);
        let first = recency.now();
        recency.add(first, 500);
        recency.add(recency.now(), 1_500);
        assert!(!recency.believes(first));
        recency.set_capacity(4_000);
        assert!(recency.believes(first));
    }

    #[test]
    fn depth_names_a_date() {
        let mut recency = Recency::new(6_400);
        let first = recency.now();
        recency.add(first, 500);
        let second = recency.now();
        recency.add(second, 300);
        assert_eq!(recency.at_depth(0), recency.now());
        assert_eq!((recency.at_depth(100), recency.at_depth(400)), (second, first));
        assert_eq!(recency.at_depth(1_000_000), first);
    }

    #[test]
    fn dates_wrap() {
        let mut recency = Recency::new(640);
        recency.runs = vec![Run { first: u32::MAX - 1, bytes: 0 }];
        recency.find_horizon();
        let old = recency.now();
        for _ in 0..8 {
            recency.add(recency.now(), 50);
        }
        assert!(recency.now() < 100 && recency.believes(old));
        for _ in 0..8 {
            recency.add(recency.now(), 50);
        }
        assert!(!recency.believes(old) && recency.believes(recency.now()));
    }
}
