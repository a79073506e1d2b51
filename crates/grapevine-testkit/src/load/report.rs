//! What a load run saw.

use std::collections::BTreeMap;
use std::time::Duration;

/// One request's end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The request's number in the workload.
    pub index: usize,
    /// Its shared prefix or conversation.
    pub group: usize,
    /// How many of its group came before.
    pub turn: usize,
    /// The target it was sent to, counted from 0.
    pub target: usize,
    /// The replica that the router says it chose.
    pub replica: Option<String>,
    /// HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// What went wrong; `None` for a whole answer.
    pub error: Option<String>,
    /// From sending to the answer's end.
    pub latency: Duration,
    /// From sending to the first event of a stream, or the first byte of a whole answer's body.
    pub first: Option<Duration>,
    /// `data:` events of a stream.
    pub events: u64,
    /// Prompt tokens as the answer reports them.
    pub prompt_tokens: u64,
    /// Those of them that the engine had cached.
    pub cached_tokens: u64,
    /// Output tokens.
    pub completion_tokens: u64,
}

/// A set of durations in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times(Vec<Duration>);

impl Times {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<Duration> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Their mean, zero if there are none.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0.iter().sum::<Duration>().checked_div(count).unwrap_or_default()
    }

    /// The one below which a share `q` (0 to 1) of them lies, zero if there are none.
    pub fn quantile(&self, q: f64) -> Duration {
        let last = self.0.len().saturating_sub(1) as f64;
        self.0.get((last * q.clamp(0.0, 1.0)) as usize).copied().unwrap_or_default()
    }
}

/// What a load run saw.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Each request's end, in the order in which they ended; as many as were to be kept.
    pub outcomes: Vec<Outcome>,
    /// Requests sent.
    pub requests: u64,
    /// Those that did not get a whole answer.
    pub errors: u64,
    /// What the first of them died of.
    pub first_error: Option<String>,
    /// Prompt tokens reported.
    pub prompt_tokens: u64,
    /// Those that engines had cached.
    pub cached_tokens: u64,
    /// Output tokens.
    pub completion_tokens: u64,
    /// From the first request to the last answer.
    pub wall: Duration,
    /// The run was stopped before the workload's end.
    pub stopped: bool,
}

impl Report {
    /// Counts `outcome`, and keeps it if no more than `keep` are kept.
    pub(crate) fn add(&mut self, outcome: Outcome, keep: usize) {
        self.requests += 1;
        self.prompt_tokens += outcome.prompt_tokens;
        self.cached_tokens += outcome.cached_tokens;
        self.completion_tokens += outcome.completion_tokens;
        if let Some(error) = &outcome.error {
            self.errors += 1;
            self.first_error.get_or_insert_with(|| error.clone());
        }
        if self.outcomes.len() < keep {
            self.outcomes.push(outcome);
        }
    }

    /// Cached share of all prompt tokens as the answers report them, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        if self.prompt_tokens == 0 { 0.0 } else { self.cached_tokens as f64 / self.prompt_tokens as f64 }
    }

    /// Whole answers a second.
    pub fn per_second(&self) -> f64 {
        let seconds = self.wall.as_secs_f64();
        if seconds > 0.0 { (self.requests - self.errors) as f64 / seconds } else { 0.0 }
    }

    /// Times to the end of whole answers.
    pub fn latencies(&self) -> Times {
        Times::of(self.whole().map(|outcome| outcome.latency))
    }

    /// Times to the first token of whole answers.
    pub fn first_tokens(&self) -> Times {
        Times::of(self.whole().filter_map(|outcome| outcome.first))
    }

    /// Requests sent to each target.
    pub fn by_target(&self) -> BTreeMap<usize, u64> {
        count(self.outcomes.iter().map(|outcome| outcome.target))
    }

    /// Requests that each replica got, by the name that the routers give it.
    pub fn by_replica(&self) -> BTreeMap<String, u64> {
        count(self.outcomes.iter().filter_map(|outcome| outcome.replica.clone()))
    }

    fn whole(&self) -> impl Iterator<Item = &Outcome> {
        self.outcomes.iter().filter(|outcome| outcome.error.is_none())
    }
}

fn count<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, u64> {
    let mut counts = BTreeMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_a_hundred() {
        let times = Times::of((1..=100).rev().map(Duration::from_millis));
        assert_eq!(times.quantile(0.0), Duration::from_millis(1));
        assert_eq!(times.quantile(0.5), Duration::from_millis(50));
        assert_eq!(times.quantile(1.0), Duration::from_millis(100));
        assert_eq!(times.mean(), Duration::from_micros(50_500));
        assert_eq!(Times::default().quantile(0.5), Duration::ZERO);
        assert_eq!(Times::default().mean(), Duration::ZERO);
    }
}
