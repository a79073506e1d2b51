//! What engines say of themselves: nothing that could not be, and the same when it is said twice.

use grapevine_node::engine::{Names, Reading};

/// Prometheus text, or whatever else is found where engines have their metrics.
pub fn engine_metrics(text: &[u8]) {
    let names = Names::default();
    let Some(reading) = Reading::of_text(text, &names) else { return };
    let Reading { waiting, running, kv_use, prefix_queries, prefix_hits, started, .. } = reading;
    for figure in [waiting, running, prefix_queries, prefix_hits, started].into_iter().flatten() {
        assert!(figure.is_finite() && figure >= 0.0, "{reading:?}");
    }
    assert!(kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)), "{reading:?}");
    assert!(reading.cache_tokens.is_none_or(|tokens| (16..=10_000_000_000).contains(&tokens)), "{reading:?}");
    let twice = [text, b"\n", text].concat();
    assert_eq!(Reading::of_text(&twice, &names), Some(reading), "ranks that repeat do not add up");
}
