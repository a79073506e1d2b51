//! Consistent hashing with bounded load on the first two blocks: what a router can do that knows
//! nothing (KubeAI does it on the first 100 characters; two blocks tell more prompts apart).

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Question;
use crate::replay::engine::cache;

/// Most load of a replica, times the mean.
const LOAD_FACTOR: f64 = 1.25;

/// The first replica in the hash's order that is not above its share.
pub(super) fn pick(question: &Question<'_>) -> usize {
    let key = cache::ids(&question.call.runs).take(2).last().map_or(0, |id| u64::from(id) + 1);
    let n = question.replicas.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|&i| xxh3_64_with_seed(&question.replicas[i].0.to_le_bytes(), key));
    let inflight = |i: usize| f64::from(question.loads[i].inflight);
    let bound = ((0..n).map(inflight).sum::<f64>() + 1.0) / n as f64 * LOAD_FACTOR;
    let free = order.iter().find(|&&i| inflight(i) + 1.0 <= bound.ceil());
    // The mean is below the bound, so one is.
    free.or(order.first()).copied().unwrap_or(0)
}
