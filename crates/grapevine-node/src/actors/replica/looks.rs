//! When to look at each replica's metrics, and what a look changes. No I/O, time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_tree::{Millis, ReplicaId};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::book::Effects;
use crate::engine::{Identity, Reading, ScrapeError};
use crate::replica::{Replica, ReplicaSet, Vitals};

/// Between two looks at an engine that has no metrics, ms: it may get some by an update.
const ABSENT_INTERVAL_MS: Millis = 300_000;

/// Looks at the same time. Each is one small request; with more a thousand replicas would be asked in
/// one burst at the start.
const MAX_LOOKING: usize = 32;

/// What is known of every replica's engine.
#[derive(Debug)]
pub(super) struct Looks {
    /// Zero: never look.
    interval_ms: Millis,
    known: BTreeMap<ReplicaId, Known>,
}

#[derive(Debug, Default)]
struct Known {
    due: Millis,
    looking: bool,
    absent: bool,
    identity: Identity,
    /// The replica's epoch at the last look: when it has grown since, somebody else already noticed
    /// the restart.
    epoch: u32,
    cache_tokens: Option<u64>,
}

impl Looks {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval_ms: interval.as_millis() as Millis, known: BTreeMap::new() }
    }

    /// Replicas to look at now.
    pub(super) fn due(&mut self, set: &ReplicaSet, now: Millis, rng: &mut SmallRng) -> Vec<Arc<Replica>> {
        if self.interval_ms == 0 {
            return Vec::new();
        }
        let looking = self.known.values().filter(|known| known.looking).count();
        let mut due = Vec::new();
        for replica in &set.replicas {
            let known = self.known.entry(replica.id).or_default();
            // After a restart it may be another engine.
            let restarted = known.absent && known.epoch != replica.epoch.load(Relaxed);
            if known.looking || (now < known.due && !restarted) || looking + due.len() >= MAX_LOOKING {
                continue;
            }
            let interval =
                if known.absent { ABSENT_INTERVAL_MS.max(self.interval_ms) } else { self.interval_ms };
            known.due = now + (interval as f32 * rng.random_range(0.8..1.0)) as Millis;
            known.looking = true;
            due.push(Arc::clone(replica));
        }
        due
    }

    /// Takes in what a look showed.
    pub(super) fn seen(
        &mut self,
        replica: &Replica,
        found: Result<Reading, ScrapeError>,
        now: Millis,
        effects: &mut Effects,
    ) {
        let known = self.known.entry(replica.id).or_default();
        known.looking = false;
        let reading = match found {
            Ok(reading) => reading,
            Err(error) => {
                known.absent = error == ScrapeError::Absent;
                if known.absent {
                    known.epoch = replica.epoch.load(Relaxed);
                    known.due = now + ABSENT_INTERVAL_MS.max(self.interval_ms);
                }
                return;
            }
        };
        known.absent = false;
        replica.engine.store(Some(Arc::new(Vitals { reading, at: now })));
        known.note_restart(replica, &reading, effects);
        if let Some(tokens) = reading.cache_tokens
            && known.cache_tokens.replace(tokens) != Some(tokens)
        {
            tracing::info!(replica = replica.name, kind = reading.kind.name(), tokens, "cache size known");
        }
    }

    /// How large its cache is, as its engine says.
    pub(super) fn cache_tokens(&self, replica: ReplicaId) -> Option<u64> {
        self.known.get(&replica).and_then(|known| known.cache_tokens)
    }
}

