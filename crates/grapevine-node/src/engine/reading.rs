//! From an engine's metrics to the figures that routing uses.

use std::collections::BTreeMap;

use super::kinds::Kind;
use super::table::{Figure, Names, Row, SHARD_LABELS, Take, rows};
use super::text::{Sample, samples};

/// Believable sizes of a cache, tokens.
const CACHE_TOKENS: std::ops::RangeInclusive<f64> = 16.0..=1e10;

/// A share may be above 1 by rounding, not by more.
const SHARE_SLACK: f64 = 1.01;

/// What an engine said of itself. `None`: it did not say, or nothing believable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// What it is.
    pub kind: Kind,
    /// Requests that wait.
    pub waiting: Option<f64>,
    /// Requests that run.
    pub running: Option<f64>,
    /// Share of the KV cache that running requests use, 0..=1. An idle engine has 0 here, however
    /// full its prefix cache is.
    pub kv_use: Option<f64>,
    /// Prompt tokens looked up in the prefix cache since its start.
    pub prefix_queries: Option<f64>,
    /// Of those, found.
    pub prefix_hits: Option<f64>,
    /// Tokens that its cache holds.
    pub cache_tokens: Option<u64>,
    /// It sleeps: its cache is given back.
    pub asleep: Option<bool>,
    /// When its process began: of no unit that all engines share, but larger after a restart.
    pub started: Option<f64>,
}

impl Reading {
    /// Reads Prometheus text. `None` when nothing in it is a sample: it is something else.
    pub fn of_text(text: &[u8], names: &Names) -> Option<Self> {
        let mut found = Found::default();
        let mut any = false;
        for sample in samples(text) {
            any = true;
            if let (Some(figure), Some(value)) = (names.figure(sample.name), believable(sample.value)) {
                found.add(0, figure, shard_of(&sample), value);
            }
            for (rank, row) in rows(sample.name) {
                if let Some(value) = value_of(&sample, row) {
                    found.is(row.kind);
                    found.add(*rank, row.figure, shard_of(&sample), value);
                }
            }
        }
        any.then(|| found.reading())
    }
}

/// Finite and not negative.
fn believable(value: f64) -> Option<f64> {
    Some(value).filter(|value| value.is_finite() && *value >= 0.0)
}

/// What a row makes of a sample, if it is believable.
fn value_of(sample: &Sample<'_>, row: &Row) -> Option<f64> {
    let value = match row.take {
        Take::Value => Some(sample.value),
        Take::Where(label, wanted) => (sample.label(label) == Some(wanted)).then_some(sample.value),
        Take::CacheLabels => cache_of_labels(sample),
    };
    value.and_then(believable)
}

/// vLLM says its cache's size in labels; the newer one also counts caches of several layer groups.
fn cache_of_labels(sample: &Sample<'_>) -> Option<f64> {
    let number = |label| sample.label(label)?.parse::<f64>().ok().filter(|n| *n > 0.0);
    let blocks = || Some(number("num_gpu_blocks")? * number("block_size")?);
    number("kv_cache_size_tokens").or_else(blocks)
}

fn shard_of<'a>(sample: &Sample<'a>) -> &'a str {
    SHARD_LABELS.iter().find_map(|label| sample.label(label)).unwrap_or_default()
}

/// What was found of each figure: the rank of its name, and the largest value of each shard.
#[derive(Default)]
struct Found<'a> {
    kind: Kind,
    figures: BTreeMap<Figure, (usize, BTreeMap<&'a str, f64>)>,
}

impl<'a> Found<'a> {
    fn is(&mut self, kind: Kind) {
        if kind != Kind::Plain {
            self.kind = kind;
        }
    }

    fn add(&mut self, rank: usize, figure: Figure, shard: &'a str, value: f64) {
        let (best, shards) = self.figures.entry(figure).or_insert_with(|| (rank, BTreeMap::new()));
        if rank > *best {
            return;
        }
        if rank < *best {
            *best = rank;
            shards.clear();
        }
        let largest = shards.entry(shard).or_insert(value);
        *largest = largest.max(value);
    }

    /// Of all shards; nothing when it is beyond what can be counted.
    fn sum(&self, figure: Figure) -> Option<f64> {
        self.figures.get(&figure).map(|(_, shards)| shards.values().sum()).and_then(believable)
    }

    fn mean(&self, figure: Figure) -> Option<f64> {
        let (_, shards) = self.figures.get(&figure)?;
        self.sum(figure).map(|sum| sum / shards.len() as f64)
    }

