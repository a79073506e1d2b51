//! How late an origin's segments arrive, without comparing clocks of two hosts.

use grapevine_tree::Millis;

/// How long the fastest delivery is remembered, in milliseconds. Long enough that one is fast,
/// short enough that two clocks drifting apart (at most 0.2 ms in a second) do not look like delay.
const MEMORY_MS: Millis = 60_000;

/// Extra delay of a delivery over the fastest of the last minute or two.
///
/// `received - sent` mixes two clocks and means nothing by itself; that it grew by 300 ms means that
/// this delivery took 300 ms longer than that other one.
#[derive(Clone, Debug)]
pub(super) struct LagMeter {
    since: Millis,
    fastest: i128,
    fastest_before: i128,
}

impl LagMeter {
    pub(super) fn new(now: Millis) -> Self {
        Self { since: now, fastest: i128::MAX, fastest_before: i128::MAX }
    }

    /// Takes note of a delivery; its lag in milliseconds.
    pub(super) fn observe(&mut self, now: Millis, sent: u64) -> u64 {
        if now.saturating_sub(self.since) >= MEMORY_MS {
            self.since = now;
            self.fastest_before = std::mem::replace(&mut self.fastest, i128::MAX);
        }
        let offset = i128::from(now) - i128::from(sent);
        self.fastest = self.fastest.min(offset);
        let lag = offset - self.fastest.min(self.fastest_before);
        u64::try_from(lag).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_relative_to_the_fastest_delivery() {
        let mut meter = LagMeter::new(1_000);
        assert_eq!(meter.observe(1_000, 987_654_321), 0, "the clocks need not agree");
        assert_eq!(meter.observe(1_550, 987_654_321 + 250), 300);
        assert_eq!(meter.observe(1_700, 987_654_321 + 750), 0, "faster than ever");
        assert_eq!(meter.observe(1_750, 987_654_321 + 750), 50);
    }

    #[test]
    fn a_slow_drift_is_forgotten() {
        let mut meter = LagMeter::new(0);
        let lag = (0..10_000u64).map(|s| meter.observe(s * 1_000 + s / 10, s * 1_000)).max();
        assert!(lag.unwrap() <= 12, "0.1 ms of drift in a second became {lag:?} ms");
    }

    #[test]
    fn absurd_times_do_not_panic() {
        let mut meter = LagMeter::new(u64::MAX);
        assert_eq!(meter.observe(0, u64::MAX), 0);
        assert_eq!(meter.observe(u64::MAX, 0), u64::MAX);
    }
}
