//! What is kept of a decision once it is made: counts, and now and then all of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use grapevine_tree::Teacher;

use super::Proxy;
use super::pick::Choice;
use super::place::Job;
use crate::clock::unix_ms;
use crate::observe::decisions::{CANDIDATES, Lookup, Recorded, short};
use crate::observe::log::Logged;

impl Proxy {
    /// Candidates to be shown of the next decision; 0: it is not recorded.
    pub(super) fn to_show(&self) -> usize {
        if self.decisions.wants(self.clock.now()) { CANDIDATES } else { 0 }
    }

    /// Counts a decision, and records it where candidates were shown.
    pub(super) fn note(&self, job: &Job<'_>, choice: Choice, attempt: u32, took: Duration) {
        self.count(&choice);
        if attempt == 1 {
            self.count_lookup(job.lookup(), &choice);
            self.metrics.decision_seconds.observe(took.as_secs_f64());
        }
        if let Some(log) = &self.log {
            log.write(logged(job, &choice, attempt));
        }
        if choice.considered.is_empty() {
            job.exchange.follow(None);
            return;
        }
        let recorded = self.decisions.add(recorded(self, job, choice, attempt, took));
        job.exchange.follow(Some(recorded));
    }

    fn count(&self, choice: &Choice) {
        let decision = &choice.decision;
        self.metrics.decided(decision.reason);
        self.metrics.prompt_tokens.inc_by(u64::from(decision.prompt_tokens));
        self.metrics.predicted_tokens.inc_by(u64::from(decision.matched_tokens));
        self.metrics.random_tokens.inc_by(u64::from(choice.random_tokens));
        if let (true, Some(Teacher::Peer(peer))) = (decision.matched_tokens > 0, decision.teacher) {
            self.taught.add(peer, decision.matched_tokens);
        }
        if let Some(shadowed) = &choice.shadowed {
            self.metrics.shadow.count(shadowed);
        }
    }

    /// A lookup and whether it was a hit, together: one is a share of the other.
    fn count_lookup(&self, lookup: Lookup, choice: &Choice) {
        if lookup == Lookup::None {
            return;
        }
        let metrics = &self.metrics;
        metrics.lookups.inc();
        metrics.lookups_missed.inc_by(u64::from(lookup == Lookup::Late));
        metrics.hits.inc_by(u64::from(choice.decision.matched_tokens > 0));
    }
}

fn logged(job: &Job<'_>, choice: &Choice, attempt: u32) -> Logged {
    Logged {
        at_ms: unix_ms(),
        path: job.exchange.kind.route(),
        key: job.keyed().cloned(),
        attempt,
        decision: choice.decision.clone(),
        replica: Arc::clone(&choice.replica),
        candidates: choice.candidates_total,
    }
}

fn recorded(proxy: &Proxy, job: &Job<'_>, choice: Choice, attempt: u32, took: Duration) -> Recorded {
    let guarded = choice.decision.guarded;
    Recorded {
        seq: 0,
        at_ms: unix_ms(),
        request_id: job.exchange.request_id.as_ref().and_then(|id| id.to_str().ok()).map(short),
        trace_id: job.exchange.span.trace_id(),
        path: job.exchange.kind.route(),
        model: job.model.as_deref().map(short),
        attempt,
        lookup: job.lookup(),
        micros: took.as_micros() as u64,
        guarded: guarded.and_then(|id| proxy.picker.replicas.load().get(id).cloned()),
        candidates_total: choice.candidates_total,
        candidates: choice.considered,
        decision: choice.decision,
        outcome: OnceLock::new(),
        reported_cached: OnceLock::new(),
    }
}

impl Job<'_> {
    /// What the tree said.
    pub(super) fn lookup(&self) -> Lookup {
        Lookup::of(self.keyed().is_some(), self.matches.is_some())
    }
}
