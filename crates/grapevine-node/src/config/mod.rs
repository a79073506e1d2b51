//! Configuration from the environment.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use grapevine_route::{Policy, Weights};
use grapevine_tree::TreeConfig;

/// Everything a router can be told. Made by the parser from one table of settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Public listener.
    pub listen: SocketAddr,
    /// Admin listener: health, metrics, status.
    pub admin_listen: SocketAddr,
    /// Gossip (UDP) listener.
    pub gossip_listen: SocketAddr,
    /// Address that peers reach the gossip listener at, when it differs from what is bound.
    pub gossip_advertise: Option<SocketAddr>,
    /// `host:port` of routers to meet; DNS names are asked again while running.
    pub gossip_seeds: Vec<String>,
    /// Name of this router, stable over restarts.
    pub router_id: String,
    /// Fleets with different ids never mix.
    pub cluster_id: String,
    /// Seals gossip and keys the prefix hash.
    pub cluster_secret: Option<Secret>,
    /// Still accepted while secrets rotate.
    pub cluster_secret_previous: Option<Secret>,
    /// The replicas.
    pub replicas: Vec<ReplicaSpec>,
    /// How they are chosen.
    pub policy: Policy,
    /// Votes and guard.
    pub weights: Weights,
    /// Tree limits.
    pub tree: TreeConfig,
    /// Bytes of a prompt for one token.
    pub bytes_per_token: f32,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Limit to connect to a replica.
    pub connect_timeout: Duration,
    /// Limit from a sent request to the first byte of the answer's headers.
    pub first_byte_timeout: Duration,
    /// Limit between two chunks of an answer.
    pub idle_timeout: Duration,
    /// Idle connections to replicas are closed after this; below the engines' own 5 s.
    pub pool_idle_timeout: Duration,
    /// Most requests in flight in this router; 0 = no limit.
    pub max_inflight: usize,
    /// Most requests in flight of this router on one replica; 0 = no limit.
    pub max_inflight_per_replica: usize,
    /// Time between health probes of a replica.
    pub health_interval: Duration,
    /// Limit of one probe.
    pub health_timeout: Duration,
    /// How long a request waits for the tree before it is routed by load alone.
    pub lookup_timeout: Duration,
    /// Gossip tick.
    pub gossip_interval: Duration,
    /// After SIGTERM: not ready, but still serving new requests for this long.
    pub drain_delay: Duration,
    /// After that: running requests may take this long to end.
    pub drain_timeout: Duration,
    /// Matched tokens and reason in response headers.
    pub debug_headers: bool,
    /// `text` or `json`.
    pub log_format: LogFormat,
    /// tracing's filter directives.
    pub log_filter: String,
    /// Worker threads; 0 = one per core.
    pub workers: usize,
}

/// One replica as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSpec {
    /// Its name in metrics, headers and logs; `host:port` unless said.
    pub name: String,
    /// Base URL, without a trailing slash.
    pub url: String,
}

/// Shape of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A string that never prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `value`.
    pub fn new(value: String) -> Self {
        Self(value)
    }

    /// The secret itself; for key derivation only.
    pub fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
