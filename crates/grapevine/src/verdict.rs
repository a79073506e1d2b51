//! A decision in words and figures: what decided, and every candidate's votes.

use std::fmt::Write as _;

use grapevine_node::admin::decisions::{CandidateView, DecisionView};

use crate::figures::short;

/// A decision as lines of text, as far as they can be made to fit into `width`.
pub(crate) fn text(decision: &DecisionView, width: usize) -> String {
    let mut out = fold(&format!("{}: {}", decision.replica, meaning(&decision.reason)), width);
    out.push_str("\n\n");
    for (name, value) in facts(decision) {
        // A String takes whatever is written.
        let _ = writeln!(out, "{name:<14}{value}");
    }
    out.push_str(&votes(decision, width));
    out
}

/// Lines of whole words.
fn fold(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        let fits = used == 0 || used + 1 + length <= width;
        if used > 0 {
            out.push(if fits { ' ' } else { '\n' });
        }
        out.push_str(word);
        used = if fits { used + usize::from(used > 0) + length } else { length };
    }
    out
}

/// What a reason means.
fn meaning(reason: &str) -> &str {
    match reason {
        "affinity" => "holds the longest useful prefix",
        "home" => "nobody holds anything useful; it is this prefix's home",
        "load" => "nobody holds anything useful; it has the least to do",
        "spill" => "another holds more of the prompt, but what waits there outvoted that",
        "guard" => "the favourite is far busier than the others: the guard took its affinity",
        "only" => "it was the only candidate",
        "no_key" => "nothing to look up in the tree, or it was late: placed by load alone",
        "shadow" => "shadow mode: placed by load alone",
        "policy" => "a baseline policy is configured; it does not look at prefixes",
        other => other,
    }
}

fn facts(decision: &DecisionView) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("reason", decision.reason.clone()),
        ("held there", format!("{} of {} tokens", decision.matched_tokens, decision.prompt_tokens)),
    ];
    let mut some = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    let more = decision.best_matched_tokens > decision.matched_tokens;
    some("held anywhere", more.then(|| format!("{} tokens at most", decision.best_matched_tokens)));
    some("taught by", decision.teacher.clone());
    some("guarded", decision.guarded.clone());
    some("tie", (decision.tied > 1).then(|| format!("{} shared the lowest sum", decision.tied)));
    some("tree", (decision.lookup == "late").then(|| "answered too late".to_owned()));
    let unread = decision.lookup == "none" && matches!(decision.reason.as_str(), "no_key" | "only");
    some("prompt", unread.then(|| "none found: not JSON of this API, or under 128 bytes".to_owned()));
    some("attempt", (decision.attempt > 1).then(|| decision.attempt.to_string()));
    some("model", decision.model.clone());
    some("decided in", Some(format!("{} us", decision.decision_us)));
    some("ended", decision.outcome.clone());
    some("engine found", decision.reported_cached_tokens.map(|tokens| format!("{tokens} tokens")));
    some("request", decision.request_id.clone());
    some("trace", decision.trace_id.clone());
    facts
}

/// Every candidate's votes, in tokens of cost; those that are zero for all are left out.
fn votes(decision: &DecisionView, width: usize) -> String {
    let candidates = &decision.candidates;
    let mut names: Vec<&String> = candidates.iter().flat_map(|candidate| candidate.votes.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| candidates.iter().any(|candidate| vote(candidate, name) != 0.0));
    let table = table(candidates, &names);
    let fits = table.lines().all(|line| line.chars().count() <= width);
    let mut out = if fits { table } else { list(candidates, &names, width) };
    let rest = decision.candidates_total.saturating_sub(candidates.len());
    if rest > 0 {
        let _ = writeln!(out, "  and {rest} more with higher sums");
    }
    let _ = writeln!(out, "\n{}", fold("Votes are tokens of cost; the lowest sum wins.", width));
    out
}

fn vote(candidate: &CandidateView, name: &str) -> f32 {
    candidate.votes.get(name).copied().unwrap_or(0.0)
}

