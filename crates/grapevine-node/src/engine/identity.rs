//! Is it still the process that it was, with the cache that it had?
//!
//! Counters that fall do not tell: they fall when somebody resets statistics, too, and are read seconds
//! after it happened, when what the replica was sent since is already worth believing. Where an engine
//! does not say when it started, its answers and refused connections tell of a restart.

use super::reading::Reading;

/// Clocks that engines derive their start time from jitter; a restart takes longer than this, s.
const START_SLACK_S: f64 = 1.0;

/// Why a replica's cache is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Another process serves at its address.
    NewProcess,
    /// It went to sleep, which gives its cache back.
    Slept,
}

impl Loss {
    /// The reason in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewProcess => "new_process",
            Self::Slept => "slept",
        }
    }
}

/// What tells one life of a replica from the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Identity {
    /// The latest start seen. Never an earlier one: several processes behind one address would
    /// otherwise be a restart with every reading.
    started: Option<f64>,
    asleep: bool,
}

impl Identity {
    /// Takes in a reading; says whether the cache of the reading before is gone.
    pub fn compare(&mut self, reading: &Reading) -> Option<Loss> {
        let asleep = reading.asleep.unwrap_or(self.asleep);
        let slept = asleep && !std::mem::replace(&mut self.asleep, asleep);
        let newer = reading.started.zip(self.started).is_some_and(|(now, seen)| now > seen + START_SLACK_S);
        self.started = match (reading.started, self.started) {
            (Some(now), Some(seen)) => Some(now.max(seen)),
            (now, seen) => now.or(seen),
        };
        match () {
            () if newer => Some(Loss::NewProcess),
            () if slept => Some(Loss::Slept),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(at: f64) -> Reading {
        Reading { started: Some(at), ..Reading::default() }
    }

    fn queries(n: f64) -> Reading {
        Reading { prefix_queries: Some(n), ..Reading::default() }
    }

    #[test]
    fn a_later_start_is_another_process() {
        let mut identity = Identity::default();
        assert_eq!(identity.compare(&started(100.0)), None, "nothing was known before");
        assert_eq!(identity.compare(&started(100.4)), None, "jitter");
        assert_eq!(identity.compare(&started(160.0)), Some(Loss::NewProcess));
        assert_eq!(identity.compare(&started(160.0)), None, "once");
        assert_eq!(identity.compare(&Reading::default()), None, "a reading without it");
        assert_eq!(identity.compare(&started(200.0)), Some(Loss::NewProcess));
    }

    #[test]
    fn processes_that_share_an_address_are_no_restarts() {
        let mut identity = Identity::default();
        let readings = [100.0, 200.0, 100.0, 200.0, 100.0].map(started);
        let losses = readings.iter().filter_map(|reading| identity.compare(reading)).count();
        assert_eq!(losses, 1, "the newest is new once");
    }

    #[test]
    fn counters_that_fall_tell_nothing() {
        let mut identity = Identity::default();
        for n in [10.0, 50.0, 5.0] {
            assert_eq!(identity.compare(&queries(n)), None, "{n}");
        }
    }

    #[test]
    fn falling_asleep_loses_the_cache_once() {
        let mut identity = Identity::default();
        let sleeping = |asleep| Reading { asleep: Some(asleep), ..Reading::default() };
        assert_eq!(identity.compare(&sleeping(false)), None);
        assert_eq!(identity.compare(&sleeping(true)), Some(Loss::Slept));
        assert_eq!(identity.compare(&sleeping(true)), None);
        assert_eq!(identity.compare(&sleeping(false)), None);
    }
}
