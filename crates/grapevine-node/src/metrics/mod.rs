//! What the router counts. Handles are resolved once, so a request only touches atomics and three
//! short locks; what lives in snapshots is read at scrape time ([`scrape`]).

pub mod kind;
pub mod outcome;
pub mod scrape;
pub mod times;

use grapevine_route::{Reason, Shadowed};
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::admin::status::TokenStatus;
use crate::error::RouterError;
use outcome::Outcome;
use times::Times;

/// Prefix of every metric whose name is our own.
pub const PREFIX: &str = "grapevine";

/// Everything in `registry`, as Prometheus reads it.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string fails only when a metric says so, and none of ours does.
    let _ = prometheus_text::encode(&mut text, registry);
    text
}

type Label = [(&'static str, &'static str); 1];

/// Everything that requests count.
#[derive(Debug)]
pub struct Metrics {
    requests: Vec<Counter>,
    errors: Vec<Counter>,
    decisions: Vec<Counter>,
    /// Requests sent to a second replica after the first accepted nothing.
    pub retries: Counter,
    /// Requests whose prefix was looked up in the tree, and that were given a replica. Counted when that is
    /// chosen, as what follows: a request that is refused says nothing of hits.
    pub lookups: Counter,
    /// Of those, not answered in time by the tree.
    pub lookups_missed: Counter,
    /// Of those, placed where a part of the prompt was believed cached. A retry counts no second time.
    pub hits: Counter,
    /// Prompt tokens placed, estimated from bytes.
    pub prompt_tokens: Counter,
    /// Of those, predicted to be cached.
    pub predicted_tokens: Counter,
    /// What a replica drawn at random would have had cached, estimated.
    pub random_tokens: Counter,
    /// What shadow mode found.
    pub shadow: Shadow,
    /// Prompt tokens that answers reported.
    pub reported_prompt_tokens: Counter,
    /// Cached tokens that answers reported.
    pub reported_cached_tokens: Counter,
    /// From the whole request read to a replica chosen.
    pub decision_seconds: Histogram,
    /// How long requests take.
    pub times: Times,
}

impl Metrics {
    /// Registers everything with a registry that has no prefix; `scheme` is what clients speak.
    pub fn new(registry: &mut Registry, scheme: &'static str) -> Self {
        let times = Times::new(registry, scheme);
        let registry = registry.sub_registry_with_prefix(PREFIX);
        let outcomes = Outcome::ALL.map(Outcome::name);
        let errors = RouterError::ALL.map(|e| e.facts().code);
        let reasons = Reason::ALL.map(Reason::name);
        Self {
            requests: family(registry, "requests", "Requests by outcome", "outcome", &outcomes),
            errors: family(registry, "errors", "Answers of the router itself by code", "code", &errors),
            decisions: family(registry, "decisions", "Replicas chosen by reason", "reason", &reasons),
            retries: counter(registry, "retries", "Requests sent to a second replica"),
            lookups: counter(registry, "lookups", "Requests placed whose prefix was looked up in the tree"),
            lookups_missed: counter(registry, "lookups_missed", "Of lookups, those not answered in time"),
            hits: counter(registry, "hits", "Of those looked up, placed where a prefix is believed cached"),
            prompt_tokens: counter(registry, "prompt_tokens", "Prompt tokens placed, estimated"),
            predicted_tokens: counter(registry, "predicted_cached_tokens", "Predicted to be cached"),
            random_tokens: counter(
                registry,
                "random_cached_tokens",
                "Would be cached had the replica been drawn at random, estimated",
            ),
            shadow: Shadow::new(registry),
            reported_prompt_tokens: counter(registry, "reported_prompt_tokens", "As answers reported"),
            reported_cached_tokens: counter(registry, "reported_cached_tokens", "As answers reported"),
            decision_seconds: histogram(registry, "decision_seconds", "Time to choose a replica", 1e-6, 16),
            times,
        }
    }

    /// A request ended.
    pub fn ended(&self, outcome: Outcome) {
        increment(&self.requests, outcome as usize);
    }

