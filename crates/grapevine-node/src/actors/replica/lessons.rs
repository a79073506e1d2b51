//! What answers teach of each replica: whether it lost its cache, and how much the cache holds. No
//! I/O, time is an argument.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use grapevine_route::{Answer, Feedback, Verdict};
use grapevine_tree::{Millis, ReplicaId};

use super::AnswerReport;
use super::book::Effects;
use crate::replica::Replica;

/// Answers over which the size of a token is averaged.
const SCALE_ANSWERS: u32 = 64;

/// Answers before the average counts.
const SCALE_MIN_ANSWERS: u32 = 8;

/// Prompts shorter than this, tokens, say little of the size of a token: a chat template's own tokens
/// are a large part of them.
const SCALE_MIN_TOKENS: u32 = 256;

/// How much more than its engine says a cache is believed to hold, until answers show that it does not.
/// Too little costs points of hit rate, too much tenths (docs/routing.md), and both the engine's tokens
/// and the order of use are only estimated here.
const HEADROOM: f64 = 1.5;

/// A capacity that changed by less than this share is the same: telling the tree costs it microseconds.
const SAME_SHARE: f64 = 1.0 / 16.0;

/// What was learnt of every replica.
#[derive(Debug)]
pub(super) struct Lessons {
    /// Assumed of a cache that nothing is known of, tokens.
    assumed: u64,
    known: BTreeMap<ReplicaId, Lesson>,
}

#[derive(Debug, Default)]
struct Lesson {
    feedback: Feedback,
    /// The cache generation that the feedback is of.
    epoch: u32,
    scale: Scale,
    /// The capacity that the tree was told.
    told: Option<u64>,
}

/// How many of the router's tokens, which are bytes over a constant, make one of the engine's.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    mean: f64,
    answers: u32,
}

impl Lessons {
    pub(super) fn new(assumed: u64) -> Self {
        Self { assumed, known: BTreeMap::new() }
    }

    /// Takes in an answer of `replica`.
    pub(super) fn answered(
        &mut self,
        replica: &Replica,
        report: &AnswerReport,
        now: Millis,
        effects: &mut Effects,
    ) {
        let lesson = self.known.entry(replica.id).or_default();
        let epoch = replica.epoch.load(Relaxed);
        if lesson.epoch != epoch {
            lesson.epoch = epoch;
            lesson.feedback.emptied();
        }
        // Expected of the cache before: it says nothing of this one.
        if report.epoch != epoch {
            return;
        }
        lesson.scale.note(&report.answer);
        let verdict = lesson.feedback.answered(&report.answer, now);
        replica.learnt.set_credit_error(lesson.feedback.error_tokens());
        if verdict == Some(Verdict::LostCache) {
            lesson.epoch = replica.next_epoch();
            replica.learnt.lost_caches.fetch_add(1, Relaxed);
            tracing::info!(
                replica = replica.name,
                epoch = lesson.epoch,
                "predictions fail; its credit is dropped"
            );
            effects.forget.push((replica.id, lesson.epoch));
        }
    }

    /// The replica is gone for good.
    pub(super) fn remove(&mut self, replica: ReplicaId) {
        self.known.remove(&replica);
    }

    /// Tells the tree how much a replica's cache holds, if that changed: what its engine says and as much
    /// more as answers do not refute, else what answers show.
    pub(super) fn settle_capacity(&mut self, replica: &Replica, says: Option<u64>, effects: &mut Effects) {
        let lesson = self.known.entry(replica.id).or_default();
        let shown = lesson.feedback.capacity();
        let said = says.map(|tokens| {
            let least = tokens as f64 * lesson.scale.ratio();
            let most = least * HEADROOM;
            shown.tokens(most as u64).map_or(most, |tokens| (tokens as f64).clamp(least, most)) as u64
        });
        let Some(tokens) = said.or_else(|| shown.tokens(self.assumed)) else { return };
        if lesson.told.is_some_and(|told| told.abs_diff(tokens) as f64 <= told as f64 * SAME_SHARE) {
            return;
        }
        lesson.told = Some(tokens);
        replica.learnt.set_capacity(tokens, said.is_some());
        effects.capacity.push((replica.id, tokens));
    }
}

impl Scale {
    fn note(&mut self, answer: &Answer) {
        let Some(counted) = answer.reported_prompt_tokens.filter(|n| *n >= SCALE_MIN_TOKENS) else { return };
        if !answer.textual || answer.prompt_tokens == 0 {
            return;
        }
        self.answers = (self.answers + 1).min(SCALE_ANSWERS);
        let ratio = f64::from(answer.prompt_tokens) / f64::from(counted);
        self.mean += (ratio - self.mean) / f64::from(self.answers);
    }

