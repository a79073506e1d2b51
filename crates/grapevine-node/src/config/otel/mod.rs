//! The `OTEL_*` variables: which signals are exported, where to and how.
//!
//! What the SDK reads itself (sampler, span limits, resource) goes to it untouched and is only checked. What
//! neither it nor the router supports is refused by name: a variable that is silently ignored costs somebody
//! an afternoon. Nothing is refused while nothing is exported.

mod export;
mod names;

use std::time::Duration;

pub use export::{Export, Protocol};
pub(super) use names::SUPPORTED;

use super::mistake::Mistake;
use super::strings::Strings;
use export::Signal;
use names::{REFUSED, RESTRICTED};

/// What is exported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtelConfig {
    /// Spans; `None` = off.
    pub traces: Option<Export>,
    /// Metrics, pushed; `None` = off.
    pub metrics: Option<Export>,
    /// Log records; `None` = off.
    pub logs: Option<Export>,
    /// How spans are batched.
    pub spans_batch: Batching,
    /// How log records are batched.
    pub logs_batch: Batching,
    /// Time between two pushes of metrics.
    pub metrics_interval: Duration,
}

/// How much may wait, and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Items that may wait; more are dropped and counted.
    pub queue: usize,
    /// Items in one export, at most.
    pub batch: usize,
    /// Longest wait for a batch to become full.
    pub delay: Duration,
}

/// The defaults of the OpenTelemetry specification.
impl Default for OtelConfig {
    fn default() -> Self {
        let batching = |delay| Batching { queue: 2_048, batch: 512, delay };
        Self {
            traces: None,
            metrics: None,
            logs: None,
            spans_batch: batching(Duration::from_secs(5)),
            logs_batch: batching(Duration::from_secs(1)),
            metrics_interval: Duration::from_secs(60),
        }
    }
}

impl OtelConfig {
    /// Where every signal goes, by the variable that says so.
    pub(super) fn exports(&self) -> [(&'static str, Option<&Export>); 3] {
        [
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", self.traces.as_ref()),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", self.metrics.as_ref()),
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", self.logs.as_ref()),
        ]
    }
}

/// Reads all of it.
pub(super) fn read(env: &dyn Strings, mistakes: &mut Vec<Mistake>) -> OtelConfig {
    let mut config = OtelConfig::default();
    if get(env, "OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return config;
    }
    let before = mistakes.len();
    config.traces = export::read(env, Signal::Traces, mistakes);
    config.metrics = export::read(env, Signal::Metrics, mistakes);
    config.logs = export::read(env, Signal::Logs, mistakes);
    let off = config.exports().iter().all(|(_, export)| export.is_none());
    if off && mistakes.len() == before {
        return config;
    }
    batching(env, "OTEL_BSP", &mut config.spans_batch, mistakes);
    batching(env, "OTEL_BLRP", &mut config.logs_batch, mistakes);
    if let Some(ms) = number(env, "OTEL_METRIC_EXPORT_INTERVAL", 100..=86_400_000, mistakes) {
        config.metrics_interval = Duration::from_millis(ms);
    }
    refuse(env, mistakes);
    config
}

fn batching(env: &dyn Strings, prefix: &str, batching: &mut Batching, mistakes: &mut Vec<Mistake>) {
    let mut read = |name, range| number(env, &format!("{prefix}_{name}"), range, mistakes);
    let queue = read("MAX_QUEUE_SIZE", 1..=1_000_000);
    let batch = read("MAX_EXPORT_BATCH_SIZE", 1..=100_000);
    let delay = read("SCHEDULE_DELAY", 0..=3_600_000);
    batching.queue = queue.map_or(batching.queue, |n| n as usize);
    batching.batch = batch.map_or(batching.batch, |n| n as usize).min(batching.queue);
    batching.delay = delay.map_or(batching.delay, Duration::from_millis);
}

/// A variable's value. Empty is unset, by OpenTelemetry's rules; so is what is not UTF-8.
fn get(env: &dyn Strings, name: &str) -> Option<String> {
    env.get(name).ok().flatten().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn number(
    env: &dyn Strings,
    name: &str,
    range: std::ops::RangeInclusive<u64>,
    mistakes: &mut Vec<Mistake>,
) -> Option<u64> {
    let text = get(env, name)?;
    let number = text.parse().ok().filter(|number| range.contains(number));
    if number.is_none() {
        let problem = format!("`{text}` is not a number from {} to {}", range.start(), range.end());
        mistakes.push(Mistake::new(name, problem));
    }
    number
}

fn refuse(env: &dyn Strings, mistakes: &mut Vec<Mistake>) {
    for (name, problem) in REFUSED {
        if get(env, name).is_some() {
            mistakes.push(Mistake::new(*name, *problem));
        }
    }
    for (name, allowed, advice) in RESTRICTED {
        if let Some(value) = get(env, name).filter(|value| !allowed.contains(&value.as_str())) {
            mistakes.push(Mistake::new(*name, format!("`{value}` is not supported: {advice}")));
        }
    }
    if let Some(value) = get(env, "OTEL_PROPAGATORS").filter(|value| !is_w3c(value)) {
        let problem = format!("`{value}` is not supported: only `tracecontext,baggage` is spoken");
        mistakes.push(Mistake::new("OTEL_PROPAGATORS", problem));
    }
    let ratio = |text: String| text.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio));
    if get(env, "OTEL_TRACES_SAMPLER").is_some_and(|sampler| sampler.ends_with("traceidratio"))
        && !get(env, "OTEL_TRACES_SAMPLER_ARG").is_some_and(ratio)
    {
        mistakes
            .push(Mistake::new("OTEL_TRACES_SAMPLER_ARG", "a ratio from 0 to 1 is needed by the sampler"));
    }
}

/// Both, in any order: baggage passes through in any case, so it cannot be left out.
fn is_w3c(propagators: &str) -> bool {
    let mut names: Vec<_> = propagators.split(',').map(str::trim).collect();
    names.sort_unstable();
    names.dedup();
    names == ["baggage", "tracecontext"]
}

#[cfg(test)]
mod tests;
