//! The rows about replicas: where they come from, what they are, how they are chosen.

use std::time::Duration;

use grapevine_route::Policy;

use crate::config::Mode;
use crate::config::replicas::Replicas;
use crate::config::scalar::{Choice, Number, OptionalPath, time};
use crate::config::setting::{Setting, row};
use crate::config::sources::{DnsNames, DnsServers, KubernetesList, MetricNames};
use crate::engine::Kind;

const POLICIES: Choice<Policy> = Choice(&[
    ("affinity", Policy::Affinity),
    ("round-robin", Policy::RoundRobin),
    ("random", Policy::Random),
    ("least-loaded", Policy::LeastLoaded),
]);

const MODES: Choice<Mode> = Choice(&[("route", Mode::Route), ("shadow", Mode::Shadow)]);

const KINDS: Choice<Option<Kind>> = Choice(&[
    ("auto", None),
    ("vllm", Some(Kind::Vllm)),
    ("sglang", Some(Kind::Sglang)),
    ("llama.cpp", Some(Kind::LlamaCpp)),
    ("tgi", Some(Kind::Tgi)),
    ("tensorrt-llm", Some(Kind::TensorRt)),
    ("triton", Some(Kind::Triton)),
    ("plain", Some(Kind::Plain)),
]);

pub(super) fn rows() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_REPLICAS",
            Replicas,
            |c| &mut c.replicas,
            "Base URLs of the engine replicas, each optionally with a name for logs, metrics and \
             headers: `http://10.0.0.1:8000,gpu-2=http://10.0.0.2:8000`. Without a name it is called \
             `host:port`. Required, unless replicas are found by one of the next settings.",
        ),
        row(
            "GRAPEVINE_REPLICAS_FILE",
            OptionalPath,
            |c| &mut c.replicas_file,
            "File that lists replicas as YAML or JSON, with `url` and, if wanted, `name`, `weight`, `models`, \
             `kind` and `key`; watched. A bad file leaves the old replicas in place.",
        ),
        row(
            "GRAPEVINE_REPLICAS_DNS",
            DnsNames,
            |c| &mut c.replicas_dns,
            "Names in DNS; each address behind one is a replica: `http://engines.example:8000` by A and AAAA \
             records, `srv+http://_http._tcp.engines.example` by SRV records, which say port and weight. Asked \
             again when a record's TTL ends, at most once a second and at least once a minute. Without an \
             answer the old replicas stay.",
        ),
        row(
            "GRAPEVINE_DNS_SERVERS",
            DnsServers,
            |c| &mut c.dns_servers,
            "DNS servers to ask for GRAPEVINE_REPLICAS_DNS instead of the system's: a Consul agent, for example, \
             `127.0.0.1:8600`.",
        ),
        row(
            "GRAPEVINE_REPLICAS_KUBERNETES",
            KubernetesList,
            |c| &mut c.replicas_kubernetes,
            "Services of Kubernetes whose endpoints are replicas: `vllm`, `inference/vllm:http`, or by the labels \
             of their EndpointSlices `inference/{app=vllm}:8000`. The router's account must be allowed to list and \
             watch `endpointslices` there. Needs a build with the feature `kubernetes`, as the images are.",
        ),
        row(
            "GRAPEVINE_MODELS_INTERVAL",
            time(Duration::ZERO, Duration::from_secs(3_600)),
            |c| &mut c.models_interval,
            "Time between two questions to a replica for its models (`/v1/models`), which decide where a request \
             may go; until the first answer, after a restart and when a model is missed it is asked at once. \
             0s = never: then every replica without a list of its own serves every model.",
        ),
        row(
            "GRAPEVINE_ENGINE_KIND",
            KINDS,
            |c| &mut c.engine_kind,
            "What the engines are. `auto` finds out from what each says of itself; a replica's own `kind` \
             comes first.",
        ),
        row(
            "GRAPEVINE_METRIC_NAMES",
            MetricNames,
            |c| &mut c.metric_names,
            "Metrics of the engines that are called otherwise than this version knows: \
             `waiting=my_queue_size,kv-use=my_kv_usage`. They come before the known names.",
        ),
        row(
            "GRAPEVINE_POLICY",
            POLICIES,
            |c| &mut c.policy,
            "How a replica is chosen. `affinity` follows the prompt's prefix against load; the others \
             are baselines to compare with.",
        ),
        row(
            "GRAPEVINE_MODE",
            MODES,
            |c| &mut c.mode,
            "`shadow` routes by load alone, and counts what affinity would have found cached: to see what \
             it is worth before it decides anything.",
        ),
        row(
            "GRAPEVINE_REPLICA_CAPACITY",
            Number { min: 1_000, max: 1_000_000_000, of: "tokens" },
            |c| &mut c.tree.default_capacity_tokens,
            "Tokens that a replica's KV cache holds, until the engine's own metrics say better. A prefix \
             last used more new tokens ago than this is taken for evicted.",
        ),
    ]
}
