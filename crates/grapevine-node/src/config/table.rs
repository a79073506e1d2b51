//! The one table of settings. A row gives a setting's name, type with limits, field and meaning; its
//! default is what [`super::Config::default`] holds. A new setting is a field there and a row here.

mod log;
mod process;
mod replicas;

use std::sync::LazyLock;
use std::time::Duration;

use super::address::{Address, OptionalAddress, Seeds};
use super::scalar::{InMillis, Name, Number, OptionalField, OptionalPath, SWITCH, size, time};
use super::setting::{Section, Setting, row, secret, token};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// All settings, in the order in which they are documented.
pub fn sections() -> &'static [Section] {
    static TABLE: LazyLock<Vec<Section>> = LazyLock::new(|| {
        vec![
            Section { title: "Replicas", settings: replicas::rows() },
            Section { title: "Listeners", settings: listeners() },
            Section { title: "Fleet", settings: fleet() },
            Section { title: "Requests", settings: requests() },
            Section { title: "Admission", settings: admission() },
            Section { title: "Keys and TLS", settings: keys() },
            Section { title: "Health", settings: health() },
            Section { title: "Votes and guard", settings: votes() },
            Section { title: "Prefix tree", settings: tree() },
            Section { title: "Decision log", settings: log::rows() },
            Section { title: "Process", settings: process::rows() },
        ]
    });
    &TABLE
}

/// All settings without their headings.
pub(super) fn settings() -> impl Iterator<Item = &'static Setting> {
    sections().iter().flat_map(|section| &section.settings)
}

fn listeners() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_LISTEN",
            Address,
            |c| &mut c.listen,
            "Where clients send requests. Loopback until told otherwise: without GRAPEVINE_CLIENT_KEYS \
             whoever reaches it may use the engines. Port 0 takes a free port; the bound address is logged.",
        ),
        row(
            "GRAPEVINE_ADMIN_LISTEN",
            Address,
            |c| &mut c.admin_listen,
            "Health (`/livez`, `/readyz`), metrics (`/metrics`) and status (`/api/v1/status`). Never on \
             the public listener.",
        ),
        row(
            "GRAPEVINE_GOSSIP_LISTEN",
            Address,
            |c| &mut c.gossip_listen,
            "UDP address of gossip between routers. Other than loopback needs a cluster secret.",
        ),
        row(
            "GRAPEVINE_GOSSIP_ADVERTISE",
            OptionalAddress,
            |c| &mut c.gossip_advertise,
            "Address at which peers reach the gossip listener, when it is not the one bound: behind NAT, \
             say. Bound to `0.0.0.0`, peers are told the address from which this machine sends.",
        ),
    ]
}

fn fleet() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_GOSSIP_SEEDS",
            Seeds,
            |c| &mut c.gossip_seeds,
            "Some routers of the fleet, as `host:port`; one that answers is enough to meet all. DNS names \
             are asked again while running, so a headless Service's name works. Its own address may be \
             among them.",
        ),
        row(
            "GRAPEVINE_GOSSIP_INTERVAL",
            time(50 * MS, 5 * SECOND),
            |c| &mut c.gossip_interval,
            "How often peers are told what changed. Load of peers is worth having only while it is at most about \
             250ms old.",
        ),
        row(
            "GRAPEVINE_JOIN_TIMEOUT",
            time(Duration::ZERO, 10 * MINUTE),
            |c| &mut c.join_timeout,
            "How long a router that starts waits for a peer's snapshot of the prefix tree before it is \
             ready (`/readyz`). Without peers or seeds it does not wait; after it, it goes on trying in the \
             background. Requests that come meanwhile are served. 0s does not wait.",
        ),
        row(
            "GRAPEVINE_ROUTER_ID",
            Name,
            |c| &mut c.router_id,
            "Name of this router: unique in the fleet, the same after a restart.",
        )
        .default_text("host name and port of GRAPEVINE_LISTEN"),
        row(
            "GRAPEVINE_CLUSTER_ID",
            Name,
            |c| &mut c.cluster_id,
            "Name of the fleet. Fleets with different names never mix, even when they share seeds.",
        ),
        secret(
            "GRAPEVINE_CLUSTER_SECRET",
            |c| &mut c.cluster_secret,
            "Seals gossip and keys the prefix hashes; the same on every router of the fleet.",
        ),
        secret(
            "GRAPEVINE_CLUSTER_SECRET_PREVIOUS",
            |c| &mut c.cluster_secret_previous,
            "Still accepted from peers while the fleet changes its secret. Take it away when every router \
             has the new one.",
        ),
    ]
}

