//! llm-d's default scorers: 3 x matched share of the prompt, 2 x queue (fewest waiting 1, most 0),
//! 2 x free KV cache; the highest sum wins. Its index forgets by size, here exactly the engine's.
//! The engine's metrics are read this very moment, which no deployment has.

use grapevine_tree::TreeConfig;
use rand::rngs::SmallRng;

use super::{Question, lowest};

const PREFIX: f64 = 3.0;
const QUEUE: f64 = 2.0;
const KV: f64 = 2.0;

pub(super) fn tree(config: &TreeConfig, capacity_tokens: u64) -> (TreeConfig, u64) {
    (TreeConfig { idle_ttl_ms: u64::MAX, ..config.clone() }, capacity_tokens)
}

pub(super) fn pick(question: &Question<'_>, rng: &mut SmallRng) -> usize {
    let waiting = |i: usize| question.engines[i].waiting as f64;
    let n = question.replicas.len();
    let most = (0..n).map(waiting).fold(0.0, f64::max);
    let least = (0..n).map(waiting).fold(f64::INFINITY, f64::min);
    let prompt = f64::from(question.prompt_tokens().max(1.0));
    let score = |i: usize| {
        let prefix = f64::from(question.matched_tokens(i)) / prompt;
        let queue = if most > least { (most - waiting(i)) / (most - least) } else { 1.0 };
        PREFIX * prefix + QUEUE * queue + KV * (1.0 - question.engines[i].kv_use)
    };
    lowest(n, rng, |i| -score(i))
}
