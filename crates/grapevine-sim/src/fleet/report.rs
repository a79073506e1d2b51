//! What a run of several seeds came to.

use std::fmt::Write as _;

use serde_json::{Value, json};
use xxhash_rust::xxh3::Xxh3;

use super::args::FleetArgs;
use super::outcome::{Outcome, share};
use crate::replay::engine::Micros;

/// The figures of all seeds together.
#[derive(Clone, Debug)]
pub struct FleetReport {
    args: FleetArgs,
    outcomes: Vec<Outcome>,
    spread_us: Vec<Micros>,
}

impl FleetReport {
    /// Sums up; the order of the seeds does not matter.
    pub fn new(args: &FleetArgs, mut outcomes: Vec<Outcome>) -> Self {
        outcomes.sort_by_key(|outcome| outcome.seed);
        let mut spread_us: Vec<Micros> = outcomes.iter().flat_map(|o| o.spread_us.iter().copied()).collect();
        spread_us.sort_unstable();
        Self { args: args.clone(), outcomes, spread_us }
    }

    /// Things that must never be, in all seeds.
    pub fn violated(&self) -> u64 {
        self.sum(|outcome| outcome.violated)
    }

    /// Virtual milliseconds in which this share of new prefixes was known to every peer.
    pub fn convergence_ms(&self, quantile: f64) -> f64 {
        let rank = (self.spread_us.len() as f64 * quantile).ceil() as usize;
        self.spread_us.get(rank.saturating_sub(1)).map_or(0.0, |&us| us as f64 / 1_000.0)
    }

    fn sum(&self, what: impl Fn(&Outcome) -> u64) -> u64 {
        self.outcomes.iter().map(what).sum()
    }

    /// Bytes of `total` for each request, and for each peer that hears of it.
    fn per_request_per_peer(&self, total: u64) -> f64 {
        total as f64 / self.sum(|o| o.requests).max(1) as f64
    }

    fn router_seconds(&self) -> f64 {
        self.sum(|o| o.lasted_us) as f64 / 1e6 * f64::from(self.args.routers)
    }

    fn gossip_cpu_share(&self) -> f64 {
        self.sum(|o| o.cpu_ns.saturating_sub(o.driver_cpu_ns)) as f64 / 1e9 / self.router_seconds()
    }

    /// The command that repeats one seed.
    fn repeat(&self, seed: u64) -> String {
        format!("grapevine-sim fleet {} --seed {seed} --seeds 1", self.args.world_flags().join(" "))
    }

    /// One digest of all traces.
    fn trace(&self) -> String {
        match self.outcomes.as_slice() {
            [one] => one.trace.clone(),
            many => {
                let mut digest = Xxh3::new();
                many.iter().for_each(|outcome| digest.update(outcome.trace.as_bytes()));
                format!("{:032x}", digest.digest128())
            }
        }
    }

    fn hit_rate(&self) -> f64 {
        share(self.sum(|o| o.cached_tokens), self.sum(|o| o.input_tokens))
    }

    fn hit_rate_single(&self) -> f64 {
        share(self.sum(|o| o.single_cached_tokens), self.sum(|o| o.single_input_tokens))
    }

    /// As one JSON object.
    pub fn json(&self) -> Value {
        let peers = u64::from(self.args.routers.saturating_sub(1)).max(1);
        let seeds = self.outcomes.len().max(1) as f64;
        let mut object = json!({
            "routers": self.args.routers,
            "replicas": self.args.replicas,
            "minutes": self.args.minutes,
            "rate": self.args.rate,
            "loss": self.args.loss,
            "seed": self.args.seed,
            "seeds": self.outcomes.len(),
            "requests": self.sum(|o| o.requests),
            "failed": self.sum(|o| o.failed),
            "broken": self.sum(|o| o.broken),
            "convergence_p50_ms": self.convergence_ms(0.5),
            "convergence_p99_ms": self.convergence_ms(0.99),
            "convergence_samples": self.spread_us.len(),
            "bytes_per_request_per_peer": round(self.per_request_per_peer(self.sum(|o| o.delta_bytes))),
            "published_bytes_per_request_per_peer":
                round(self.per_request_per_peer(self.sum(|o| o.published_bytes))),
            "wire_bytes_per_request_per_peer":
                round(self.per_request_per_peer(self.sum(|o| o.wire_bytes)) / peers as f64),
            "wire_bytes_per_router_s": round(self.sum(|o| o.wire_bytes) as f64 / self.router_seconds()),
            "idle_bytes_per_router_s":
                round(self.outcomes.iter().map(|o| o.idle_bytes_per_router_s).sum::<f64>() / seeds),
            "hit_rate": round(self.hit_rate()),
            "hit_rate_single": round(self.hit_rate_single()),
            "agreement": round(share(self.sum(|o| o.agreed), self.sum(|o| o.compared))),
            "violations": self.violated(),
            "broken_seeds": self.broken_seeds(),
            "events": self.sum(|o| o.events),
            "trace": self.trace(),
        });
        if self.args.cpu
            && let Some(object) = object.as_object_mut()
        {
            object.insert("gossip_cpu_per_router".to_owned(), json!(round(self.gossip_cpu_share())));
        }
        if self.args.memory
            && let Some(object) = object.as_object_mut()
        {
            let gauges: Vec<_> = self.outcomes.iter().map(|outcome| &outcome.gauges).collect();
            object.insert("memory".to_owned(), json!(gauges));
        }
        object
    }

    fn broken_seeds(&self) -> Vec<Value> {
        let broken = self.outcomes.iter().filter(|outcome| outcome.violated > 0);
        let describe = |outcome: &Outcome| {
            json!({
                "seed": outcome.seed,
                "repeat": self.repeat(outcome.seed),
                "violated": outcome.violated,
                "violations": outcome.violations,
            })
        };
        broken.map(describe).collect()
    }

    /// As text for people.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let object = self.json();
        for (name, value) in object.as_object().into_iter().flatten() {
            if name != "broken_seeds" {
                // Writing to a string cannot fail.
                let _ = writeln!(out, "{name:<34}{value}");
            }
        }
        out
    }

    /// What went wrong, and how to see it again.
    pub fn complaints(&self) -> String {
        let mut out = String::new();
        for outcome in self.outcomes.iter().filter(|outcome| outcome.violated > 0) {
            let (seed, count) = (outcome.seed, outcome.violated);
            let _ = writeln!(out, "seed {seed}: {count} violation(s); repeat: {}", self.repeat(seed));
            for violation in &outcome.violations {
                let _ = writeln!(out, "  {:>8} ms  {}", violation.at_ms, violation.what);
            }
        }
        out
    }
}

/// Six decimals: enough to compare, and no noise from the last bits.
fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}
