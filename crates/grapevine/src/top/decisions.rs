//! The latest decisions of the router that is asked.

use grapevine_node::admin::decisions::DecisionView;
use ratatui::layout::Constraint::{Length, Min};
use ratatui::style::Style;
use ratatui::widgets::{Cell, Table};

use super::grid::{Column, left, meter, number, right, table, text};
use super::style::Look;
use crate::figures::{duration, or_unknown, short};

struct Context {
    look: Look,
    /// Now, on the router's clock.
    at_ms: u64,
}

const COLUMNS: &[Column<DecisionView, Context>] = &[
    right("ago", Length(7), 0, |d, c| number(ago(c.at_ms.saturating_sub(d.at_ms)))),
    left("reason", Length(9), 0, |d, c| text(d.reason.clone(), reason_style(&d.reason, c.look))),
    left("replica", Min(14), 0, |d, _| text(d.replica.clone(), Style::new())),
    left("held there", Length(14), 50, held),
    right("of tokens", Length(9), 62, |d, _| number(short(f64::from(d.prompt_tokens)))),
    left("taught by", Length(10), 74, |d, _| text(or_unknown(d.teacher.clone(), |name| name), Style::new())),
    right("found", Length(7), 88, |d, _| number(or_unknown(d.reported_cached_tokens, |n| short(n as f64)))),
    left("ended", Length(13), 102, |d, _| text(or_unknown(d.outcome.clone(), |name| name), Style::new())),
];

/// The heads of all columns.
#[cfg(test)]
pub(super) fn heads() -> Vec<&'static str> {
    COLUMNS.iter().map(Column::title).collect()
}

/// The table for `width` cells.
pub(super) fn decisions(list: &[DecisionView], at_ms: u64, look: Look, width: u16) -> Table<'static> {
    // Asked for after the fleet was: some may be younger.
    let at_ms = list.first().map_or(at_ms, |newest| newest.at_ms.max(at_ms));
    table(COLUMNS, list, &Context { look, at_ms }, look, width)
}

fn ago(ms: u64) -> String {
    if ms < 1_000 { "now".to_owned() } else { duration(ms) }
}

fn reason_style(reason: &str, look: Look) -> Style {
    match reason {
        "affinity" => look.accent(),
        "spill" | "guard" => look.warn(),
        _ => Style::new(),
    }
}

fn held(decision: &DecisionView, context: &Context) -> Cell<'static> {
    let matched = f64::from(decision.matched_tokens);
    let part = matched / f64::from(decision.prompt_tokens.max(1));
    meter(Some(part), &short(matched), context.look.bar())
}
