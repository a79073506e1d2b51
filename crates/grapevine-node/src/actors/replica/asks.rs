//! When to ask each replica for its models, and what an answer changes. No I/O, time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_tree::{Millis, ReplicaId};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::engine::models::{Models, Unlisted};
use crate::replica::served::Served;
use crate::replica::{Replica, ReplicaSet};

/// First pause after a question without an answer, ms; it doubles with each in a row.
const FIRST_RETRY_MS: Millis = 1_000;

/// Longest such pause, ms: an engine that came up is not without its models for longer.
const LONGEST_RETRY_MS: Millis = 10_000;

/// A request for a model that nobody serves makes everybody be asked again, but nobody sooner than this
/// after the last time, ms: a client that goes on asking must not become a load for the engines.
const LEAST_PAUSE_MS: Millis = 2_000;

/// Questions without an answer until a replica that never answered one, but can be reached, counts as saying
/// nothing.
const PATIENCE: u32 = 3;

/// Questions at the same time.
const MAX_ASKING: usize = 32;

/// What is known of every replica's list.
#[derive(Debug)]
pub(super) struct Asks {
    /// Zero: never ask.
    interval_ms: Millis,
    known: BTreeMap<ReplicaId, Known>,
}

#[derive(Debug, Default)]
struct Known {
    due: Millis,
    asked_at: Millis,
    asking: bool,
    failures: u32,
    /// The cache generation that was asked: after a restart it may serve something else.
    epoch: u32,
}

impl Asks {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval_ms: interval.as_millis() as Millis, known: BTreeMap::new() }
    }

    /// Replicas to ask now. Those whose models were listed by an operator are not asked.
    pub(super) fn due(&mut self, set: &ReplicaSet, now: Millis, rng: &mut SmallRng) -> Vec<Arc<Replica>> {
        let mut asking = self.known.values().filter(|known| known.asking).count();
        let mut due = Vec::new();
        for replica in set.replicas.iter().filter(|replica| replica.spec.models.is_none()) {
            if self.interval_ms == 0 {
                if replica.is_unasked() {
                    replica.served.store(Arc::new(Served::Unsaid));
                }
                continue;
            }
            let known = self.known.entry(replica.id).or_default();
            let restarted = known.epoch != replica.epoch.load(Relaxed);
            if known.asking || (now < known.due && !restarted) || asking >= MAX_ASKING {
                continue;
            }
            asking += 1;
            known.asking = true;
            known.asked_at = now;
            known.epoch = replica.epoch.load(Relaxed);
            known.due = now + (self.interval_ms as f32 * rng.random_range(0.8..1.0)) as Millis;
            due.push(Arc::clone(replica));
        }
        due
    }

    /// Takes in an answer. What was known stays while there is none.
    pub(super) fn answered(&mut self, replica: &Replica, found: Result<Models, Unlisted>, now: Millis) {
        let known = self.known.entry(replica.id).or_default();
        known.asking = false;
        match found {
            Ok(models) => {
                known.failures = 0;
                replica.says(Served::These(models));
            }
            Err(Unlisted::NoList) => {
                known.failures = 0;
                replica.says(Served::Unsaid);
            }
            Err(Unlisted::NoAnswer) => {
                known.failures = known.failures.saturating_add(1);
                let pause = FIRST_RETRY_MS << (known.failures - 1).min(16);
                known.due = now + pause.min(LONGEST_RETRY_MS).min(self.interval_ms);
                if known.failures >= PATIENCE && replica.is_unasked() && replica.is_reachable(now) {
                    replica.says(Served::Unsaid);
                }
            }
        }
    }

    /// Somebody asked for a model that nobody serves: it may be new.
    pub(super) fn missed(&mut self) {
        for known in self.known.values_mut() {
            known.due = known.due.min(known.asked_at + LEAST_PAUSE_MS);
        }
    }

    /// The replica is gone for good.
    pub(super) fn remove(&mut self, replica: ReplicaId) {
        self.known.remove(&replica);
    }
}

