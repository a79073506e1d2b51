//! Hit rates over time, and rates derived from counters.

use std::collections::{BTreeMap, VecDeque};

use grapevine_node::admin::fleet_view::Fleet;
use grapevine_node::admin::status::{Point, TokenStatus};

use crate::figures::share;

/// Points behind one drawn point: 10 s. A single step is too noisy to read.
const SMOOTH: usize = 5;

/// "Now" in the figures, ms.
const MINUTE_MS: u64 = 60_000;

/// Window of rates derived from counters, ms.
const RATE_MS: u64 = 12_000;

/// Shares of prompt tokens; unknown without any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shares {
    /// As engines reported.
    pub(super) reported: Option<f64>,
    /// As predicted.
    pub(super) predicted: Option<f64>,
    /// As a random choice would have had, estimated.
    pub(super) random: Option<f64>,
}

impl Shares {
    pub(super) fn of(points: &[Point]) -> Self {
        let mut sum = TokenStatus::default();
        points.iter().for_each(|point| sum += point.tokens);
        Self {
            reported: share(sum.reported_cached, sum.reported_prompt),
            predicted: share(sum.predicted_cached, sum.prompt),
            random: share(sum.random_cached, sum.prompt),
        }
    }
}

/// The last minute of `points`.
pub(super) fn last_minute(points: &[Point]) -> &[Point] {
    let until = points.last().map_or(0, |point| point.at_ms);
    let from = points.partition_point(|point| until - point.at_ms.min(until) >= MINUTE_MS);
    points.get(from..).unwrap_or_default()
}

/// Requests per second over `points`.
pub(super) fn requests_per_second(points: &[Point], step_ms: u64) -> Option<f64> {
    let seconds = points.len() as f64 * step_ms as f64 / 1_000.0;
    (seconds > 0.0).then(|| points.iter().map(|point| point.requests).sum::<u64>() as f64 / seconds)
}

/// Shares at each point, smoothed.
pub(super) fn curve(points: &[Point]) -> Vec<Shares> {
    let upto = |i: usize| points.get((i + 1).saturating_sub(SMOOTH)..=i).unwrap_or_default();
    (0..points.len()).map(|i| Shares::of(upto(i))).collect()
}

/// Counters of routers over the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Rates(BTreeMap<String, VecDeque<Sample>>);

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ms: u64,
    requests: u64,
    bytes: u64,
}

impl Rates {
    /// Notes the counters of `fleet`; forgets routers that are no part of it.
    pub(crate) fn note(&mut self, fleet: &Fleet) {
        self.0.retain(|name, _| fleet.routers.iter().any(|router| router.name == *name));
        for router in fleet.routers.iter().filter(|router| router.reached) {
            let (requests, bytes) = (router.requests_total, router.gossip.bytes_sent);
            let samples = self.0.entry(router.name.clone()).or_default();
            // A counter that fell belongs to another process.
            if samples.back().is_some_and(|last| last.requests > requests || last.bytes > bytes) {
                samples.clear();
            }
            while samples.front().is_some_and(|first| fleet.at_ms.saturating_sub(first.at_ms) > RATE_MS) {
                samples.pop_front();
            }
            samples.push_back(Sample { at_ms: fleet.at_ms, requests, bytes });
        }
    }

    /// Requests per second of a router.
    pub(super) fn requests(&self, router: &str) -> Option<f64> {
        self.of(router, |sample| sample.requests)
    }

    /// Gossip bytes per second that a router sends.
    pub(super) fn bytes(&self, router: &str) -> Option<f64> {
        self.of(router, |sample| sample.bytes)
    }

    fn of(&self, router: &str, count: fn(&Sample) -> u64) -> Option<f64> {
        let samples = self.0.get(router)?;
        let (first, last) = (samples.front()?, samples.back()?);
        let ms = last.at_ms.checked_sub(first.at_ms).filter(|ms| *ms > 0)?;
        Some((count(last) - count(first)) as f64 * 1_000.0 / ms as f64)
    }
}

#[cfg(test)]
mod tests {
    use grapevine_node::admin::fleet_view::FleetRouter;

    use super::*;

    fn points(cached: &[u64]) -> Vec<Point> {
        let point = |(i, cached): (usize, &u64)| Point {
            at_ms: 2_000 * (i as u64 + 1),
            requests: 4,
            tokens: TokenStatus {
                prompt: 100,
                predicted_cached: *cached,
                random_cached: 25,
                reported_prompt: 100,
                reported_cached: *cached,
            },
        };
        cached.iter().enumerate().map(point).collect()
    }

    #[test]
    fn curves_are_means_of_the_last_seconds() {
        let curve = curve(&points(&[0, 100, 100, 100, 100, 100]));
        let reported: Vec<_> = curve.iter().map(|shares| shares.reported.unwrap()).collect();
        assert_eq!(reported, [0.0, 0.5, 2.0 / 3.0, 0.75, 0.8, 1.0]);
        assert_eq!(Shares::of(&[]), Shares::default(), "unknown is not zero");
    }

    #[test]
    fn the_last_minute_is_a_minute() {
        let all = points(&[50; 100]);
        assert_eq!(last_minute(&all).len(), 30);
        assert_eq!(requests_per_second(last_minute(&all), 2_000), Some(2.0));
        assert_eq!(last_minute(&[]).len(), 0);
    }

    #[test]
    fn rates_survive_a_restart() {
        let fleet = |at_ms, requests_total| Fleet {
            at_ms,
            routers: vec![FleetRouter {
                name: "r1".to_owned(),
                reached: true,
                requests_total,
                ..FleetRouter::default()
            }],
            ..Fleet::default()
        };
        let mut rates = Rates::default();
        rates.note(&fleet(1_000, 50));
        assert_eq!(rates.requests("r1"), None);
        rates.note(&fleet(3_000, 70));
        assert_eq!(rates.requests("r1"), Some(10.0));
        rates.note(&fleet(5_000, 3));
        assert_eq!(rates.requests("r1"), None, "another process counts from zero");
        rates.note(&Fleet::default());
        assert_eq!(rates.requests("r1"), None);
    }
}