fn requests() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_BODY_LIMIT",
            size(1 << 10, 4 << 30),
            |c| &mut c.body_limit,
            "Largest request body; above it 413. 64MiB takes a prompt with several images. Bodies are held \
             in memory while a replica is being chosen and reached.",
        ),
        row(
            "GRAPEVINE_CLIENT_TIMEOUT",
            time(100 * MS, HOUR),
            |c| &mut c.client_timeout,
            "How long a client may need for a request's head that it began (then its connection is closed), send \
             nothing of a body (then 408), or take nothing of an answer that waits for it (then its connection \
             is closed; HTTP/2: the stream is reset). A whole body has a minute, or this if it is longer, and a second for each KiB.",
        ),
        row(
            "GRAPEVINE_CONNECT_TIMEOUT",
            time(10 * MS, 5 * MINUTE),
            |c| &mut c.connect_timeout,
            "Limit to connect to a replica, TLS included.",
        ),
        row(
            "GRAPEVINE_FIRST_BYTE_TIMEOUT",
            time(SECOND, 24 * HOUR),
            |c| &mut c.first_byte_timeout,
            "Limit from the sent request to the answer's headers. Without streaming that is the queue and \
             the whole generation, so it is generous; a hung replica is found by its health check instead.",
        ),
        row(
            "GRAPEVINE_STREAM_FIRST_BYTE_TIMEOUT",
            time(SECOND, 24 * HOUR),
            |c| &mut c.stream_first_byte_timeout,
            "The same for a request with `stream: true`, up to the first event: queue and prefill only. Known \
             where the prompt is read, which is with the policy `affinity`.",
        ),
        row(
            "GRAPEVINE_IDLE_TIMEOUT",
            time(SECOND, 24 * HOUR),
            |c| &mut c.idle_timeout,
            "Limit between two pieces of an answer's body. There is no limit on its total time: streams \
             run as long as they like.",
        ),
        row(
            "GRAPEVINE_POOL_IDLE_TIMEOUT",
            time(100 * MS, HOUR),
            |c| &mut c.pool_idle_timeout,
            "Unused connections to replicas are closed after this. Must be shorter than the engine's own \
             keep-alive (5 s in vLLM, SGLang and llama.cpp), or requests meet closed connections.",
        ),
        row(
            "GRAPEVINE_STREAM_KEEPALIVE",
            time(Duration::ZERO, HOUR),
            |c| &mut c.stream_keepalive,
            "After this much silence of an engine within an event stream, the client gets a comment line, so that \
             proxies on the way do not time out during a long prefill. 0s = never.",
        ),
        row(
            "GRAPEVINE_ENGINE_HTTP2",
            SWITCH,
            |c| &mut c.engine_http2,
            "HTTP/2 without TLS to replicas (h2c with prior knowledge), for engines behind a proxy that speaks \
             it. vLLM, SGLang and llama.cpp do not.",
        ),
        row(
            "GRAPEVINE_DEBUG_HEADERS",
            SWITCH,
            |c| &mut c.debug_headers,
            "Adds matched tokens and the reason of the choice to response headers.",
        ),
    ]
}

