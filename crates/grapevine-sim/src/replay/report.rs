//! What a replay came to.

use std::fmt::Write;

use grapevine_route::{Answer, Decision, Reason};
use grapevine_tree::TreeStats;
use serde_json::{Map, Value, json};

use super::engine::Micros;
use super::trace::Call;

/// Counts of one replay.
#[derive(Debug, Default)]
pub struct Tally {
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Prompt tokens found in caches.
    pub cached_tokens: u64,
    /// Prompt tokens that one cache of the size of all would have held.
    pub pooled_tokens: u64,
    /// Prompt tokens that routers predicted to be cached.
    pub predicted_tokens: u64,
    /// Predicted, but not cached.
    pub over_tokens: u64,
    /// Cached, but not predicted.
    pub under_tokens: u64,
    /// Requests and prefilled tokens of every replica.
    pub by_replica: Vec<(u64, u64)>,
    /// Bytes of tree entries that routers published.
    pub published_bytes: u64,
    /// Tree entries that routers published.
    pub published_entries: u64,
    /// The first router's tree at the end.
    pub tree: TreeStats,
    /// Virtual time from start to end.
    pub lasted: Micros,
    /// Lost caches that routers noticed, each by itself.
    pub verdicts: u64,
    /// What the first router believes a cache holds at the end.
    pub believed_tokens: u64,
    reasons: [u64; Reason::ALL.len()],
    ttfts: Vec<Micros>,
    lost_at: Option<Micros>,
    after_loss: AfterLoss,
}

/// How long after a cache was lost its effect is looked at.
const AFTER_LOSS: Micros = 120_000_000;

/// What came in the time after caches were lost.
#[derive(Debug, Default)]
struct AfterLoss {
    input_tokens: u64,
    cached_tokens: u64,
    over_tokens: u64,
    ttfts: Vec<Micros>,
}

impl Tally {
    /// A router decided.
    pub fn decided(&mut self, decision: &Decision) {
        self.predicted_tokens += u64::from(decision.matched_tokens);
        if let Some(at) = Reason::ALL.iter().position(|&reason| reason == decision.reason) {
            self.reasons[at] += 1;
        }
    }

    /// A prefill began, with some tokens from the cache.
    pub fn prefilled(&mut self, answer: &Answer, call: &Call, now: Micros) {
        let (predicted, cached) = (answer.predicted_tokens, answer.reported_cached_tokens.unwrap_or(0));
        let over = u64::from(predicted.saturating_sub(cached));
        self.input_tokens += u64::from(call.input_tokens);
        self.cached_tokens += u64::from(cached);
        self.over_tokens += over;
        self.under_tokens += u64::from(cached.saturating_sub(predicted));
        if self.is_after_loss(now) {
            self.after_loss.input_tokens += u64::from(call.input_tokens);
            self.after_loss.cached_tokens += u64::from(cached);
            self.after_loss.over_tokens += over;
        }
    }

    /// A first token came this long after its request.
    pub fn ttft(&mut self, after: Micros, now: Micros) {
        self.ttfts.push(after);
        if self.is_after_loss(now) {
            self.after_loss.ttfts.push(after);
        }
    }

    /// A replica lost its cache.
    pub fn cache_lost(&mut self, now: Micros) {
        self.lost_at = Some(now);
    }

    fn is_after_loss(&self, now: Micros) -> bool {
        self.lost_at.is_some_and(|at| now - at < AFTER_LOSS)
    }

