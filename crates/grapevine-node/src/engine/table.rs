//! The names of metrics, per kind of engine. Where a kind has several names for one figure (names
//! drift between versions), the first one that is present counts.
//!
//! Sources: vLLM `v1/metrics`, SGLang `observability/metrics_collector.py`, llama.cpp's server
//! README, TGI's documentation, TensorRT-LLM's Prometheus exporter and Triton's backend.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::kinds::Kind;

/// What a metric tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Requests that wait.
    Waiting,
    /// Requests that run.
    Running,
    /// Share of the KV cache that running requests use.
    KvUse,
    /// Prompt tokens looked up in the prefix cache.
    PrefixQueries,
    /// Of those, found.
    PrefixHits,
    /// Tokens that the cache holds.
    CacheTokens,
    /// Blocks that the cache holds.
    CacheBlocks,
    /// Tokens in a block.
    BlockTokens,
    /// 1 while the engine is awake.
    Awake,
    /// When the process began.
    Started,
}

/// How a sample gives its figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Take {
    /// By its value.
    Value,
    /// By its value, if this label has this value.
    Where(&'static str, &'static str),
    /// By its labels: vLLM's cache configuration.
    CacheLabels,
}

/// One name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) figure: Figure,
    pub(super) name: &'static str,
    pub(super) take: Take,
}

const fn row(kind: Kind, figure: Figure, name: &'static str) -> Row {
    Row { kind, figure, name, take: Take::Value }
}

const fn labelled(figure: Figure, name: &'static str, label: &'static str, value: &'static str) -> Row {
    Row { kind: Kind::Triton, figure, name, take: Take::Where(label, value) }
}

/// Triton's metrics of TensorRT-LLM.
const REQUESTS: &str = "nv_trt_llm_request_metrics";
const BLOCKS: &str = "nv_trt_llm_kv_cache_block_metrics";

/// All names.
pub(super) const TABLE: &[Row] = &[
    row(Kind::Vllm, Figure::Waiting, "vllm:num_requests_waiting"),
    row(Kind::Vllm, Figure::Running, "vllm:num_requests_running"),
    row(Kind::Vllm, Figure::KvUse, "vllm:kv_cache_usage_perc"),
    row(Kind::Vllm, Figure::KvUse, "vllm:gpu_cache_usage_perc"),
    row(Kind::Vllm, Figure::PrefixQueries, "vllm:prefix_cache_queries_total"),
    row(Kind::Vllm, Figure::PrefixQueries, "vllm:prefix_cache_queries"),
    row(Kind::Vllm, Figure::PrefixQueries, "vllm:gpu_prefix_cache_queries_total"),
    row(Kind::Vllm, Figure::PrefixHits, "vllm:prefix_cache_hits_total"),
    row(Kind::Vllm, Figure::PrefixHits, "vllm:prefix_cache_hits"),
    row(Kind::Vllm, Figure::PrefixHits, "vllm:gpu_prefix_cache_hits_total"),
    Row {
        kind: Kind::Vllm,
        figure: Figure::CacheTokens,
        name: "vllm:cache_config_info",
        take: Take::CacheLabels,
    },
    Row {
        kind: Kind::Vllm,
        figure: Figure::Awake,
        name: "vllm:engine_sleep_state",
        take: Take::Where("sleep_state", "awake"),
    },
    row(Kind::Sglang, Figure::Waiting, "sglang:num_queue_reqs"),
    row(Kind::Sglang, Figure::Running, "sglang:num_running_reqs"),
    row(Kind::Sglang, Figure::KvUse, "sglang:token_usage"),
    row(Kind::Sglang, Figure::PrefixQueries, "sglang:prompt_tokens_total"),
    row(Kind::Sglang, Figure::PrefixHits, "sglang:cached_tokens_total"),
    row(Kind::Sglang, Figure::CacheTokens, "sglang:max_total_num_tokens"),
    row(Kind::Sglang, Figure::CacheBlocks, "sglang:num_pages"),
    row(Kind::Sglang, Figure::BlockTokens, "sglang:page_size"),
    row(Kind::LlamaCpp, Figure::Waiting, "llamacpp:requests_deferred"),
    row(Kind::LlamaCpp, Figure::Running, "llamacpp:requests_processing"),
    row(Kind::LlamaCpp, Figure::KvUse, "llamacpp:kv_cache_usage_ratio"),
    row(Kind::LlamaCpp, Figure::PrefixQueries, "llamacpp:prompt_tokens_total"),
    row(Kind::LlamaCpp, Figure::PrefixHits, "llamacpp:prompt_tokens_cached_total"),
    row(Kind::Tgi, Figure::Waiting, "tgi_queue_size"),
    row(Kind::Tgi, Figure::Running, "tgi_batch_current_size"),
    row(Kind::Tgi, Figure::PrefixQueries, "tgi_request_input_length_sum"),
    row(Kind::TensorRt, Figure::Waiting, "trtllm_num_requests_waiting"),
    row(Kind::TensorRt, Figure::Running, "trtllm_num_requests_running"),
    row(Kind::TensorRt, Figure::KvUse, "trtllm_kv_cache_utilization"),
    row(Kind::TensorRt, Figure::CacheBlocks, "trtllm_kv_cache_max_blocks"),
    row(Kind::TensorRt, Figure::BlockTokens, "trtllm_kv_cache_tokens_per_block"),
    labelled(Figure::Waiting, REQUESTS, "request_type", "waiting"),
    labelled(Figure::Running, REQUESTS, "request_type", "scheduled"),
    labelled(Figure::KvUse, BLOCKS, "kv_cache_block_type", "fraction"),
    labelled(Figure::CacheBlocks, BLOCKS, "kv_cache_block_type", "max"),
    labelled(Figure::BlockTokens, BLOCKS, "kv_cache_block_type", "tokens_per"),
    row(Kind::Plain, Figure::Started, "process_start_time_seconds"),
];

