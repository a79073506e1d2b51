//! The JSON of `/api/v1/status`, for people and for the command line's live view.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// Everything a router says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// When this was true, Unix time in ms.
    pub at_ms: u64,
    /// Who it is.
    pub router: RouterStatus,
    /// The other routers.
    pub peers: Vec<PeerStatus>,
    /// The engine replicas.
    pub replicas: Vec<ReplicaStatus>,
    /// The prefix tree.
    pub tree: TreeStatus,
    /// Requests in this router now.
    pub inflight: usize,
    /// Requests that wait for a place now.
    pub waiting: usize,
    /// Requests ended since the start, by outcome.
    pub requests: BTreeMap<String, u64>,
    /// Replicas chosen since the start, by reason.
    pub decisions: BTreeMap<String, u64>,
    /// Requests placed whose prefix was looked up.
    pub lookups: u64,
    /// Of those, placed where a part of their prompt is believed cached.
    pub hits: u64,
    /// Token totals.
    pub tokens: TokenStatus,
    /// Gossip totals.
    pub gossip: GossipStatus,
    /// Where replicas come from.
    pub discovery: Vec<SourceStatus>,
    /// The actors' mailboxes.
    pub mailboxes: BTreeMap<String, MailboxStatus>,
    /// What became of spans, logs, pushed metrics and the decision log, of those that are on.
    #[serde(default)]
    pub telemetry: BTreeMap<String, ExportStatus>,
    /// What affinity would have done; absent unless the router runs in shadow mode.
    pub shadow: Option<ShadowStatus>,
    /// What somebody should know.
    pub warnings: Vec<Warning>,
    /// Time between two points, ms.
    pub step_ms: u64,
    /// The last minutes, oldest first.
    pub points: Vec<Point>,
}

/// Who a router is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterStatus {
    /// Its name.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Asynchronous tasks that are alive: connections, requests and the actors.
    #[serde(default)]
    pub tasks: usize,
    /// `joining`, `serving` or `draining`.
    pub phase: String,
    /// How it chooses.
    pub policy: String,
    /// `route`, or `shadow`: it routes by load alone and says what affinity would have done.
    pub mode: String,
    /// Public listener.
    pub listen: SocketAddr,
    /// Admin listener.
    pub admin_listen: SocketAddr,
    /// Gossip listener; absent while its port is taken.
    pub gossip_listen: Option<SocketAddr>,
}

/// Another router.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name.
    pub name: String,
    /// Its gossip address.
    pub gossip_addr: SocketAddr,
    /// Its admin listener, as it says.
    pub admin_url: Option<String>,
    /// Heard of lately.
    pub live: bool,
    /// It said that it is going away.
    pub draining: bool,
    /// It speaks what this router speaks.
    pub compatible: bool,
    /// Prefixes received of it.
    pub entries: u64,
    /// Segments received of it.
    pub segments: u64,
    /// Segments that nobody had any more when they were missed here.
    pub missed: u64,
    /// Segments that were skipped and may still come.
    pub open: u64,
    /// Extra delay of its latest segments, ms.
    pub lag_ms: u64,
    /// Time since it was last heard of, ms.
    pub heard_ms_ago: u64,
    /// Gossip bytes sent to it.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Gossip bytes accepted from it.
    #[serde(default)]
    pub bytes_received: u64,
    /// Share of the origins of which it has all that was known here a moment before it last told. Absent
    /// until it told.
    #[serde(default)]
    pub agreement: Option<f64>,
    /// Cached tokens predicted here because it had told of them.
    pub taught_tokens: u64,
    /// The same as a share of all that were predicted here. Absent while none were.
    pub taught_share: Option<f64>,
}

/// A source of replicas.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceStatus {
    /// `static`, `file`, `dns`, `kubernetes` or `admin`.
    pub source: String,
    /// Replicas that it lists.
    pub replicas: usize,
    /// Why its last look failed: what it lists is of an earlier one.
    pub problem: Option<String>,
}

