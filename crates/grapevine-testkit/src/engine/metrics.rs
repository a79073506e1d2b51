//! `/metrics` in Prometheus text, with vLLM's names and labels.

use std::fmt::Write as _;

use super::config::EngineConfig;
use super::stats::{Stats, Ttft};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// What is written.
pub(crate) struct Scrape<'a> {
    pub(crate) config: &'a EngineConfig,
    pub(crate) stats: &'a Stats,
    pub(crate) ttft: &'a Ttft,
    /// Unix time of the (re)start, seconds.
    pub(crate) started: f64,
    /// Gauges to show instead of the real ones: running, waiting, usage.
    pub(crate) frozen: Option<(u64, u64, f64)>,
}

impl Scrape<'_> {
    pub(crate) fn render(&self) -> String {
        let mut text = Text::new(self.config);
        text.head(
            "process_start_time_seconds",
            "gauge",
            "Start time of the process since unix epoch in seconds.",
        );
        let _ = writeln!(text.out, "process_start_time_seconds {:?}", self.started);
        self.gauges(&mut text);
        self.counters(&mut text);
        self.first_token(&mut text);
        self.cache_config(&mut text);
        text.out
    }

    fn gauges(&self, text: &mut Text) {
        let capacity = self.stats.blocks_capacity.max(1) as f64;
        let usage = (self.stats.blocks_in_use as f64 / capacity).min(1.0);
        let (running, waiting, usage) =
            self.frozen.unwrap_or((self.stats.running, self.stats.waiting, usage));
        text.one(
            "num_requests_running",
            "gauge",
            "Number of requests in model execution batches.",
            running as f64,
        );
        text.one(
            "num_requests_waiting",
            "gauge",
            "Number of requests waiting to be processed.",
            waiting as f64,
        );
        text.one("kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", usage);
    }

    fn counters(&self, text: &mut Text) {
        let block = self.config.block_tokens();
        let hits = (self.stats.blocks_hit * block) as f64;
        let queries = self.stats.prompt_tokens as f64;
        let generated = self.stats.generated_tokens as f64;
        let mut count = |name: &str, help: &str, value| text.one(name, "counter", help, value);
        count("prefix_cache_queries_total", "Prefix cache queries, in number of queried tokens.", queries);
        count("prefix_cache_hits_total", "Prefix cache hits, in number of cached tokens.", hits);
        count("prompt_tokens_total", "Number of prefill tokens processed.", queries);
        count("prompt_tokens_cached_total", "Number of cached prompt tokens.", hits);
        count("generation_tokens_total", "Number of generation tokens processed.", generated);
        count("num_preemptions_total", "Cumulative number of preemption from the engine.", 0.0);
        let name = "vllm:request_success_total";
        text.head(name, "counter", "Count of successfully processed requests.");
        let finished = [
            ("stop", self.stats.finished_stop),
            ("length", self.stats.finished_length),
            ("abort", 0), // vLLM leaves it at 0 when clients leave
            ("error", 0),
        ];
        for (reason, value) in finished {
            let labels = format!(r#"engine="0",finished_reason="{reason}",model_name="{}""#, text.model);
            text.sample(name, &labels, value as f64);
        }
    }

    fn first_token(&self, text: &mut Text) {
        let name = "vllm:time_to_first_token_seconds";
        text.head(name, "histogram", "Histogram of time to first token in seconds.");
        let bucket = format!("{name}_bucket");
        let labels = |text: &Text, le: &str| format!(r#"engine="0",le="{le}",model_name="{}""#, text.model);
        for (bound, count) in self.ttft.buckets() {
            let labels = labels(text, &format!("{bound:?}"));
            text.sample(&bucket, &labels, count as f64);
        }
        let labels = labels(text, "+Inf");
        text.sample(&bucket, &labels, self.ttft.count as f64);
        let labels = text.labels();
        text.sample(&format!("{name}_count"), &labels, self.ttft.count as f64);
        text.sample(&format!("{name}_sum"), &labels, self.ttft.sum_seconds);
    }

    fn cache_config(&self, text: &mut Text) {
        let block = self.config.block_tokens();
        let blocks = self.config.cache_blocks as u64;
        let labels = format!(
            r#"block_size="{block}",cache_dtype="auto",enable_prefix_caching="{}",engine="0",kv_cache_size_tokens="{}",num_gpu_blocks="{blocks}""#,
            if blocks > 0 { "True" } else { "False" },
            block * blocks,
        );
        text.head("vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
        text.sample("vllm:cache_config_info", &labels, 1.0);
    }
}

struct Text {
    out: String,
    model: String,
}

impl Text {
    fn new(config: &EngineConfig) -> Self {
        let model = config.models.first().map(String::as_str).unwrap_or_default();
        let model = model.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
        Self { out: String::with_capacity(8192), model }
    }

    fn labels(&self) -> String {
        format!(r#"engine="0",model_name="{}""#, self.model)
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Values as Python writes floats: `0.0`.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.out, "{name}{{{labels}}} {value:?}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        let name = format!("vllm:{name}");
        let labels = self.labels();
        self.head(&name, kind, help);
        self.sample(&name, &labels, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(frozen: Option<(u64, u64, f64)>) -> String {
        let stats = Stats {
            blocks_queried: 10,
            blocks_hit: 4,
            prompt_tokens: 163,
            running: 2,
            blocks_capacity: 8,
            ..Stats::default()
        };
        let mut ttft = Ttft::default();
        ttft.observe(0.03);
        let config = EngineConfig { cache_blocks: 8, ..EngineConfig::default() };
        Scrape { config: &config, stats: &stats, ttft: &ttft, started: 1_795_974_513.6, frozen }.render()
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample() {
        for line in render(None).lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                assert!(comment.starts_with("HELP ") || comment.starts_with("TYPE "), "{line}");
                continue;
            }
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let bare = name.split('{').next().unwrap();
            assert!(bare.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c)), "{line}");
            assert_eq!(name.contains('{'), name.ends_with('}'), "{line}");
        }
    }

    #[test]
    fn names_and_values_are_vllms() {
        let text = render(None);
        for line in [
            r#"vllm:num_requests_running{engine="0",model_name="mock-model"} 2.0"#,
            r#"vllm:prefix_cache_queries_total{engine="0",model_name="mock-model"} 163.0"#,
            r#"vllm:prefix_cache_hits_total{engine="0",model_name="mock-model"} 64.0"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="0.02",model_name="mock-model"} 0.0"#,
            r#"vllm:time_to_first_token_seconds_bucket{engine="0",le="0.04",model_name="mock-model"} 1.0"#,
            r#"vllm:request_success_total{engine="0",finished_reason="length",model_name="mock-model"} 0.0"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}");
        }
        assert!(text.contains(r#"block_size="16""#) && text.contains(r#"num_gpu_blocks="8""#));
    }

    #[test]
    fn frozen_gauges_hide_the_real_ones() {
        assert!(
            render(Some((7, 1, 0.5)))
                .contains(r#"num_requests_running{engine="0",model_name="mock-model"} 7.0"#)
        );
    }
}