    /// The figures.
    pub fn report(&self, policy: &str) -> Report {
        let share = |part: u64| part as f64 / self.input_tokens.max(1) as f64;
        let mut ttfts = self.ttfts.clone();
        ttfts.sort_unstable();
        let requests = ttfts.len() as u64;
        let per_request = |n: u64| n as f64 / requests.max(1) as f64;
        Report {
            policy: policy.to_owned(),
            requests,
            hit_rate: share(self.cached_tokens),
            bound: share(self.pooled_tokens),
            ttft_mean_s: mean_s(&ttfts),
            ttft_p50_s: quantile(&ttfts, 0.5),
            ttft_p99_s: quantile(&ttfts, 0.99),
            work_imbalance: imbalance(self.by_replica.iter().map(|r| r.1)),
            request_imbalance: imbalance(self.by_replica.iter().map(|r| r.0)),
            predicted: share(self.predicted_tokens),
            overpredicted: share(self.over_tokens),
            underpredicted: share(self.under_tokens),
            gossip_bytes_per_request: per_request(self.published_bytes),
            gossip_entries_per_request: per_request(self.published_entries),
            reasons: Reason::ALL.iter().zip(self.reasons).map(|(r, n)| (r.name(), n)).collect(),
            tree_boundaries: self.tree.boundaries,
            tree_bytes: self.tree.bytes,
            virtual_s: self.lasted as f64 / 1e6,
            verdicts: self.verdicts,
            believed_cache_tokens: self.believed_tokens,
            after_loss: self.lost_at.map(|_| self.after_loss.report()),
        }
    }
}

impl AfterLoss {
    fn report(&self) -> AfterLossReport {
        let share = |part: u64| part as f64 / self.input_tokens.max(1) as f64;
        AfterLossReport {
            hit_rate: share(self.cached_tokens),
            overpredicted: share(self.over_tokens),
            ttft_mean_s: mean_s(&self.ttfts),
        }
    }
}

fn mean_s(times: &[Micros]) -> f64 {
    times.iter().map(|&t| t as f64).sum::<f64>() / times.len().max(1) as f64 / 1e6
}

/// Nearest rank, in seconds.
fn quantile(sorted: &[Micros], q: f64) -> f64 {
    let rank = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).map_or(0.0, |&t| t as f64 / 1e6)
}

/// Largest over mean; 1 when all are equal, or nothing at all.
fn imbalance(parts: impl Iterator<Item = u64> + Clone) -> f64 {
    let (sum, n) = parts.clone().fold((0, 0u64), |(sum, n), part| (sum + part, n + 1));
    let max = parts.max().unwrap_or(0);
    if sum == 0 { 1.0 } else { max as f64 * n as f64 / sum as f64 }
}

/// The figures of one replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Which rule chose replicas.
    pub policy: String,
    /// Requests answered.
    pub requests: u64,
    /// Share of prompt tokens found in caches.
    pub hit_rate: f64,
    /// What one cache of the size of all would have reached.
    pub bound: f64,
    /// Mean time to first token.
    pub ttft_mean_s: f64,
    /// Its median.
    pub ttft_p50_s: f64,
    /// Its 99th percentile.
    pub ttft_p99_s: f64,
    /// Tokens prefilled, the most of a replica over the mean.
    pub work_imbalance: f64,
    /// Requests, the most of a replica over the mean.
    pub request_imbalance: f64,
    /// Share of prompt tokens that routers predicted to be cached.
    pub predicted: f64,
    /// Share predicted, but not cached.
    pub overpredicted: f64,
    /// Share cached, but not predicted.
    pub underpredicted: f64,
    /// Bytes of tree entries a request, to each peer.
    pub gossip_bytes_per_request: f64,
    /// Tree entries a request, to each peer.
    pub gossip_entries_per_request: f64,
    /// Decisions by reason.
    pub reasons: Vec<(&'static str, u64)>,
    /// Boundaries in one router's tree at the end.
    pub tree_boundaries: usize,
    /// Its size.
    pub tree_bytes: usize,
    /// Virtual time from start to end.
    pub virtual_s: f64,
    /// Lost caches that routers noticed, each by itself.
    pub verdicts: u64,
    /// What the first router believes a cache holds at the end.
    pub believed_cache_tokens: u64,
    /// The two minutes after each time a cache was lost, if one was.
    pub after_loss: Option<AfterLossReport>,
}