    fn reading(&self) -> Reading {
        let blocks = || Some(self.sum(Figure::CacheBlocks)? * self.mean(Figure::BlockTokens)?);
        let cache = self.sum(Figure::CacheTokens).or_else(blocks);
        Reading {
            kind: self.kind,
            waiting: self.sum(Figure::Waiting),
            running: self.sum(Figure::Running),
            kv_use: self.mean(Figure::KvUse).filter(|share| *share <= SHARE_SLACK).map(|s| s.min(1.0)),
            prefix_queries: self.sum(Figure::PrefixQueries),
            prefix_hits: self.sum(Figure::PrefixHits),
            cache_tokens: cache.filter(|tokens| CACHE_TOKENS.contains(tokens)).map(|tokens| tokens as u64),
            asleep: self.mean(Figure::Awake).map(|awake| awake < 0.5),
            started: self.mean(Figure::Started).filter(|at| *at > 0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reading {
        Reading::of_text(text.as_bytes(), &Names::default()).unwrap()
    }

    #[test]
    fn vllm_as_recorded() {
        let reading = read(
            r#"# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7959745136e+09
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 1.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 7.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="tiny",sleep_state="discard_all"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 10019.0
vllm:prefix_cache_queries_created{engine="0",model_name="tiny"} 1.795974629769444e+09
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 6304.0
vllm:cache_config_info{block_size="32",engine="0",num_gpu_blocks="512",sliding_window="None"} 1.0
"#,
        );
        let expected = Reading {
            kind: Kind::Vllm,
            waiting: Some(1.0),
            running: Some(2.0),
            kv_use: Some(0.25),
            prefix_queries: Some(10_019.0),
            prefix_hits: Some(6_304.0),
            cache_tokens: Some(16_384),
            asleep: Some(false),
            started: Some(1_795_974_513.6),
        };
        assert_eq!(reading, expected);
        let sized =
            r#"vllm:cache_config_info{block_size="32",kv_cache_size_tokens="16000",num_gpu_blocks="512"} 1"#;
        assert_eq!(read(sized).cache_tokens, Some(16_000));
        let unknown = r#"vllm:cache_config_info{block_size="32",num_gpu_blocks="None"} 1.0"#;
        assert_eq!(read(unknown).cache_tokens, None);
    }

    #[test]
    fn shards_add_up_and_what_repeats_does_not() {
        let reading = read(
            r#"vllm:num_requests_waiting{engine="0",model_name="a"} 3
vllm:num_requests_waiting{engine="1",model_name="a"} 4
vllm:kv_cache_usage_perc{engine="0"} 0.2
vllm:kv_cache_usage_perc{engine="1"} 0.4
vllm:gpu_cache_usage_perc{engine="1"} 0.9
"#,
        );
        assert_eq!(reading.waiting, Some(7.0));
        assert!((reading.kv_use.unwrap() - 0.3).abs() < 1e-9, "the mean, of the newer name");
        let ranks = read(
            "sglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"0\"} 5\nsglang:num_queue_reqs{dp_rank=\"0\",tp_rank=\"1\"} 5\n",
        );
        assert_eq!(ranks.waiting, Some(5.0));
    }

    #[test]
    fn every_kind_gives_what_it_has() {
        let sglang = read(
            "sglang:num_running_reqs{tp_rank=\"0\"} 3.0\nsglang:num_queue_reqs 2\nsglang:token_usage 0.5\n\
             sglang:max_total_num_tokens 120000\nsglang:page_size 16\nsglang:num_pages 10\n",
        );
        assert_eq!((sglang.kind, sglang.cache_tokens), (Kind::Sglang, Some(120_000)));
        assert_eq!((sglang.running, sglang.waiting, sglang.kv_use), (Some(3.0), Some(2.0), Some(0.5)));
        let llama = read("llamacpp:requests_processing 1\nllamacpp:requests_deferred 0\n");
        assert_eq!((llama.kind, llama.waiting, llama.kv_use), (Kind::LlamaCpp, Some(0.0), None));
        let tgi = read("tgi_queue_size 9\ntgi_batch_current_size 8\n");
        assert_eq!((tgi.kind, tgi.waiting, tgi.running), (Kind::Tgi, Some(9.0), Some(8.0)));
        let trt = read(
            "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_tokens_per_block 32\ntrtllm_num_requests_waiting 4\n",
        );
        assert_eq!((trt.kind, trt.cache_tokens, trt.waiting), (Kind::TensorRt, Some(3_200), Some(4.0)));
        let triton = read(
            r#"nv_trt_llm_request_metrics{model="m",request_type="waiting",version="1"} 6
nv_trt_llm_request_metrics{model="m",request_type="scheduled",version="1"} 5
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"} 50
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"} 64
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} 0.5"#,
        );
        assert_eq!((triton.kind, triton.waiting, triton.running), (Kind::Triton, Some(6.0), Some(5.0)));
        assert_eq!((triton.cache_tokens, triton.kv_use), (Some(3_200), Some(0.5)));
        assert_eq!(read("up 1").kind, Kind::Plain);
    }

    #[test]
    fn an_operators_names_come_first() {
        let names = Names(vec![
            (Figure::Waiting, "my_queue".to_owned()),
            (Figure::KvUse, "vllm:other_usage".to_owned()),
        ]);
        let text = "my_queue 7\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5\nmy_queue NaN\n";
        let reading = Reading::of_text(text.as_bytes(), &names).unwrap();
        assert_eq!((reading.waiting, reading.kv_use, reading.kind), (Some(7.0), Some(0.5), Kind::Vllm));
    }

    #[test]
    fn unknown_is_not_zero() {
        let odd = read(
            "vllm:num_requests_waiting NaN\nvllm:num_requests_running -1\nvllm:kv_cache_usage_perc 73\n\
             process_start_time_seconds 0\nvllm:prefix_cache_hits_total +Inf\n",
        );
        assert_eq!(odd, Reading { kind: odd.kind, ..Reading::default() });
        let beyond = read(
            "vllm:num_requests_waiting{engine=\"0\"} 1.7e308\nvllm:num_requests_waiting{engine=\"1\"} 1.7e308\n",
        );
        assert_eq!(beyond.waiting, None, "a sum that is no number");
        for other in ["", "<html></html>", r#"{"a": 1}"#, "# HELP x y\n"] {
            assert_eq!(Reading::of_text(other.as_bytes(), &Names::default()), None, "{other}");
        }
    }
}