impl Replica {
    /// Takes over what it says of its models, and tells people when that is news.
    fn says(&self, served: Served) {
        let before = self.served.load();
        match (&served, &**before) {
            (Served::These(models), Served::These(others)) if models == others => return,
            (Served::Unsaid, Served::Unsaid) => return,
            (Served::These(models), _) => {
                let example = models.iter().min();
                tracing::info!(replica = self.name, models = models.len(), example, "models known");
            }
            _ => {
                tracing::info!(
                    replica = self.name,
                    "it does not list its models: every request may go there"
                );
            }
        }
        self.served.store(Arc::new(served));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::health::Probe;

    fn set(models: Option<&str>) -> ReplicaSet {
        let models = models.map(|model| vec![model.to_owned()]);
        let spec = ReplicaSpec { models, ..ReplicaSpec::new("a", "http://127.0.0.1:1") };
        ReplicaSet::from_specs(&[spec]).unwrap()
    }

    fn models(name: &str) -> Result<Models, Unlisted> {
        Ok([Box::from(name)].into())
    }

    struct Desk {
        asks: Asks,
        set: ReplicaSet,
        rng: SmallRng,
    }

    impl Desk {
        fn new(interval_s: u64, set: ReplicaSet) -> Self {
            Self { asks: Asks::new(Duration::from_secs(interval_s)), set, rng: SmallRng::seed_from_u64(7) }
        }

        fn due(&mut self, now: Millis) -> usize {
            self.asks.due(&self.set, now, &mut self.rng).len()
        }

        fn answer(&mut self, found: Result<Models, Unlisted>, now: Millis) -> Option<Vec<String>> {
            self.asks.answered(&self.set.replicas[0], found, now);
            self.set.replicas[0].models()
        }
    }

    #[test]
    fn a_replica_is_asked_until_it_answers_and_then_now_and_then() {
        let mut desk = Desk::new(60, set(None));
        assert_eq!((desk.due(0), desk.due(10)), (1, 0), "at once, and one at a time");
        assert_eq!(desk.answer(Err(Unlisted::NoAnswer), 10), None);
        assert_eq!((desk.due(900), desk.due(1_010)), (0, 1));
        assert_eq!(desk.answer(models("m"), 1_020), Some(vec!["m".to_owned()]));
        assert_eq!((desk.due(40_000), desk.due(62_000)), (0, 1));
        assert_eq!(desk.answer(Err(Unlisted::NoAnswer), 62_000), Some(vec!["m".to_owned()]), "known stays");
    }

    #[test]
    fn a_restart_and_a_model_that_nobody_serves_make_it_be_asked_again() {
        let mut desk = Desk::new(60, set(None));
        desk.due(0);
        desk.answer(models("m"), 5);
        desk.set.replicas[0].epoch.store(1, Relaxed);
        assert_eq!(desk.due(100), 1);
        desk.answer(models("n"), 105);
        desk.asks.missed();
        assert_eq!((desk.due(2_000), desk.due(2_100)), (0, 1));
    }

    #[test]
    fn one_that_never_answers_counts_as_saying_nothing_after_a_while() {
        let mut desk = Desk::new(60, set(None));
        for now in [0, 5_000, 20_000] {
            assert!(desk.set.replicas[0].is_unasked());
            assert_eq!(desk.due(now), 1);
            desk.answer(Err(Unlisted::NoAnswer), now);
        }
        assert!(!desk.set.replicas[0].is_unasked());
        assert_eq!(desk.set.replicas[0].models(), None);
    }

    #[test]
    fn one_that_cannot_be_reached_has_not_said_that_it_serves_everything() {
        let mut desk = Desk::new(60, set(None));
        for _ in 0..3 {
            desk.set.replicas[0].health.probed(Probe::Refused, false, 0);
        }
        for now in [0, 5_000, 20_000, 40_000] {
            assert_eq!(desk.due(now), 1);
            desk.answer(Err(Unlisted::NoAnswer), now);
        }
        assert!(desk.set.replicas[0].is_unasked());
    }

    #[test]
    fn nobody_is_asked_whose_models_are_listed_or_where_asking_is_off() {
        assert_eq!(Desk::new(60, set(Some("m"))).due(0), 0);
        let mut off = Desk::new(0, set(None));
        assert_eq!((off.due(0), off.set.replicas[0].is_unasked()), (0, false));
    }
}