/// What came of requests in the time after a cache was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AfterLossReport {
    /// Share of prompt tokens found in caches.
    pub hit_rate: f64,
    /// Share predicted, but not cached.
    pub overpredicted: f64,
    /// Mean time to first token.
    pub ttft_mean_s: f64,
}

impl Report {
    /// As one JSON object.
    pub fn json(&self) -> Map<String, Value> {
        let reasons: Map<String, Value> =
            self.reasons.iter().map(|&(name, n)| (name.to_owned(), json!(n))).collect();
        let object = json!({
            "policy": self.policy,
            "requests": self.requests,
            "hit_rate": round(self.hit_rate),
            "bound": round(self.bound),
            "share_of_bound": round(self.share_of_bound()),
            "ttft_mean_s": round(self.ttft_mean_s),
            "ttft_p50_s": round(self.ttft_p50_s),
            "ttft_p99_s": round(self.ttft_p99_s),
            "work_imbalance": round(self.work_imbalance),
            "request_imbalance": round(self.request_imbalance),
            "predicted": round(self.predicted),
            "overpredicted": round(self.overpredicted),
            "underpredicted": round(self.underpredicted),
            "gossip_bytes_per_request": round(self.gossip_bytes_per_request),
            "gossip_entries_per_request": round(self.gossip_entries_per_request),
            "decisions": reasons,
            "tree_boundaries": self.tree_boundaries,
            "tree_bytes": self.tree_bytes,
            "virtual_s": round(self.virtual_s),
            "verdicts": self.verdicts,
            "believed_cache_tokens": self.believed_cache_tokens,
        });
        let mut object = match object {
            Value::Object(object) => object,
            _ => Map::new(),
        };
        if let Some(after) = self.after_loss {
            let after = json!({
                "hit_rate": round(after.hit_rate),
                "overpredicted": round(after.overpredicted),
                "ttft_mean_s": round(after.ttft_mean_s),
            });
            object.insert("after_loss".to_owned(), after);
        }
        object
    }

    /// Hit rate over bound; 1 where nothing can be hit.
    pub fn share_of_bound(&self) -> f64 {
        if self.bound > 0.0 { self.hit_rate / self.bound } else { 1.0 }
    }
}

/// Six decimals: enough to compare, and no noise from the last bits.
fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

/// Reports as a table, a line each.
pub fn table(reports: &[Report]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<13} {:>8} {:>7} {:>8} {:>9} {:>9} {:>6} {:>9} {:>7} {:>7} {:>8}",
        "policy",
        "hit rate",
        "bound",
        "of bound",
        "TTFT mean",
        "TTFT p99",
        "work",
        "requests",
        "pred.",
        "over",
        "B/request"
    );
    for r in reports {
        let _ = writeln!(
            out,
            "{:<13} {:>8.4} {:>7.4} {:>7.1}% {:>8.3}s {:>8.3}s {:>6.3} {:>9.3} {:>7.4} {:>7.4} {:>8.1}",
            r.policy,
            r.hit_rate,
            r.bound,
            r.share_of_bound() * 100.0,
            r.ttft_mean_s,
            r.ttft_p99_s,
            r.work_imbalance,
            r.request_imbalance,
            r.predicted,
            r.overpredicted,
            r.gossip_bytes_per_request,
        );
    }
    for r in reports {
        let reasons: Vec<String> =
            r.reasons.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
        let _ = writeln!(out, "{}: {}", r.policy, reasons.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let sorted: Vec<Micros> = (1..=100).map(|n| n * 1_000_000).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|q| quantile(&sorted, q)), [50.0, 99.0, 100.0]);
        assert_eq!(quantile(&sorted[..1], 0.99), 1.0);
        assert_eq!(quantile(&[], 0.99), 0.0);
    }

    #[test]
    fn imbalance_is_max_over_mean() {
        assert_eq!(imbalance([1, 1, 4].into_iter()), 2.0);
        assert_eq!(imbalance([0, 0].into_iter()), 1.0);
        assert_eq!(imbalance([5, 5].into_iter()), 1.0);
    }
}
