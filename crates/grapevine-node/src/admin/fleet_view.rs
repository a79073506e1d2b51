//! The JSON of `/api/v1/fleet`: the whole fleet as one router sees it after it has asked its peers. Its size
//! grows with routers plus replicas, not with their product.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::status::{EngineStatus, Point, ShadowStatus, TokenStatus, Warning};

/// The fleet.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fleet {
    /// When it was asked, Unix time in ms.
    pub at_ms: u64,
    /// The router that asked.
    pub asked: String,
    /// Time between two points, ms.
    pub step_ms: u64,
    /// The routers, the one that asked first.
    pub routers: Vec<FleetRouter>,
    /// Who hears whom.
    pub links: Vec<Link>,
    /// The replicas.
    pub replicas: Vec<FleetReplica>,
    /// Sums over the routers that answered.
    pub totals: FleetTotals,
    /// What somebody should know, the most serious first.
    pub warnings: Vec<Warning>,
    /// The last minutes, oldest first: sums over the routers that answered.
    pub points: Vec<Point>,
}

/// A router.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FleetRouter {
    /// Its name.
    pub name: String,
    /// It is the one that asked.
    #[serde(rename = "self")]
    pub itself: bool,
    /// It answered. Otherwise its figures are 0.
    pub reached: bool,
    /// Why not: `unreachable`, `timeout`, `unauthorized`, `bad_answer`, `too_many`, `no_address`.
    pub error: Option<String>,
    /// Heard of lately by gossip.
    pub live: bool,
    /// `serving`, `joining`, `draining`, or `unknown`.
    pub phase: String,
    /// Its version.
    pub version: String,
    /// How it chooses.
    pub policy: String,
    /// `route` or `shadow`.
    pub mode: String,
    /// Where its admin port answers, as it says.
    pub admin_url: Option<String>,
    /// Its public listener.
    pub listen: Option<String>,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Requests in it now.
    pub inflight: usize,
    /// Requests that wait for a place there.
    pub waiting: usize,
    /// Requests ended.
    pub requests_total: u64,
    /// Of those, neither answered in full nor left by their client.
    pub failed_total: u64,
    /// Requests placed whose prefix was looked up.
    pub lookups: u64,
    /// Of those, placed where a part of their prompt is believed cached.
    pub hits: u64,
    /// Token totals.
    pub tokens: TokenStatus,
    /// Its tree.
    pub tree: FleetTree,
    /// Its gossip.
    pub gossip: FleetGossip,
    /// Requests a second; absent: derive it from two answers.
    pub requests_per_second: Option<f64>,
    /// Gossip bytes sent a second; absent: derive it from two answers.
    pub bytes_per_second: Option<f64>,
}

/// A router's tree.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FleetTree {
    /// Radix nodes.
    pub nodes: usize,
    /// Estimated heap bytes.
    pub bytes: usize,
    /// Boundaries dropped because of the limit.
    pub evicted: u64,
}

/// A router's gossip.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct FleetGossip {
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Share of level pairs.
    pub agreement: f64,
    /// Pairs of a live peer and an origin that are level.
    pub level_pairs: usize,
    /// All of them.
    pub pairs: usize,
    /// What was not taken.
    pub rejected_total: u64,
    /// It is behind.
    pub strained: bool,
    /// It is sealed.
    pub sealed: bool,
}

/// One router hears another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Link {
    /// Who hears.
    pub from: String,
    /// Whom.
    pub to: String,
    /// Heard lately.
    pub live: bool,
    /// Extra delay of its latest segments, ms.
    pub lag_ms: u64,
    /// Time since it was last heard of, ms.
    pub heard_ms_ago: u64,
    /// Segments lost for good.
    pub missed: u64,
    /// Prefixes received.
    pub entries: u64,
    /// Gossip bytes that `from` sent to `to`.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Gossip bytes that `from` accepted from `to`.
    #[serde(default)]
    pub bytes_received: u64,
    /// How well `to` agrees with `from`: share of level origins. Absent until it told.
    #[serde(default)]
    pub agreement: Option<f64>,
    /// Cached tokens predicted because it had told of them.
    pub taught_tokens: u64,
    /// The same as a share of all that were predicted there. Absent while none were.
    pub taught_share: Option<f64>,
}

/// A replica, as the routers together see it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FleetReplica {
    /// Its name.
    pub name: String,
    /// Its base URL.
    pub url: String,
    /// Its id on the wire.
    pub id: String,
    /// The worst that any router says of it: `up`, `suspect`, `unreachable` or `not_ready`.
    pub health: String,
    /// It gets no new requests.
    pub drain: bool,
    /// Requests in flight there.
    pub inflight: u32,
    /// Prefill tokens queued there.
    pub queued_tokens: u64,
    /// Requests sent there.
    pub picks: u64,
    /// Its share of the fleet's requests in the last minute, weighed by each router's traffic.
    pub share: Option<f64>,
    /// Its share of the token totals.
    pub tokens: TokenStatus,
    /// Predicted minus reported cached tokens, mean of the routers'. Absent until one knows.
    pub credit_error_tokens: Option<f32>,
    /// Tokens that its cache is believed to hold, if that is not the default.
    pub capacity_tokens: Option<u64>,
    /// `engine`, `learnt` or `default`.
    pub capacity_source: String,
    /// Caches lost, as failed predictions showed.
    pub lost_caches: u64,
    /// Its cache generation.
    pub epoch: u32,
    /// What its engine last said.
    pub engine: EngineStatus,
}

/// Sums over the routers that answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FleetTotals {
    /// Requests in the fleet now.
    pub inflight: usize,
    /// Requests that wait for a place.
    pub waiting: usize,
    /// Requests ended, by outcome.
    pub requests: BTreeMap<String, u64>,
    /// Replicas chosen, by reason.
    pub decisions: BTreeMap<String, u64>,
    /// Requests placed whose prefix was looked up.
    pub lookups: u64,
    /// Of those, placed where a part of their prompt is believed cached.
    pub hits: u64,
    /// Token totals.
    pub tokens: TokenStatus,
    /// What affinity would have done on routers in shadow mode.
    pub shadow: Option<ShadowStatus>,
}
