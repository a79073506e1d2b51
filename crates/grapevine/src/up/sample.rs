//! What there is to show: plain data, made from what the routers say and from the engines' counters.

use std::time::Duration;

use grapevine_node::admin::fleet_view::{Fleet, FleetRouter};

/// Both sides at one moment; the main one first.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    pub(super) sides: Vec<SideSample>,
}

/// One side.
#[derive(Clone, Debug, Default)]
pub(super) struct SideSample {
    pub(super) label: String,
    pub(super) elapsed: Duration,
    /// Token hit rate of the last seconds, 0 to 1.
    pub(super) hit_now: f64,
    pub(super) hit_total: f64,
    pub(super) per_second: f64,
    pub(super) mean_latency: Duration,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
    /// Hit rates are the engines' own counters, not what answers report.
    pub(super) by_engines: bool,
    pub(super) curve: Vec<f64>,
    /// As its first router that answered sees it.
    pub(super) fleet: Fleet,
    /// Where its page is.
    pub(super) page: String,
    /// The command that shows the same.
    pub(super) top: String,
}

impl Sample {
    pub(super) fn of(sides: &[SideSample]) -> Self {
        let mut sides = sides.to_vec();
        sides.sort_by_key(|side| side.label.starts_with("random,"));
        Self { sides }
    }
}

impl SideSample {
    /// Bytes that a router sends by gossip for each request that the fleet serves.
    pub(super) fn gossip_per_request(&self) -> f64 {
        let sum = |field: fn(&FleetRouter) -> u64| self.fleet.routers.iter().map(field).sum::<u64>() as f64;
        sum(|r| r.gossip.bytes_sent) / sum(|r| r.requests_total).max(1.0)
    }

    /// Cached share of prompt tokens as predicted and as reported.
    pub(super) fn prediction(&self) -> (f64, f64) {
        let tokens = &self.fleet.totals.tokens;
        let prompt = tokens.reported_prompt.max(1) as f64;
        (tokens.predicted_cached as f64 / prompt, tokens.reported_cached as f64 / prompt)
    }

    /// Most requests on one replica against the mean.
    pub(super) fn imbalance(&self) -> f64 {
        let replicas = &self.fleet.replicas;
        let most = replicas.iter().map(|r| r.picks).max().unwrap_or(0) as f64;
        let mean = replicas.iter().map(|r| r.picks).sum::<u64>() as f64 / replicas.len().max(1) as f64;
        if mean > 0.0 { most / mean } else { 1.0 }
    }
}
