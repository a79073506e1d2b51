//! Configuration from the environment.
//!
//! One table of settings ([`sections`]) drives the parser, `grapevine serve --help`,
//! `grapevine config` and docs/configuration.md. Nothing else in the router reads the environment.
//! All mistakes are reported at once ([`Mistakes`]).
//!
//! **Invariant:** a default is written once, in [`Config::default`] or the pure crates' own
//! `Default`s: the library, the command line and the documentation cannot differ.

mod address;
mod check;
mod load;
mod mistake;
mod otel;
mod render;
mod replicas;
mod scalar;
mod setting;
mod sources;
mod strings;
mod table;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use grapevine_route::{Policy, Weights};
use grapevine_tree::TreeConfig;
use http::HeaderName;

use crate::engine::{Kind, Names};

pub use mistake::{Mistake, Mistakes};
pub use otel::{Batching, Export, OtelConfig, Protocol};
pub use render::{Effective, Source, effective, help, markdown};
pub use replicas::base_url;
pub(crate) use replicas::{MAX_REPLICAS, spec};
pub use setting::{Section, Setting};
pub use sources::{DnsName, KubernetesEndpoints};
pub use strings::{NotUnicode, ProcessEnv, Strings};
pub use table::sections;

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
    /// The replicas that are listed.
    pub replicas: Vec<ReplicaSpec>,
    /// File that lists more of them.
    pub replicas_file: Option<PathBuf>,
    /// Names in DNS that stand for more of them.
    pub replicas_dns: Vec<DnsName>,
    /// Who is asked for these names; empty: whom the system asks.
    pub dns_servers: Vec<SocketAddr>,
    /// Endpoints of Kubernetes that are more of them.
    pub replicas_kubernetes: Vec<KubernetesEndpoints>,
    /// Metrics of engines that are called otherwise than is known.
    pub metric_names: Names,
    /// What all replicas are of which nothing else is said; `None`: that is found out.
    pub engine_kind: Option<Kind>,
    /// How they are chosen.
    pub policy: Policy,
    /// Whether prefixes decide, or are only watched.
    pub mode: Mode,
    /// Votes and guard.
    pub weights: Weights,
    /// Tree limits.
    pub tree: TreeConfig,
    /// Bytes of a prompt for one token.
    pub bytes_per_token: f32,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// A client's silence within its request's body, or not taking its answer, until it is given up.
    pub client_timeout: Duration,
    /// Limit to connect to a replica.
    pub connect_timeout: Duration,
    /// Limit from a sent request to the first byte of the answer's headers.
    pub first_byte_timeout: Duration,
    /// The same up to the first event of a stream that the client asked for.
    pub stream_first_byte_timeout: Duration,
    /// Limit between two chunks of an answer.
    pub idle_timeout: Duration,
    /// Idle connections to replicas are closed after this; below the engines' own 5 s.
    pub pool_idle_timeout: Duration,
    /// Most requests in flight in this router; 0 = no limit.
    pub max_inflight: usize,
    /// Most requests in flight of this router on one replica; 0 = no limit.
    pub max_inflight_per_replica: usize,
    /// Most requests that wait for a place; 0 = none waits.
    pub queue_limit: usize,
    /// Longest wait for a place.
    pub queue_timeout: Duration,
    /// Request field with the words `high`, `normal` or `low`; `None`: all are equal.
    pub priority_header: Option<HeaderName>,
    /// File with the names and hashes of clients' keys; `None`: no key is needed.
    pub client_keys: Option<PathBuf>,
    /// Sent to every replica instead of what clients send.
    pub engine_key: Option<Secret>,
    /// Opens metrics and status on the admin port.
    pub admin_token: Option<Secret>,
    /// Certificate chain of the public listener; `None`: plain HTTP.
    pub tls_cert: Option<PathBuf>,
    /// Its key.
    pub tls_key: Option<PathBuf>,
    /// Certificates of authorities, trusted for replicas besides the system's.
    pub engine_ca: Option<PathBuf>,
    /// HTTP/2 without TLS to replicas.
    pub engine_http2: bool,
    /// Retries as a share of requests, at most.
    pub retry_ratio: f32,
    /// Time until a replica that came up carries its full share.
    pub slow_start: Duration,
    /// Silence after which a stream gets a comment; zero = never.
    pub stream_keepalive: Duration,
    /// Time between health probes of a replica.
    pub health_interval: Duration,
    /// Limit of one probe.
    pub health_timeout: Duration,
    /// Time between two looks at a replica's metrics; zero = never.
    pub metrics_interval: Duration,
    /// Time between two questions to a replica for its models; zero = never.
    pub models_interval: Duration,
    /// How long a request waits for the tree before it is routed by load alone.
    pub lookup_timeout: Duration,
    /// Gossip tick.
    pub gossip_interval: Duration,
    /// How long a router that starts waits for what its peers know before it is ready.
    pub join_timeout: Duration,
    /// After SIGTERM: not ready, but still serving new requests for this long.
    pub drain_delay: Duration,
    /// After that: running requests may take this long to end.
    pub drain_timeout: Duration,
    /// Matched tokens and reason in response headers.
    pub debug_headers: bool,
    /// File of the decision log; `None`: decisions are not logged.
    pub decision_log: Option<PathBuf>,
    /// Size of its files, bytes.
    pub decision_log_bytes: usize,
    /// Files of it that are kept.
    pub decision_log_files: usize,
    /// `text` or `json`.
    pub log_format: LogFormat,
    /// tracing's filter directives.
    pub log_filter: String,
    /// Worker threads; 0 = one per core.
    pub workers: usize,
    /// Export of traces, metrics and logs.
    pub otel: OtelConfig,
}

