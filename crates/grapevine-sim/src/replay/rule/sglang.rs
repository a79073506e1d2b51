//! SGLang's cache-aware rule: of the replicas that match deepest the least loaded, if that match is
//! more than 30 % of the prompt; else the least loaded of all. While the fleet's most and least
//! loaded are more than 64 requests and a factor of 1.5 apart: the least loaded of all. Every router
//! keeps its own tree, and knows its own load.

use grapevine_tree::TreeConfig;
use rand::rngs::SmallRng;

use super::{Question, lowest};

const THRESHOLD: f32 = 0.3;
const BALANCE_ABS: f64 = 64.0;
const BALANCE_REL: f64 = 1.5;

/// Its tree is bounded in characters per worker, by age of use, whatever the engine holds.
const TREE_TOKENS: u64 = 67_108_864 / 4;

pub(super) fn tree(config: &TreeConfig) -> (TreeConfig, u64) {
    let unlimited = TreeConfig { idle_ttl_ms: u64::MAX, max_boundaries: 16_000_000, ..config.clone() };
    (unlimited, TREE_TOKENS)
}

pub(super) fn pick(question: &Question<'_>, rng: &mut SmallRng) -> usize {
    let n = question.replicas.len();
    let inflight = |i: usize| f64::from(question.loads[i].inflight);
    let most = (0..n).map(inflight).fold(0.0, f64::max);
    let least = (0..n).map(inflight).fold(f64::INFINITY, f64::min);
    let unbalanced = most - least > BALANCE_ABS && most > least * BALANCE_REL;
    let deepest = (0..n).map(|i| question.matched_tokens(i)).fold(0.0, f32::max);
    if unbalanced || deepest <= THRESHOLD * question.prompt_tokens() {
        return lowest(n, rng, inflight);
    }
    lowest(n, rng, |i| if question.matched_tokens(i) >= deepest { inflight(i) } else { f64::INFINITY })
}