    /// The router answered itself.
    pub fn errored(&self, error: RouterError) {
        increment(&self.errors, error as usize);
    }

    /// A replica was chosen.
    pub fn decided(&self, reason: Reason) {
        increment(&self.decisions, reason as usize);
    }

    /// Prompt tokens, however they are counted.
    pub fn tokens(&self) -> TokenStatus {
        TokenStatus {
            prompt: self.prompt_tokens.get(),
            predicted_cached: self.predicted_tokens.get(),
            random_cached: self.random_tokens.get(),
            reported_prompt: self.reported_prompt_tokens.get(),
            reported_cached: self.reported_cached_tokens.get(),
        }
    }

    /// Requests ended, by outcome.
    pub fn requests(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Outcome::ALL.iter().map(|o| o.name()).zip(self.requests.iter().map(Counter::get))
    }

    /// Replicas chosen, by reason.
    pub fn decisions(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL.iter().map(|r| r.name()).zip(self.decisions.iter().map(Counter::get))
    }
}

/// What shadow mode counts: the same requests, placed by load and as affinity would have placed them.
#[derive(Debug)]
pub struct Shadow {
    /// Requests decided.
    pub decisions: Counter,
    /// Of those, placed where affinity would have placed them too.
    pub agreed: Counter,
    /// Prompt tokens placed.
    pub prompt_tokens: Counter,
    /// Predicted to be cached where they went.
    pub done_tokens: Counter,
    /// Predicted to be cached where affinity would have sent them.
    pub affinity_tokens: Counter,
}

impl Shadow {
    fn new(registry: &mut Registry) -> Self {
        Self {
            decisions: counter(registry, "shadow_decisions", "Requests decided in shadow mode"),
            agreed: counter(registry, "shadow_agreed", "Placed where affinity would have placed them too"),
            prompt_tokens: counter(registry, "shadow_prompt_tokens", "Prompt tokens placed in shadow mode"),
            done_tokens: counter(registry, "shadow_done_tokens", "Predicted to be cached where they went"),
            affinity_tokens: counter(
                registry,
                "shadow_affinity_tokens",
                "Predicted to be cached where affinity would have sent them",
            ),
        }
    }

    /// One request was decided twice.
    pub fn count(&self, shadowed: &Shadowed) {
        self.decisions.inc();
        self.agreed.inc_by(u64::from(shadowed.agrees()));
        self.prompt_tokens.inc_by(u64::from(shadowed.done.prompt_tokens));
        self.done_tokens.inc_by(u64::from(shadowed.done.matched_tokens));
        self.affinity_tokens.inc_by(u64::from(shadowed.wanted.matched_tokens));
    }
}

/// Enum discriminants follow the order of `ALL`; a test holds it.
fn increment(counters: &[Counter], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.inc();
    }
}

fn family(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: &[&'static str],
) -> Vec<Counter> {
    let family = Family::<Label, Counter>::default();
    registry.register(name, help, family.clone());
    values.iter().map(|value| family.get_or_create(&[(label, *value)]).clone()).collect()
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn histogram(registry: &mut Registry, name: &str, help: &str, first: f64, doublings: u16) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(first, 2.0, doublings));
    registry.register(name, help, histogram.clone());
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_index_the_counters() {
        assert!(Outcome::ALL.iter().enumerate().all(|(i, o)| *o as usize == i));
        assert!(RouterError::ALL.iter().enumerate().all(|(i, e)| *e as usize == i));
        assert!(Reason::ALL.iter().enumerate().all(|(i, r)| *r as usize == i));
    }

    #[test]
    fn everything_exists_before_it_happens() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, "http");
        metrics.ended(Outcome::Ok);
        let text = text(&registry);
        for line in [
            "grapevine_requests_total{outcome=\"ok\"} 1",
            "grapevine_requests_total{outcome=\"engine_cut\"} 0",
            "grapevine_errors_total{code=\"no_replica\"} 0",
            "grapevine_decisions_total{reason=\"affinity\"} 0",
            "grapevine_decision_seconds_bucket{le=\"1e-06\"} 0",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
