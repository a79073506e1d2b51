//! The same for pipes and logs: a line now and then, and the table at the end.

use std::fmt::Write as _;

use super::sample::{Sample, SideSample};
use crate::figures::percent;

/// One line.
pub(super) fn line(sample: &Sample) -> String {
    let seconds = sample.sides.first().map_or(0, |side| side.elapsed.as_secs());
    let side = |s: &SideSample| {
        let (label, now, total) = (&s.label, percent(s.hit_now), percent(s.hit_total));
        format!("{label}: hit {now} now, {total} in all, {:.0} req/s", s.per_second)
    };
    let sides: Vec<String> = sample.sides.iter().map(side).collect();
    format!("{seconds:>4} s  {}", sides.join("  |  "))
}

/// The table at the end.
pub(super) fn summary(sample: &Sample) -> String {
    let mut out = String::from("\n");
    let mut row = |name: &str, cell: &dyn Fn(&SideSample) -> String| {
        let cells: String = sample.sides.iter().map(|side| format!("{:>20}", cell(side))).collect();
        // A String takes whatever is written.
        let _ = writeln!(out, "  {name:<34}{cells}");
    };
    row("", &|s| s.label.clone());
    row("routers", &|s| s.fleet.routers.len().to_string());
    row("requests", &|s| s.requests.to_string());
    row("failed requests", &|s| s.errors.to_string());
    row("token hit rate", &|s| percent(s.hit_total));
    row("token hit rate, last 5 s", &|s| percent(s.hit_now));
    row("requests per second, last 5 s", &|s| format!("{:.0}", s.per_second));
    row("mean latency, last 5 s", &|s| format!("{} ms", s.mean_latency.as_millis()));
    row("busiest replica / mean", &|s| format!("{:.2}", s.imbalance()));
    row("predicted cached share", &|s| percent(s.prediction().0));
    row("reported cached share", &|s| percent(s.prediction().1));
    row("gossip sent per request", &|s| format!("{:.0} B", s.gossip_per_request()));
    for side in &sample.sides {
        if let Some(error) = &side.first_error {
            let _ = writeln!(out, "  first failure of {}: {error}", side.label);
        }
        if !side.by_engines && side.requests > 0 && side.hit_total == 0.0 {
            let _ = writeln!(
                out,
                "  {}: the engines report no cached tokens (see docs/operations.md)",
                side.label
            );
        }
    }
    let source = if sample.sides.iter().all(|s| s.by_engines) {
        "the engines' own counters"
    } else {
        "usage in answers"
    };
    let _ = writeln!(out, "\n  Hit rates are {source}.");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_shows_both_sides_and_what_failed() {
        let side = |label: &str, hit_total| SideSample {
            label: label.to_owned(),
            hit_total,
            requests: 10,
            by_engines: true,
            ..SideSample::default()
        };
        let broken =
            SideSample { errors: 1, first_error: Some("503".to_owned()), ..side("random, 1 router", 0.25) };
        let sample = Sample::of(&[broken, side("affinity", 0.9)]);
        let text = summary(&sample);
        assert!(text.contains("90.0 %") && text.contains("25.0 %"), "{text}");
        assert!(text.contains("first failure of random, 1 router: 503"));
        assert!(line(&sample).find("affinity") < line(&sample).find("random"), "the main side comes first");
    }
}