/// An engine replica.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its name.
    pub name: String,
    /// Its base URL.
    pub url: String,
    /// Its id on the wire, hexadecimal.
    pub id: String,
    /// Who lists it: `static`, `file`, `dns`, `kubernetes` or `admin`.
    pub source: String,
    /// Its capacity relative to the others.
    pub weight: f32,
    /// The models that it serves, the first hundred of them; absent while they are not known.
    pub models: Option<Vec<String>>,
    /// `up`, `suspect`, `unreachable` or `not_ready`.
    pub health: String,
    /// Its cache generation.
    pub epoch: u32,
    /// This router's requests in flight there.
    pub inflight: u32,
    /// This router's prefill tokens queued there.
    pub queued_tokens: u64,
    /// Requests that peers have in flight there, discounted by age.
    pub peer_inflight: f32,
    /// Prefill tokens that peers have queued there, discounted by age.
    pub peer_queued_tokens: f32,
    /// Cold tokens sent there lately by the whole fleet.
    pub intake_tokens: f32,
    /// It gets no new requests and goes when those in flight have ended.
    pub drain: bool,
    /// Requests sent there since the start.
    pub picks: u64,
    /// Its share of this router's requests in the last minute. Absent while there were none.
    pub share: Option<f64>,
    /// Its share of the token totals.
    pub tokens: TokenStatus,
    /// Predicted minus reported cached tokens, mean over the last answers. Absent until one reported.
    pub credit_error_tokens: Option<f32>,
    /// Tokens that its cache is believed to hold, if that is not the default.
    pub capacity_tokens: Option<u64>,
    /// Who says so: `engine`, `learnt` from answers, or `default`.
    pub capacity_source: String,
    /// Times that its predictions failed so that it must have lost its cache, as this router saw.
    pub lost_caches: u64,
    /// What its engine says of itself.
    pub engine: EngineStatus,
}

/// What an engine says of itself, in its metrics. Absent: it does not say.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EngineStatus {
    /// `vllm`, `sglang`, `llama.cpp`, `tgi`, `tensorrt-llm`, or `plain`.
    pub kind: String,
    /// Time since it said so, ms.
    pub age_ms: Option<u64>,
    /// Requests waiting there.
    pub waiting: Option<f64>,
    /// Requests running there.
    pub running: Option<f64>,
    /// Share of its KV cache that running requests use.
    pub kv_use: Option<f64>,
    /// Tokens that its cache holds.
    pub cache_tokens: Option<u64>,
    /// Prompt tokens that it looked up in its prefix cache.
    pub prefix_queries: Option<f64>,
    /// Of those, found.
    pub prefix_hits: Option<f64>,
}

/// Prompt tokens: since the start, or of a step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenStatus {
    /// Placed, estimated from bytes.
    pub prompt: u64,
    /// Of those, predicted to be cached.
    pub predicted_cached: u64,
    /// What a replica drawn at random would have had cached, estimated.
    #[serde(default)]
    pub random_cached: u64,
    /// As answers reported.
    pub reported_prompt: u64,
    /// Cached, as answers reported.
    pub reported_cached: u64,
}

impl TokenStatus {
    /// What came since `before`.
    pub fn since(&self, before: &Self) -> Self {
        let grown = |of: fn(&Self) -> u64| of(self).saturating_sub(of(before));
        Self {
            prompt: grown(|t| t.prompt),
            predicted_cached: grown(|t| t.predicted_cached),
            random_cached: grown(|t| t.random_cached),
            reported_prompt: grown(|t| t.reported_prompt),
            reported_cached: grown(|t| t.reported_cached),
        }
    }
}

impl AddAssign for TokenStatus {
    fn add_assign(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.predicted_cached += other.predicted_cached;
        self.random_cached += other.random_cached;
        self.reported_prompt += other.reported_prompt;
        self.reported_cached += other.reported_cached;
    }
}

/// The prefix tree.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct TreeStatus {
    /// Radix nodes.
    pub nodes: usize,
    /// Boundaries stored.
    pub boundaries: usize,
    /// Credits stored.
    pub credits: usize,
    /// Estimated heap bytes.
    pub bytes: usize,
    /// Boundaries dropped because of the limit, since the start.
    pub evicted: u64,
    /// Boundaries dropped because nobody holds them any more, since the start.
    pub expired: u64,
    /// Changes waiting to be gossiped.
    pub dirty: usize,
    /// Changes that were not queued for gossip because the queue was full, since the start.
    #[serde(default)]
    pub overflowed: u64,
    /// Peers' entries ignored because they contradict what is known, since the start.
    #[serde(default)]
    pub contradictions: u64,
    /// Peers' entries ignored because they tell of a cache that was lost since, since the start.
    #[serde(default)]
    pub outdated: u64,
}