impl Known {
    /// Counts a restart once in the fleet.
    fn note_restart(&mut self, replica: &Replica, reading: &Reading, effects: &mut Effects) {
        let epoch = replica.epoch.load(Relaxed);
        let before = std::mem::replace(&mut self.epoch, epoch);
        let Some(loss) = self.identity.compare(reading) else { return };
        if epoch > before {
            return;
        }
        self.epoch = replica.next_epoch();
        tracing::info!(
            replica = replica.name,
            epoch = self.epoch,
            reason = loss.name(),
            "replica lost its cache"
        );
        effects.forget.push(replica.id);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::config::ReplicaSpec;

    fn one() -> (Looks, ReplicaSet, SmallRng) {
        let spec = ReplicaSpec { name: "a".into(), url: "http://127.0.0.1:1".into() };
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        (Looks::new(Duration::from_secs(5)), set, SmallRng::seed_from_u64(7))
    }

    fn started(at: f64) -> Result<Reading, ScrapeError> {
        Ok(Reading { started: Some(at), cache_tokens: Some(1_000), ..Reading::default() })
    }

    #[test]
    fn a_restart_that_nobody_met_is_noticed_once() {
        let (mut looks, set, _) = one();
        let replica = &set.replicas[0];
        let mut effects = Effects::default();
        for at in [10.0, 10.0, 500.0, 500.0] {
            looks.seen(replica, started(at), 0, &mut effects);
        }
        assert_eq!(effects.forget, [replica.id]);
        assert_eq!(replica.epoch.load(Relaxed), 1);
        assert_eq!(looks.cache_tokens(replica.id), Some(1_000));
    }

    #[test]
    fn a_restart_that_somebody_else_noticed_is_not_counted_again() {
        let (mut looks, set, _) = one();
        let replica = &set.replicas[0];
        let mut effects = Effects::default();
        looks.seen(replica, started(10.0), 0, &mut effects);
        replica.epoch.store(1, Relaxed);
        looks.seen(replica, started(500.0), 0, &mut effects);
        assert_eq!((effects.forget.len(), replica.epoch.load(Relaxed)), (0, 1));
        looks.seen(replica, started(900.0), 0, &mut effects);
        assert_eq!((effects.forget.len(), replica.epoch.load(Relaxed)), (1, 2), "the next one is new");
    }

    #[test]
    fn an_engine_without_metrics_is_asked_rarely() {
        let (mut looks, set, mut rng) = one();
        let replica = &set.replicas[0];
        let mut effects = Effects::default();
        let mut ask = |looks: &mut Looks, now| looks.due(&set, now, &mut rng).len();
        assert_eq!(ask(&mut looks, 0), 1);
        assert_eq!(ask(&mut looks, 60_000), 0, "one at a time");
        looks.seen(replica, Err(ScrapeError::Silent), 60_000, &mut effects);
        assert_eq!(ask(&mut looks, 65_000), 1, "silence may end soon");
        looks.seen(replica, Err(ScrapeError::Absent), 65_000, &mut effects);
        assert_eq!(ask(&mut looks, 300_000), 0);
        replica.epoch.store(1, Relaxed);
        assert_eq!(ask(&mut looks, 300_000), 1, "after a restart at once");
        looks.seen(replica, Err(ScrapeError::Absent), 300_000, &mut effects);
        assert_eq!(ask(&mut looks, 300_000), 0);
        assert_eq!(ask(&mut looks, 600_000), 1);
        assert_eq!(effects, Effects::default());
    }

    #[test]
    fn zero_means_never_and_many_take_turns() {
        let spec = |i| ReplicaSpec { name: format!("r{i}"), url: format!("http://127.0.0.1:{i}") };
        let specs: Vec<_> = (1..=MAX_LOOKING + 5).map(spec).collect();
        let set = ReplicaSet::from_specs(&specs).unwrap();
        let mut rng = SmallRng::seed_from_u64(7);
        assert_eq!(Looks::new(Duration::ZERO).due(&set, 1_000_000, &mut rng).len(), 0);
        let mut looks = Looks::new(Duration::from_secs(5));
        let first = looks.due(&set, 0, &mut rng);
        assert_eq!(first.len(), MAX_LOOKING);
        assert_eq!(looks.due(&set, 0, &mut rng).len(), 0);
        for replica in &first {
            looks.seen(replica, Err(ScrapeError::Silent), 0, &mut Effects::default());
        }
        assert_eq!(looks.due(&set, 0, &mut rng).len(), 5);
    }
}
