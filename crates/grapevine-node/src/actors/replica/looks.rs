//! When to look at each replica's metrics, and what a look changes. No I/O, time is an argument.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_tree::{Millis, ReplicaId};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::book::Effects;
use crate::engine::{Identity, Kind, Look, Reading, ScrapeError};
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
    /// Unused connections to engines are closed after this.
    pool_idle: Duration,
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
    kind: Kind,
    /// Why the last look showed nothing, as people were told.
    told: Option<ScrapeError>,
}

impl Looks {
    pub(super) fn new(interval: Duration, pool_idle: Duration) -> Self {
        Self { interval_ms: interval.as_millis() as Millis, pool_idle, known: BTreeMap::new() }
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
        found: Result<Look, ScrapeError>,
        now: Millis,
        effects: &mut Effects,
    ) {
        let known = self.known.entry(replica.id).or_default();
        known.looking = false;
        known.absent = !matches!(found, Ok(Look { measured: true, .. }) | Err(ScrapeError::Silent));
        if known.absent {
            known.epoch = replica.epoch.load(Relaxed);
            known.due = now + ABSENT_INTERVAL_MS.max(self.interval_ms);
        }
        let reading = match found {
            Ok(look) => look.reading,
            Err(error) => {
                if known.told.replace(error) != Some(error) && error != ScrapeError::Silent {
                    tracing::info!(replica = replica.name, %error, "metrics not read");
                }
                return;
            }
        };
        known.told = None;
        let moved_at = moved_at(replica, &reading, now);
        replica.engine.store(Some(Arc::new(Vitals { reading, at: now, moved_at })));
        known.note_kind(replica, reading.kind, self.pool_idle);
        known.note_restart(replica, &reading, effects);
        if let Some(tokens) = reading.cache_tokens
            && known.cache_tokens.replace(tokens) != Some(tokens)
        {
            tracing::info!(replica = replica.name, kind = reading.kind.name(), tokens, "cache size known");
        }
    }

    /// The replica is gone for good.
    pub(super) fn remove(&mut self, replica: ReplicaId) {
        self.known.remove(&replica);
    }

    /// How large its cache is, as its engine says.
    pub(super) fn cache_tokens(&self, replica: ReplicaId) -> Option<u64> {
        self.known.get(&replica).and_then(|known| known.cache_tokens)
    }
}

/// Since when the gauges have been what they are.
fn moved_at(replica: &Replica, reading: &Reading, now: Millis) -> Millis {
    let gauges = |reading: &Reading| (reading.waiting, reading.running, reading.kv_use);
    let before = replica.engine.load();
    let same = before.as_ref().filter(|before| gauges(&before.reading) == gauges(reading));
    same.map_or(now, |before| before.moved_at)
}

impl Known {
    /// Says what it is, and whether connections to it are kept too long.
    fn note_kind(&mut self, replica: &Replica, kind: Kind, pool_idle: Duration) {
        if std::mem::replace(&mut self.kind, kind) == kind {
            return;
        }
        tracing::info!(replica = replica.name, kind = kind.name(), "kind of engine known");
        if let Some(keep_alive) = kind.keep_alive().filter(|keep_alive| pool_idle >= *keep_alive) {
            let (engine_s, router_s) = (keep_alive.as_secs_f32(), pool_idle.as_secs_f32());
            tracing::warn!(
                replica = replica.name,
                engine_s,
                router_s,
                "it closes idle connections first: requests may fail; shorten GRAPEVINE_POOL_IDLE_TIMEOUT"
            );
        }
    }

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
        effects.forget.push((replica.id, self.epoch));
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::config::ReplicaSpec;

    const POOL_IDLE: Duration = Duration::from_secs(3);

    fn one() -> (Looks, ReplicaSet, SmallRng) {
        let spec = ReplicaSpec::new("a", "http://127.0.0.1:1");
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        (Looks::new(Duration::from_secs(5), POOL_IDLE), set, SmallRng::seed_from_u64(7))
    }

    fn started(at: f64) -> Result<Look, ScrapeError> {
        measured(Reading { started: Some(at), cache_tokens: Some(1_000), ..Reading::default() })
    }

    fn measured(reading: Reading) -> Result<Look, ScrapeError> {
        Ok(Look { reading, measured: true })
    }

    #[test]
    fn a_restart_that_nobody_met_is_noticed_once() {
        let (mut looks, set, _) = one();
        let replica = &set.replicas[0];
        let mut effects = Effects::default();
        for at in [10.0, 10.0, 500.0, 500.0] {
            looks.seen(replica, started(at), 0, &mut effects);
        }
        assert_eq!(effects.forget, [(replica.id, 1)]);
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
    fn an_engine_that_was_told_by_another_page_is_asked_rarely_too() {
        let (mut looks, set, mut rng) = one();
        let mut ask = |looks: &mut Looks, now| looks.due(&set, now, &mut rng).len();
        assert_eq!(ask(&mut looks, 0), 1);
        let reading = Reading { kind: Kind::LlamaCpp, cache_tokens: Some(16_384), ..Reading::default() };
        let look = Look { reading, measured: false };
        looks.seen(&set.replicas[0], Ok(look), 0, &mut Effects::default());
        assert_eq!((ask(&mut looks, 60_000), set.replicas[0].kind()), (0, Kind::LlamaCpp));
        assert_eq!(looks.cache_tokens(set.replicas[0].id), Some(16_384));
    }

    #[test]
    fn gauges_that_do_not_move_keep_the_time_since_when() {
        let (mut looks, set, _) = one();
        let say = |kv_use| measured(Reading { kv_use: Some(kv_use), ..Reading::default() });
        let mut moved = |found, now| {
            looks.seen(&set.replicas[0], found, now, &mut Effects::default());
            set.replicas[0].engine.load().as_ref().unwrap().moved_at
        };
        assert_eq!((moved(say(0.5), 1), moved(say(0.5), 2), moved(say(0.6), 3)), (1, 1, 3));
    }

    #[test]
    fn zero_means_never_and_many_take_turns() {
        let spec = |i| ReplicaSpec::new(format!("r{i}"), format!("http://127.0.0.1:{i}"));
        let specs: Vec<_> = (1..=MAX_LOOKING + 5).map(spec).collect();
        let set = ReplicaSet::from_specs(&specs).unwrap();
        let mut rng = SmallRng::seed_from_u64(7);
        assert_eq!(Looks::new(Duration::ZERO, POOL_IDLE).due(&set, 1_000_000, &mut rng).len(), 0);
        let mut looks = Looks::new(Duration::from_secs(5), POOL_IDLE);
        let first = looks.due(&set, 0, &mut rng);
        assert_eq!(first.len(), MAX_LOOKING);
        assert_eq!(looks.due(&set, 0, &mut rng).len(), 0);
        for replica in &first {
            looks.seen(replica, Err(ScrapeError::Silent), 0, &mut Effects::default());
        }
        assert_eq!(looks.due(&set, 0, &mut rng).len(), 5);
    }
}
