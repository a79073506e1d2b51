//! What there is to show: plain data, made from the routers' status and the engines' counters.

use std::time::Duration;

use grapevine_node::admin::status::Status;

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
    pub(super) routers: Vec<RouterRow>,
    pub(super) replicas: Vec<ReplicaRow>,
}

/// One router.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterRow {
    pub(super) name: String,
    pub(super) up: bool,
    pub(super) requests: u64,
    pub(super) inflight: usize,
    pub(super) live_peers: usize,
    pub(super) lookups: u64,
    pub(super) hits: u64,
    pub(super) nodes: usize,
    pub(super) gossip_bytes: u64,
    pub(super) predicted: u64,
    pub(super) reported: u64,
    pub(super) reported_prompt: u64,
}

/// One replica, as all routers together see it.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaRow {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) health: String,
    pub(super) inflight: u32,
    pub(super) queued_tokens: u64,
    pub(super) picks: u64,
    pub(super) hit_rate: Option<f64>,
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
        let sum = |field: fn(&RouterRow) -> u64| self.routers.iter().map(field).sum::<u64>() as f64;
        sum(|r| r.gossip_bytes) / sum(|r| r.requests).max(1.0)
    }

    /// Cached share of prompt tokens as predicted and as reported.
    pub(super) fn prediction(&self) -> (f64, f64) {
        let sum = |field: fn(&RouterRow) -> u64| self.routers.iter().map(field).sum::<u64>() as f64;
        let prompt = sum(|r| r.reported_prompt).max(1.0);
        (sum(|r| r.predicted) / prompt, sum(|r| r.reported) / prompt)
    }

    /// Most requests on one replica against the mean.
    pub(super) fn imbalance(&self) -> f64 {
        let most = self.replicas.iter().map(|r| r.picks).max().unwrap_or(0) as f64;
        let mean =
            self.replicas.iter().map(|r| r.picks).sum::<u64>() as f64 / self.replicas.len().max(1) as f64;
        if mean > 0.0 { most / mean } else { 1.0 }
    }
}

impl RouterRow {
    pub(super) fn of(name: &str, status: Option<&Status>) -> Self {
        let Some(status) = status else { return Self { name: name.to_owned(), ..Self::default() } };
        Self {
            name: name.to_owned(),
            up: true,
            requests: status.requests.values().sum(),
            inflight: status.inflight,
            live_peers: status.gossip.live_peers,
            lookups: status.lookups,
            hits: status.hits,
            nodes: status.tree.nodes,
            gossip_bytes: status.gossip.bytes_sent,
            predicted: status.tokens.predicted_cached,
            reported: status.tokens.reported_cached,
            reported_prompt: status.tokens.reported_prompt,
        }
    }
}

impl ReplicaRow {
    /// The replicas, each the sum of what the routers say of it.
    pub(super) fn merge<'a>(statuses: impl Iterator<Item = &'a Status>) -> Vec<Self> {
        let mut rows: Vec<Self> = Vec::new();
        for replica in statuses.flat_map(|status| &status.replicas) {
            let known = rows.iter().position(|row| row.url == replica.url);
            let row = match known.and_then(|at| rows.get_mut(at)) {
                Some(row) => row,
                None => {
                    let (name, url) = (replica.name.clone(), replica.url.clone());
                    rows.push(Self { name, url, health: replica.health.clone(), ..Self::default() });
                    let Some(row) = rows.last_mut() else { continue };
                    row
                }
            };
            row.inflight += replica.inflight;
            row.queued_tokens += replica.queued_tokens;
            row.picks += replica.picks;
            if replica.health != "up" {
                row.health.clone_from(&replica.health);
            }
        }
        rows
    }
}
