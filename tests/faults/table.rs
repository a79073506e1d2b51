//! The table of docs/reliability.md.

use std::fs;

use super::fault::Outcome;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.md");

/// The table stands between these lines.
const MARKS: (&str, &str) = ("<!-- fault matrix -->\n", "<!-- end of the fault matrix -->\n");

/// One row for each fault.
pub(crate) fn of(outcomes: &[Outcome]) -> String {
    let mut table = String::from(
        "| fault | requests | failed with what died | failed otherwise | slowest first token | whole again after | \
         hit rate, % | memory, MiB |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    table.extend(outcomes.iter().map(row));
    table
}

pub(crate) fn row(seen: &Outcome) -> String {
    let recovery = seen.recovery.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
    let (before, after) = (seen.hit_rate.0 * 100.0, seen.hit_rate.1 * 100.0);
    format!(
        "| {} | {} | {} | {} | {:.1} s | {recovery} | {before:.0} → {after:.0} | {} → {} |\n",
        seen.name,
        seen.requests,
        seen.died,
        seen.failures.len(),
        seen.slowest_first.as_secs_f64(),
        seen.memory.0,
        seen.memory.1,
    )
}

/// Puts it into the page.
pub(crate) fn publish(table: &str) {
    let page = fs::read_to_string(PAGE).unwrap();
    let (head, rest) = page.split_once(MARKS.0).unwrap();
    let (_, tail) = rest.split_once(MARKS.1).unwrap();
    fs::write(PAGE, format!("{head}{}\n{table}\n{}{tail}", MARKS.0, MARKS.1)).unwrap();
}