fn mark(candidate: &CandidateView) -> char {
    if candidate.won { '>' } else { ' ' }
}

fn table(candidates: &[CandidateView], names: &[&String]) -> String {
    let wide = candidates.iter().map(|candidate| candidate.replica.chars().count()).max().unwrap_or(0).max(9);
    let mut out = format!("\n  {:<wide$}{:>7}", "candidate", "holds");
    for name in names {
        let _ = write!(out, "{name:>9}");
    }
    out.push_str("      sum\n");
    for candidate in candidates {
        let _ =
            write!(out, "{} {:<wide$}{:>7}", mark(candidate), candidate.replica, candidate.matched_tokens);
        for name in names {
            let _ = write!(out, "{:>9}", short(f64::from(vote(candidate, name))));
        }
        let _ = writeln!(out, "{:>9}", short(f64::from(candidate.total)));
    }
    out
}

/// The same without columns.
fn list(candidates: &[CandidateView], names: &[&String], width: usize) -> String {
    let mut out = String::from("\n");
    for candidate in candidates {
        let _ = writeln!(out, "{} {}", mark(candidate), candidate.replica);
        // A name stays with its figure.
        let figure = |name: &str, figure: f32| format!("{name}\u{a0}{}", short(f64::from(figure)));
        let mut figures =
            vec![figure("sum", candidate.total), format!("holds\u{a0}{}", candidate.matched_tokens)];
        figures.extend(names.iter().map(|name| figure(name, vote(candidate, name))));
        for line in fold(&figures.join(", "), width.saturating_sub(4)).lines() {
            let _ = writeln!(out, "    {}", line.replace('\u{a0}', " "));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn candidate(replica: &str, prefix: f32, won: bool) -> CandidateView {
        CandidateView {
            replica: replica.to_owned(),
            matched_tokens: 300,
            count: 1.0,
            teacher: None,
            total: prefix,
            votes: BTreeMap::from([("prefix".to_owned(), prefix), ("kv".to_owned(), 0.0)]),
            inflight: 0.0,
            queued_tokens: 0.0,
            weight: 1.0,
            standing: "up".to_owned(),
            won,
        }
    }

    /// A decision between so many candidates, of which these are shown.
    fn decision(total: usize, candidates: Vec<CandidateView>) -> DecisionView {
        let json = r#"{"seq":1,"at_ms":1,"router":"r1","path":null,"request_id":null,"trace_id":null,
            "model":"m","attempt":1,"lookup":"answered","reason":"spill","replica":"b","prompt_tokens":400,
            "matched_tokens":300,"best_matched_tokens":380,"teacher":"r2","guarded":null,"tied":1,
            "decision_us":14,"outcome":"ok","reported_cached_tokens":296,"candidates_total":0,"candidates":[]}"#;
        DecisionView { candidates_total: total, candidates, ..serde_json::from_str(json).unwrap() }
    }

    #[test]
    fn the_winner_is_marked_and_idle_votes_are_left_out() {
        let decision = decision(9, vec![candidate("b", 1_200.0, true), candidate("a", 4_800.0, false)]);
        let text = text(&decision, 80);
        assert!(text.starts_with("b: another holds more"), "{text}");
        assert!(text.contains("\n> b ") && text.contains("\n  a ") && text.contains("4.8k"), "{text}");
        assert!(text.contains("380 tokens at most") && text.contains("and 7 more"), "{text}");
        assert!(!text.contains("kv"), "{text}");
    }

    #[test]
    fn without_room_for_a_table_nothing_is_cut_off() {
        let candidates =
            vec![candidate("10.0.0.1:8000", 1_200.0, true), candidate("10.0.0.2:8000", 4_800.0, false)];
        let text = text(&decision(2, candidates), 34);
        assert!(text.lines().all(|line| line.chars().count() <= 34), "{text}");
        assert!(text.contains("> 10.0.0.1:8000\n    sum 1.2k, holds 300,\n    prefix 1.2k\n"), "{text}");
    }
}