fn admission() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_MAX_INFLIGHT",
            Number { min: 0, max: 1_000_000, of: "requests" },
            |c| &mut c.max_inflight,
            "Most requests in flight in this router; above it they wait or get 503. 0 = no limit. Each takes \
             two file descriptors.",
        ),
        row(
            "GRAPEVINE_MAX_INFLIGHT_PER_REPLICA",
            Number { min: 0, max: 1_000_000, of: "requests" },
            |c| &mut c.max_inflight_per_replica,
            "Most requests of this router in flight on one replica; when all are full, they wait or get 503. 0 = no limit: \
             engines have queues of their own.",
        ),
        row(
            "GRAPEVINE_QUEUE_LIMIT",
            Number { min: 0, max: 1_000_000, of: "requests" },
            |c| &mut c.queue_limit,
            "Most requests that wait for a place when the limits above are reached; further ones get 503 with \
             Retry-After at once. They wait before their body is read. 0 = none waits.",
        ),
        row(
            "GRAPEVINE_QUEUE_TIMEOUT",
            time(10 * MS, HOUR),
            |c| &mut c.queue_timeout,
            "Longest wait for a place; then 503 with Retry-After.",
        ),
        row(
            "GRAPEVINE_PRIORITY_HEADER",
            OptionalField,
            |c| &mut c.priority_header,
            "Request header by which clients may say `high`, `normal` or `low`: the order of waiting. Set it \
             only where clients may be trusted with it.",
        ),
        row(
            "GRAPEVINE_RETRY_RATIO",
            Number { min: 0.0, max: 1.0, of: "of requests" },
            |c| &mut c.retry_ratio,
            "Retries on another replica, as a share of requests, besides 10 a second; what is above it gets the \
             first error, so that a failing fleet is not asked twice. Retried is only what no engine accepted.",
        ),
        row(
            "GRAPEVINE_SLOW_START",
            time(Duration::ZERO, HOUR),
            |c| &mut c.slow_start,
            "Time in which a replica that came up grows to its full share of the load. 0s = at once.",
        ),
    ]
}

fn keys() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_CLIENT_KEYS",
            OptionalPath,
            |c| &mut c.client_keys,
            "File with the names and SHA-256 of the keys that clients must send, one a line, watched; `grapevine \
             key NAME` makes one. A line may end in `rate=50 burst=100` (requests per second). Clients' keys are \
             then not passed on. Without it no key is needed.",
        ),
        token(
            "GRAPEVINE_ENGINE_KEY",
            |c| &mut c.engine_key,
            "Sent to every replica as `Authorization: Bearer`, in place of what clients send.",
        ),
        secret(
            "GRAPEVINE_ADMIN_TOKEN",
            |c| &mut c.admin_token,
            "Opens metrics and status on the admin listener (`Authorization: Bearer`). Off loopback both are \
             closed without it; probes are always open.",
        ),
        row(
            "GRAPEVINE_TLS_CERT",
            OptionalPath,
            |c| &mut c.tls_cert,
            "Certificate chain (PEM) of the public listener, read again when it changes. Without it plain HTTP.",
        ),
        row(
            "GRAPEVINE_TLS_KEY",
            OptionalPath,
            |c| &mut c.tls_key,
            "Private key (PEM) of GRAPEVINE_TLS_CERT.",
        ),
        row(
            "GRAPEVINE_ENGINE_CA",
            OptionalPath,
            |c| &mut c.engine_ca,
            "Certificates (PEM) of authorities that are trusted for `https` replicas, besides the system's.",
        ),
    ]
}

fn health() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_HEALTH_INTERVAL",
            time(100 * MS, HOUR),
            |c| &mut c.health_interval,
            "Time between two health probes of a replica. Real requests tell more, and at once.",
        ),
        row(
            "GRAPEVINE_HEALTH_TIMEOUT",
            time(10 * MS, 10 * MINUTE),
            |c| &mut c.health_timeout,
            "Limit of one probe. SGLang's generates a token, so a busy one takes seconds to answer.",
        ),
        row(
            "GRAPEVINE_METRICS_INTERVAL",
            time(Duration::ZERO, HOUR),
            |c| &mut c.metrics_interval,
            "Time between two looks at the metrics of a replica's engine, which tell the size of its cache, \
             that it restarted, and how full it is. 0s = never. An engine without metrics is asked rarely.",
        ),
    ]
}