/// The defaults of all settings. Without replicas and a router id, which have none.
impl Default for Config {
    fn default() -> Self {
        Self {
            listen: loopback(8080),
            admin_listen: loopback(9090),
            gossip_listen: loopback(7946),
            gossip_advertise: None,
            gossip_seeds: Vec::new(),
            router_id: String::new(),
            cluster_id: "grapevine".to_owned(),
            cluster_secret: None,
            cluster_secret_previous: None,
            replicas: Vec::new(),
            replicas_file: None,
            replicas_dns: Vec::new(),
            dns_servers: Vec::new(),
            replicas_kubernetes: Vec::new(),
            metric_names: Names::default(),
            engine_kind: None,
            policy: Policy::default(),
            mode: Mode::default(),
            weights: Weights::default(),
            tree: TreeConfig::default(),
            bytes_per_token: 4.0,
            body_limit: 64 << 20,
            client_timeout: Duration::from_secs(120),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(30 * 60),
            stream_first_byte_timeout: Duration::from_secs(10 * 60),
            idle_timeout: Duration::from_secs(300),
            pool_idle_timeout: Duration::from_secs(3),
            max_inflight: 10_000,
            max_inflight_per_replica: 0,
            queue_limit: 0,
            queue_timeout: Duration::from_secs(10),
            priority_header: None,
            client_keys: None,
            engine_key: None,
            admin_token: None,
            tls_cert: None,
            tls_key: None,
            engine_ca: None,
            engine_http2: false,
            retry_ratio: 0.2,
            slow_start: Duration::from_secs(10),
            stream_keepalive: Duration::ZERO,
            health_interval: Duration::from_secs(10),
            health_timeout: Duration::from_secs(5),
            metrics_interval: Duration::from_secs(5),
            models_interval: Duration::from_secs(60),
            lookup_timeout: Duration::from_millis(20),
            gossip_interval: Duration::from_millis(250),
            join_timeout: grapevine_mesh::DEFAULT_JOIN_TIMEOUT,
            drain_delay: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(120),
            debug_headers: false,
            decision_log: None,
            decision_log_bytes: 64 << 20,
            decision_log_files: 5,
            log_format: LogFormat::Text,
            log_filter: "info".to_owned(),
            workers: 0,
            otel: OtelConfig::default(),
        }
    }
}

impl Config {
    /// A router on free loopback ports, called `router_id`: for tests and for fleets within one
    /// process. Everything else is default, except that it drains without a delay.
    pub fn local(router_id: &str, replicas: Vec<ReplicaSpec>) -> Self {
        Self {
            listen: loopback(0),
            admin_listen: loopback(0),
            gossip_listen: loopback(0),
            router_id: router_id.to_owned(),
            replicas,
            drain_delay: Duration::ZERO,
            ..Self::default()
        }
    }

    /// What is allowed and hardly anybody wants, a sentence each. `serve` logs it, `config` prints it.
    pub fn warnings(&self) -> Vec<String> {
        check::warnings(self)
    }

    /// Whether replicas come from elsewhere than the list.
    pub fn discovers(&self) -> bool {
        self.replicas_file.is_some() || !self.replicas_dns.is_empty() || !self.replicas_kubernetes.is_empty()
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// One replica as it is configured or was discovered.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSpec {
    /// Its name in metrics, headers and logs; `host:port` unless said.
    pub name: String,
    /// Base URL, without a trailing slash.
    pub url: String,
    /// Capacity relative to the others.
    pub weight: f32,
    /// The models that it serves; `None`: it is asked.
    pub models: Option<Vec<String>>,
    /// What it is; `None`: that is found out.
    pub kind: Option<Kind>,
    /// Sent to it in place of every other credential.
    pub key: Option<Secret>,
    /// It is not to get requests for now.
    pub held: bool,
}

impl ReplicaSpec {
    /// A replica of which nothing else is said.
    pub fn new(name: impl Into<String>, url: impl Into<String>) -> Self {
        let (name, url) = (name.into(), url.into());
        Self { name, url, weight: 1.0, models: None, kind: None, key: None, held: false }
    }
}

/// Whether prefixes decide, or are only watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// They decide.
    #[default]
    Route,
    /// Load alone decides; what affinity would have done is counted.
    Shadow,
}

impl Mode {
    /// The name in configuration and status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Shadow => "shadow",
        }
    }
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

    /// The secret itself, to derive keys from it or to show it to whom it is for.
    pub fn expose(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests;