/// Labels that tell the shards behind one address apart: data-parallel ranks, whose figures add up.
/// Other labels (model, tensor-parallel rank) tell the same thing several times.
pub(super) const SHARD_LABELS: [&str; 2] = ["engine", "dp_rank"];

/// Where the metrics are: nearly always at the first path; TensorRT-LLM has JSON there.
pub(super) const METRICS_PATHS: [&str; 2] = ["/metrics", "/prometheus/metrics"];

impl Figure {
    /// Those that operators may name metrics for, as they write them.
    pub const NAMED: [(&str, Self); 7] = [
        ("waiting", Self::Waiting),
        ("running", Self::Running),
        ("kv-use", Self::KvUse),
        ("prefix-queries", Self::PrefixQueries),
        ("prefix-hits", Self::PrefixHits),
        ("cache-tokens", Self::CacheTokens),
        ("started", Self::Started),
    ];
}

/// Metrics that an operator names: they come before those of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub Vec<(Figure, String)>);

impl Names {
    /// What the metric called `name` tells.
    pub(super) fn figure(&self, name: &str) -> Option<Figure> {
        self.0.iter().find(|(_, given)| given == name).map(|(figure, _)| *figure)
    }
}

/// The rows of a name, with their rank: a lower one counts before a higher one. Rank 0 is for
/// [`Names`].
pub(super) fn rows(name: &str) -> &'static [(usize, &'static Row)] {
    static BY_NAME: LazyLock<HashMap<&'static str, Vec<(usize, &'static Row)>>> = LazyLock::new(|| {
        let mut by_name = HashMap::<_, Vec<_>>::new();
        for (rank, row) in TABLE.iter().enumerate().map(|(i, row)| (i + 1, row)) {
            by_name.entry(row.name).or_default().push((rank, row));
        }
        by_name
    });
    BY_NAME.get(name).map_or(&[], Vec::as_slice)
}