    fn ratio(&self) -> f64 {
        if self.answers < SCALE_MIN_ANSWERS { 1.0 } else { self.mean }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grapevine_tree::LastUse;

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::ReplicaSet;

    fn replica() -> Arc<Replica> {
        let spec = ReplicaSpec::new("a", "http://127.0.0.1:1");
        Arc::clone(&ReplicaSet::from_specs(&[spec]).unwrap().replicas[0])
    }

    /// A prompt of 4,000 tokens, 3,600 of them used there a minute ago, of which `cached` were found.
    fn report(epoch: u32, cached: u32) -> AnswerReport {
        let last_use =
            LastUse { matched_tokens: 3_600, tail_tokens: 3_600, newer_tokens: 9_000, unused_ms: 60_000 };
        let answer = Answer {
            prompt_tokens: 4_000,
            predicted_tokens: 3_600,
            last_use: Some(last_use),
            reported_prompt_tokens: Some(4_000),
            reported_cached_tokens: Some(cached),
            textual: true,
            picked_at: 100_000,
            answered_at: 100_000,
        };
        AnswerReport { replica: ReplicaId(0), epoch, answer }
    }

    #[test]
    fn predictions_that_fail_in_a_row_begin_a_new_epoch_once() {
        let (mut lessons, replica) = (Lessons::new(500_000), replica());
        let mut effects = Effects::default();
        for cached in [3_600; 6].into_iter().chain([0; 6]) {
            lessons.answered(&replica, &report(0, cached), 1_000, &mut effects);
        }
        assert_eq!(
            effects.forget,
            [(replica.id, 1)],
            "what was expected of the old cache accuses no new one"
        );
        assert_eq!(replica.epoch.load(Relaxed), 1);
        assert_eq!(replica.learnt.lost_caches.load(Relaxed), 1);
        assert!(replica.learnt.credit_error().is_some_and(|error| error > 0.0));
    }

    #[test]
    fn a_loss_that_somebody_else_noticed_is_no_second_one() {
        let (mut lessons, replica) = (Lessons::new(500_000), replica());
        let mut effects = Effects::default();
        (0..6).for_each(|_| lessons.answered(&replica, &report(0, 3_600), 1_000, &mut effects));
        replica.next_epoch();
        for epoch in [0, 1] {
            (0..6).for_each(|_| lessons.answered(&replica, &report(epoch, 0), 2_000, &mut effects));
        }
        assert_eq!((effects.forget.len(), replica.epoch.load(Relaxed)), (0, 1));
    }

    #[test]
    fn the_engines_word_counts_before_what_answers_show() {
        let (mut lessons, replica) = (Lessons::new(500_000), replica());
        let mut effects = Effects::default();
        lessons.settle_capacity(&replica, None, &mut effects);
        assert_eq!(effects.capacity, [], "nothing is known");
        (0..20).for_each(|_| lessons.answered(&replica, &report(0, 3_600), 1_000, &mut effects));
        lessons.settle_capacity(&replica, None, &mut effects);
        assert!(matches!(effects.capacity[..], [(_, 400_000..)]), "learnt: {:?}", effects.capacity);
        lessons.settle_capacity(&replica, Some(100_000), &mut effects);
        lessons.settle_capacity(&replica, Some(101_000), &mut effects);
        assert_eq!(effects.capacity[1..], [(replica.id, 150_000)], "told when it changed");
        assert_eq!(replica.learnt.capacity(), Some(150_000));
    }

    #[test]
    fn answers_take_the_headroom_back_where_nothing_is_found_in_it() {
        let (mut lessons, replica) = (Lessons::new(500_000), replica());
        let mut effects = Effects::default();
        let look = |depth: u64, cached| {
            let mut report = report(0, cached);
            report.answer.last_use = report.answer.last_use.map(|l| LastUse { newer_tokens: depth, ..l });
            report
        };
        for n in 0..20 {
            lessons.answered(&replica, &look(4_500 * n, 3_600), 1_000, &mut effects);
            lessons.answered(&replica, &look(115_000 + 1_000 * n, 0), 1_000, &mut effects);
        }
        lessons.settle_capacity(&replica, Some(100_000), &mut effects);
        assert!(matches!(effects.capacity[..], [(_, 100_000..125_000)]), "{:?}", effects.capacity);
        lessons.settle_capacity(&replica, Some(300_000), &mut effects);
        assert!(
            matches!(effects.capacity[1..], [(_, 300_000)]),
            "{:?}: never less than said",
            effects.capacity
        );
        assert_eq!(effects.forget, []);
    }

    #[test]
    fn a_capacity_in_the_engines_tokens_is_told_in_the_routers() {
        let (mut lessons, replica) = (Lessons::new(500_000), replica());
        let mut effects = Effects::default();
        let mut longer = report(0, 3_600);
        longer.answer.reported_prompt_tokens = Some(8_000);
        (0..SCALE_MIN_ANSWERS).for_each(|_| lessons.answered(&replica, &longer, 0, &mut effects));
        lessons.settle_capacity(&replica, Some(100_000), &mut effects);
        assert_eq!(effects.capacity, [(replica.id, 75_000)], "two of its tokens are one of ours");
    }
}