fn votes() -> Vec<Setting> {
    const TO: f32 = 10_000.0;
    vec![
        row(
            "GRAPEVINE_WEIGHT_PREFIX",
            Number { min: 0.0, max: TO, of: "" },
            |c| &mut c.weights.prefix,
            "Cost of each prompt token that a replica would have to prefill. 12 did best in replays of real \
             traffic: 1 melts under overload, above 16 first tokens come later and hits hardly gain.",
        ),
        row(
            "GRAPEVINE_WEIGHT_QUEUE",
            Number { min: 0.0, max: TO, of: "" },
            |c| &mut c.weights.queue,
            "Cost of each prefill token already queued there: the unit that the others are measured in.",
        ),
        row(
            "GRAPEVINE_WEIGHT_INFLIGHT",
            Number { min: 0.0, max: TO, of: "tokens" },
            |c| &mut c.weights.inflight,
            "Cost of each request in flight there.",
        ),
        row(
            "GRAPEVINE_WEIGHT_KV",
            Number { min: 0.0, max: TO, of: "" },
            |c| &mut c.weights.kv,
            "Share of the prompt's full cost that is added as KV cache use goes from 80 % to 100 %. \
             Nothing for engines that do not say.",
        ),
        row(
            "GRAPEVINE_WEIGHT_HOME",
            Number { min: 0.0, max: 1.0, of: "" },
            |c| &mut c.weights.home,
            "Discount for the home of a prompt that nobody knows, as a share of its cost, so that routers \
             agree on new prefixes without having talked.",
        ),
        row(
            "GRAPEVINE_WEIGHT_SPREAD",
            Number { min: 0.0, max: TO, of: "" },
            |c| &mut c.weights.spread,
            "Surcharge on new prompts for replicas that lately took more than their share of new tokens, \
             so that equal caches turn over equally fast.",
        ),
        row(
            "GRAPEVINE_GUARD_ABS",
            Number { min: 0.0, max: 1_000_000.0, of: "requests" },
            |c| &mut c.weights.guard_abs,
            "Affinity loses its vote for a replica with this many requests in flight above the mean, if \
             GRAPEVINE_GUARD_REL agrees. Big GPUs that run 100 or more at a time can take 64.",
        ),
        row(
            "GRAPEVINE_GUARD_REL",
            Number { min: 1.0, max: 1_000.0, of: "x the mean" },
            |c| &mut c.weights.guard_rel,
            "The relative gap of the guard: both must be exceeded, since the absolute one alone misfires \
             on a busy fleet and this one alone on an idle one.",
        ),
    ]
}

fn tree() -> Vec<Setting> {
    let age = || InMillis(time(100 * MS, 24 * HOUR));
    vec![
        row(
            "GRAPEVINE_TREE_MAX_BOUNDARIES",
            Number { min: 1_000, max: 100_000_000, of: "boundaries" },
            |c| &mut c.tree.max_boundaries,
            "Most prefix boundaries remembered; the oldest go first. A 16 KiB prompt has 40 of them.",
        ),
        row(
            "GRAPEVINE_COUNT_HALF_LIFE",
            age(),
            |c| &mut c.tree.half_life_ms,
            "Half-life of how often a replica was picked for a prefix.",
        ),
        row(
            "GRAPEVINE_IDLE_TTL",
            age(),
            |c| &mut c.tree.idle_ttl_ms,
            "A prefix unused for this long is forgotten, whatever the engine may still hold. A backstop: \
             GRAPEVINE_REPLICA_CAPACITY is what ages prefixes.",
        ),
        row(
            "GRAPEVINE_GRACE",
            InMillis(time(MS, 10 * MINUTE)),
            |c| &mut c.tree.grace_ms,
            "What was picked this recently is believed whatever came after it.",
        ),
        row(
            "GRAPEVINE_BYTES_PER_TOKEN",
            Number { min: 0.5, max: 64.0, of: "bytes" },
            |c| &mut c.bytes_per_token,
            "Bytes of a prompt for one token, to estimate tokens without a tokenizer. English text has \
             about 4.",
        ),
        row(
            "GRAPEVINE_LOOKUP_TIMEOUT",
            time(Duration::from_micros(100), SECOND),
            |c| &mut c.lookup_timeout,
            "How long a request waits for the prefix tree before it is routed by load alone.",
        ),
    ]
}