/// Gossip since the start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GossipStatus {
    /// It is up; without it this router serves alone.
    pub running: bool,
    /// Datagrams are sealed.
    pub sealed: bool,
    /// Live peers.
    pub live_peers: usize,
    /// Prefixes published.
    pub entries_published: u64,
    /// Prefixes received.
    pub entries_received: u64,
    /// Prefixes dropped because too many waited.
    pub entries_dropped: u64,
    /// Times a prefix waited for a later tick.
    pub entries_deferred: u64,
    /// Segments that peers were pointed to, because they were too big or gossip was behind.
    pub segments_pointed: u64,
    /// Bytes of deltas and load published.
    pub delta_bytes: u64,
    /// Gossip is behind.
    pub strained: bool,
    /// Pairs of a live peer and an origin that are level, and all of them; share of them.
    pub level_pairs: usize,
    /// See `level_pairs`.
    pub pairs: usize,
    /// See `level_pairs`; 1 when there are none.
    pub agreement: f64,
    /// Questions to peers for missing segments, by result.
    pub pulls: BTreeMap<String, u64>,
    /// Segments that came this way.
    pub pulled_segments: u64,
    /// Snapshots of peers asked for, by result.
    pub snapshots: BTreeMap<String, u64>,
    /// A snapshot is wanted: the first, or because too much was lost.
    pub wants_snapshot: bool,
    /// Times that gossip ended and was started again.
    pub resets: u64,
    /// Peers' questions answered.
    pub answers: u64,
    /// Bytes of the answers.
    pub answered_bytes: u64,
    /// Datagrams, values and questions that were not taken, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Largest datagram so far.
    pub largest_datagram_bytes: u64,
    /// Largest message so far, before it is compressed and cut.
    pub largest_message_bytes: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
}

/// An actor's mailbox.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct MailboxStatus {
    /// Messages waiting.
    pub depth: usize,
    /// Messages refused because it was full, since the start.
    pub dropped: u64,
    /// Messages handled since the start.
    pub handled: u64,
    /// Seconds spent in handlers since the start.
    pub busy_seconds: f64,
    /// Since the actor last came round, ms.
    pub idle_ms: u64,
}

/// What became of one kind of telemetry, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// Made.
    pub made: u64,
    /// Taken by the collector, or written.
    pub delivered: u64,
    /// Given up because the collector did not take it.
    pub failed: u64,
    /// Dropped because too much waited, or the disk was full.
    pub dropped: u64,
}

/// Tokens that were and would have been found cached, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowStatus {
    /// Requests decided.
    pub decisions: u64,
    /// Of those, placed where affinity would have placed them too.
    pub agreed: u64,
    /// Prompt tokens placed.
    pub prompt_tokens: u64,
    /// Of those, predicted to be cached where they went.
    pub done_tokens: u64,
    /// Of those, predicted to be cached where affinity would have sent them.
    pub affinity_tokens: u64,
}

/// How serious a warning is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Worth knowing.
    Info,
    /// Something is worse than it could be.
    Warn,
    /// Requests fail or will.
    Error,
}

/// Something that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// A name of few values; docs/operations.md has an entry for each.
    pub code: String,
    /// How serious it is.
    pub level: Level,
    /// The router that says so.
    pub router: String,
    /// The replica or peer that it is about.
    pub subject: Option<String>,
    /// Since when, Unix time in ms.
    pub since_ms: Option<u64>,
    /// What is the matter, and what to do.
    pub text: String,
}

/// What happened in one step of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// The step's end, Unix time in ms; a multiple of the step.
    pub at_ms: u64,
    /// Requests ended.
    pub requests: u64,
    /// Of the tokens.
    #[serde(flatten)]
    pub tokens: TokenStatus,
}
