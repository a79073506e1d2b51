//! The last minutes in steps: what was counted, as differences, so that routers' figures add up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use grapevine_tree::ReplicaId;

use crate::admin::status::{Point, TokenStatus};

/// Time between two points, ms.
pub const STEP_MS: u64 = 2_000;

/// Points kept: ten minutes.
const KEPT: usize = 300;

/// Steps over which shares of the traffic are taken: a minute.
const SHARE_STEPS: usize = 30;

/// What has been counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Requests ended.
    pub requests: u64,
    /// Prompt tokens.
    pub tokens: TokenStatus,
    /// Replicas chosen.
    pub decisions: u64,
    /// Of those, because the guard fired.
    pub guarded: u64,
    /// Lookups.
    pub lookups: u64,
    /// Of those, not answered in time.
    pub late: u64,
    /// Messages that mailboxes refused.
    pub mailbox_drops: u64,
    /// Telemetry that was given up.
    pub telemetry_drops: u64,
    /// Decisions that the log could not take.
    pub log_drops: u64,
    /// Prefixes dropped because the tree is full.
    pub evicted: u64,
    /// Gossip of another secret, cluster or version.
    pub foreign: u64,
}

/// What became of the totals over time.
#[derive(Debug, Default)]
pub struct History(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first; one more than there are points.
    samples: VecDeque<(u64, Totals)>,
    picks: VecDeque<BTreeMap<ReplicaId, u64>>,
}

impl Totals {
    fn since(&self, before: &Self) -> Self {
        let grown = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            requests: grown(|t| t.requests),
            tokens: self.tokens.since(&before.tokens),
            decisions: grown(|t| t.decisions),
            guarded: grown(|t| t.guarded),
            lookups: grown(|t| t.lookups),
            late: grown(|t| t.late),
            mailbox_drops: grown(|t| t.mailbox_drops),
            telemetry_drops: grown(|t| t.telemetry_drops),
            log_drops: grown(|t| t.log_drops),
            evicted: grown(|t| t.evicted),
            foreign: grown(|t| t.foreign),
        }
    }

    fn point(&self, at_ms: u64) -> Point {
        Point { at_ms, requests: self.requests, tokens: self.tokens }
    }
}

impl History {
    /// Notes what has been counted, and each replica's picks, at `at_ms`.
    pub fn sample(&self, at_ms: u64, totals: Totals, picks: BTreeMap<ReplicaId, u64>) {
        let mut kept = self.lock();
        // Wall clocks may step back.
        if kept.samples.back().is_some_and(|(last, _)| *last >= at_ms) {
            return;
        }
        kept.samples.push_back((at_ms, totals));
        kept.picks.push_back(picks);
        if kept.samples.len() > KEPT + 1 {
            kept.samples.pop_front();
        }
        if kept.picks.len() > SHARE_STEPS + 1 {
            kept.picks.pop_front();
        }
    }

    /// All points, oldest first.
    pub fn points(&self) -> Vec<Point> {
        let kept = self.lock();
        let pairs = kept.samples.iter().zip(kept.samples.iter().skip(1));
        pairs.map(|((_, before), (at_ms, now))| now.since(before).point(*at_ms)).collect()
    }

    /// What was counted in about the last `ms`.
    pub fn lately(&self, ms: u64) -> Totals {
        let kept = self.lock();
        let Some((now, last)) = kept.samples.back() else { return Totals::default() };
        let from = now.saturating_sub(ms);
        let first = kept.samples.iter().find(|(at, _)| *at >= from);
        first.map(|(_, first)| last.since(first)).unwrap_or_default()
    }

    /// Each replica's share of the picks of the last minute; nothing while there were none.
    pub fn shares(&self) -> BTreeMap<ReplicaId, f64> {
        let kept = self.lock();
        let (Some(first), Some(last)) = (kept.picks.front(), kept.picks.back()) else {
            return BTreeMap::new();
        };
        let grown =
            |(id, n): (&ReplicaId, &u64)| (*id, n.saturating_sub(first.get(id).copied().unwrap_or_default()));
        let grown: BTreeMap<_, _> = last.iter().map(grown).collect();
        let all: u64 = grown.values().sum();
        if all == 0 {
            return BTreeMap::new();
        }
        grown.into_iter().map(|(id, n)| (id, n as f64 / all as f64)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(n: u64) -> Totals {
        let tokens = TokenStatus { prompt: 100 * n, predicted_cached: 60 * n, ..TokenStatus::default() };
        Totals { requests: n, tokens, guarded: n / 2, ..Totals::default() }
    }

    #[test]
    fn points_are_differences_and_bounded() {
        let history = History::default();
        history.sample(STEP_MS, totals(5), BTreeMap::new());
        assert_eq!(history.points(), [], "nothing to compare with");
        history.sample(2 * STEP_MS, totals(8), BTreeMap::new());
        history.sample(2 * STEP_MS, totals(9), BTreeMap::new());
        let tokens = TokenStatus { prompt: 300, predicted_cached: 180, ..TokenStatus::default() };
        let expected = Point { at_ms: 2 * STEP_MS, requests: 3, tokens };
        assert_eq!(history.points(), [expected], "the clock that stood still is passed over");
        (3..1_000).for_each(|i| history.sample(i * STEP_MS, totals(i), BTreeMap::new()));
        assert_eq!(history.points().len(), KEPT);
        assert_eq!(history.points()[KEPT - 1].at_ms, 999 * STEP_MS);
        assert_eq!(history.lately(60_000).requests, 30);
    }

    #[test]
    fn shares_are_of_the_last_minute() {
        let (history, a, b) = (History::default(), ReplicaId(1), ReplicaId(2));
        assert_eq!(history.shares(), BTreeMap::new());
        for i in 1..=100u64 {
            let of_a = i.saturating_sub(60);
            history.sample(i * STEP_MS, totals(i), BTreeMap::from([(a, 3 * of_a), (b, i)]));
        }
        assert_eq!(history.shares(), BTreeMap::from([(a, 0.75), (b, 0.25)]));
        history.sample(101 * STEP_MS, totals(101), BTreeMap::from([(b, 101)]));
        assert_eq!(history.shares().get(&a), None, "a replica that is gone has no share");
    }
}
