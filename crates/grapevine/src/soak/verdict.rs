//! Whether the end was like the beginning.

use std::fmt::Write as _;

use tokio::time::Instant;

use super::ledger::{Counts, Failed, Ledger};
use super::probe::{Figures, Probe, Rest};
use super::trouble::Troubles;
use crate::figures::{bytes, or_unknown, percent};

/// Failures that are shown one by one.
const SHOWN: usize = 20;

/// Steps in a quarter of the time without which nothing is said about growth: 20 s.
const MIN_STEPS: usize = 4;

/// A figure of the spared router, at the beginning and at the end.
struct Row {
    name: &'static str,
    text: fn(f64) -> String,
    before: Option<f64>,
    after: Option<f64>,
    /// Worst value that is good at the end; absent where nothing is known to compare with.
    limit: Option<f64>,
    /// More is better.
    rising: bool,
}

/// What came of it.
pub(super) struct Verdict {
    counts: Counts,
    unexplained: Vec<Failed>,
    rows: Vec<Row>,
    rest: Rest,
    troubles: Vec<(&'static str, u32)>,
    start: Instant,
}

impl Verdict {
    pub(super) fn of(probe: &Probe, rest: Rest, ledger: &Ledger, troubles: &Troubles) -> Self {
        let rows = rows(probe.series(), &rest.figures);
        let (counts, unexplained) = (ledger.counts(), ledger.unexplained());
        Self { counts, unexplained, rows, rest, troubles: troubles.counts().collect(), start: probe.began() }
    }

    pub(super) fn is_good(&self) -> bool {
        self.unexplained.is_empty()
            && self.rest.inflight.is_empty()
            && self.counts.requests > self.counts.failed
            && self.rows.iter().all(Row::is_good)
    }

    /// For a person.
    pub(super) fn text(&self) -> String {
        let mut out = String::from("\n");
        // A String takes whatever is written.
        let mut line = |text: String| {
            let _ = writeln!(out, "  {text}");
        };
        let unexplained = self.unexplained.len() as u64;
        line(format!("{:<44}{:>12}", "requests", self.counts.requests));
        line(format!("{:<44}{:>12}", "left by their clients", self.counts.left));
        line(format!(
            "{:<44}{:>12}",
            "failed, in flight on what was killed",
            self.counts.failed - unexplained
        ));
        line(format!("{:<44}{unexplained:>12}", "failed for no reason"));
        for (name, count) in &self.troubles {
            line(format!("{name:<44}{count:>12}"));
        }
        line(format!(
            "\n  {:<30}{:>14}{:>14}{:>14}",
            "the spared router", "2nd quarter", "4th quarter", "allowed"
        ));
        self.rows.iter().for_each(|row| line(row.text()));
        for (router, count) in &self.rest.inflight {
            line(format!("BAD: {router} still has {count} requests in flight that nobody waits for"));
        }
        for failed in self.unexplained.iter().take(SHOWN) {
            line(format!("BAD: {}", failed.text(self.start)));
        }
        line(format!("\n  {}", if self.is_good() { "good" } else { "BAD" }));
        out
    }
}

impl Row {
    fn is_good(&self) -> bool {
        match (self.after, self.limit) {
            (Some(after), Some(limit)) if self.rising => after >= limit,
            (Some(after), Some(limit)) => after <= limit,
            _ => true,
        }
    }

    fn text(&self) -> String {
        let cell = |value: Option<f64>| or_unknown(value, self.text);
        let mark = if self.is_good() { "" } else { "  BAD" };
        let (before, after, limit) = (cell(self.before), cell(self.after), cell(self.limit));
        format!("{:<30}{before:>14}{after:>14}{limit:>14}{mark}", self.name)
    }
}

/// The second quarter, when caches and trees are full, against the last; and the first look against
/// what is left at rest.
fn rows(series: &[Figures], rest: &Figures) -> Vec<Row> {
    let quarter = series.len() / 4;
    let enough = quarter >= MIN_STEPS;
    let early = series.get(quarter..quarter * 2).unwrap_or_default();
    let late = series.get(series.len() - quarter..).unwrap_or_default();
    let row = |name, text, of: fn(&Figures) -> Option<f64>, limit: fn(f64) -> f64| {
        let (before, after) = (median(early, of), median(late, of));
        Row { name, text, before, after, limit: before.filter(|_| enough).map(limit), rising: false }
    };
    let idle = |name, of: fn(&Figures) -> Option<f64>, limit: fn(f64) -> f64| {
        let before = series.first().and_then(of);
        Row { name, text: whole, before, after: of(rest), limit: before.map(limit), rising: false }
    };
    vec![
        // An allocator keeps what a burst took; a leak of a kilobyte a request would be 12 MB in 5 minutes.
        row("memory", bytes, |f| f.memory, |before| before * 1.1 + 8e6),
        row("boundaries", whole, |f| f.boundaries, |before| before * 1.1 + 500.0),
        row("gossip per request", bytes, |f| f.gossip, |before| before * 1.5 + 100.0),
        // Troubles empty caches, and come in another order in each quarter.
        Row { rising: true, ..row("token hit rate", percent, |f| f.hit_rate, |before| before - 0.05) },
        // One connection to each engine and peer may be there that was not when it had just started.
        idle("descriptors, idle", |f| f.descriptors, |before| before + 16.0),
        idle("tasks, idle", |f| f.tasks, |before| before + 16.0),
    ]
}

fn median(figures: &[Figures], of: fn(&Figures) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = figures.iter().filter_map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(memory: impl Fn(usize) -> f64) -> Vec<Figures> {
        let figures = |at| Figures {
            memory: Some(memory(at)),
            descriptors: Some(30.0),
            hit_rate: Some(0.9),
            ..Figures::default()
        };
        (0..40).map(figures).collect()
    }

    fn bad(series: &[Figures], rest: &Figures) -> Vec<&'static str> {
        rows(series, rest).iter().filter(|row| !row.is_good()).map(|row| row.name).collect()
    }

    #[test]
    fn growth_is_bad_and_a_plateau_is_good() {
        let idle = Figures { descriptors: Some(31.0), ..Figures::default() };
        assert!(bad(&series(|at| if at < 10 { 10e6 } else { 50e6 }), &idle).is_empty());
        assert_eq!(bad(&series(|at| 50e6 + at as f64 * 1e6), &idle), ["memory"]);
        assert_eq!(
            bad(&series(|_| 5e7), &Figures { descriptors: Some(90.0), ..idle }),
            ["descriptors, idle"]
        );
        let mut worse = series(|_| 5e7);
        worse.iter_mut().skip(25).for_each(|figures| figures.hit_rate = Some(0.8));
        assert_eq!(bad(&worse, &idle), ["token hit rate"]);
    }

    #[test]
    fn a_short_run_and_unknown_figures_say_nothing() {
        let short = series(|at| at as f64 * 1e9).into_iter().take(12).collect::<Vec<_>>();
        assert!(bad(&short, &Figures::default()).is_empty());
        assert!(bad(&[], &Figures::default()).is_empty());
    }
}
