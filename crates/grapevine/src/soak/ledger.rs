//! What requests came to, and which failures something excuses.

use std::sync::{Mutex, MutexGuard, PoisonError};

use grapevine_testkit::load::Outcome;
use tokio::time::Instant;

/// Failures that are kept one by one. More than that are a finding without looking at each.
const MAX_FAILURES: usize = 10_000;

/// Whom a trouble struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// The router at this address.
    Router(String),
    /// The engine of this name.
    Engine(String),
}

/// Something was killed: what was in flight there may fail.
#[derive(Clone, Debug)]
struct Excuse {
    who: Who,
    from: Instant,
    until: Instant,
}

/// A request that failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    began: Instant,
    ended: Instant,
    router: String,
    /// Absent when no answer named it.
    engine: Option<String>,
    pub(super) error: String,
}

/// Requests since some moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) failed: u64,
    pub(super) left: u64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
}

/// What requests came to.
pub(super) struct Ledger {
    routers: Vec<String>,
    pages: Mutex<Pages>,
}

#[derive(Default)]
struct Pages {
    total: Counts,
    failures: Vec<Failed>,
    excuses: Vec<Excuse>,
}

impl Ledger {
    /// For requests to these routers, in the order of their targets' numbers.
    pub(super) fn new(routers: Vec<String>) -> Self {
        Self { routers, pages: Mutex::default() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request has ended, now.
    pub(super) fn note(&self, outcome: &Outcome) {
        let mut pages = self.pages();
        pages.total.requests += 1;
        pages.total.prompt_tokens += outcome.prompt_tokens;
        pages.total.cached_tokens += outcome.cached_tokens;
        let Some(error) = &outcome.error else { return };
        pages.total.failed += 1;
        if pages.failures.len() < MAX_FAILURES {
            let ended = Instant::now();
            pages.failures.push(Failed {
                began: ended.checked_sub(outcome.latency).unwrap_or(ended),
                ended,
                router: self.routers.get(outcome.target).cloned().unwrap_or_default(),
                engine: outcome.replica.clone(),
                error: error.clone(),
            });
        }
    }

    /// A client has left its request.
    pub(super) fn note_left(&self) {
        self.pages().total.left += 1;
    }

    /// What is in flight at `who` between `from` and now may fail.
    pub(super) fn excuse(&self, who: Who, from: Instant) {
        self.pages().excuses.push(Excuse { who, from, until: Instant::now() });
    }

    /// All so far.
    pub(super) fn counts(&self) -> Counts {
        self.pages().total
    }

    /// Failures that nothing excuses.
    pub(super) fn unexplained(&self) -> Vec<Failed> {
        let pages = self.pages();
        let excused = |failed: &Failed| pages.excuses.iter().any(|excuse| excuse.covers(failed));
        pages.failures.iter().filter(|failed| !excused(failed)).cloned().collect()
    }
}

impl Excuse {
    /// In flight there at that time. A failure whose answer names no engine may have been at any.
    fn covers(&self, failed: &Failed) -> bool {
        let there = match &self.who {
            Who::Router(url) => *url == failed.router,
            Who::Engine(name) => failed.engine.as_ref().is_none_or(|engine| engine == name),
        };
        there && failed.began <= self.until && self.from <= failed.ended
    }
}

impl Failed {
    /// For a person, with the time since `start`.
    pub(super) fn text(&self, start: Instant) -> String {
        let at = |time: Instant| time.saturating_duration_since(start).as_secs_f64();
        let engine = self.engine.as_deref().unwrap_or("an unnamed engine");
        let (began, ended) = (at(self.began), at(self.ended));
        format!("{began:.2} s to {ended:.2} s, {}, {engine}: {}", self.router, self.error)
    }
}

impl Counts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            requests: self.requests - before.requests,
            failed: self.failed - before.failed,
            left: self.left - before.left,
            prompt_tokens: self.prompt_tokens - before.prompt_tokens,
            cached_tokens: self.cached_tokens - before.cached_tokens,
        }
    }

    /// Share of prompt tokens that engines had cached; absent while there were none.
    pub(super) fn hit_rate(self) -> Option<f64> {
        crate::figures::share(self.cached_tokens, self.prompt_tokens)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn failed(ledger: &Ledger, target: usize, replica: Option<&str>, latency: Duration) {
        let (error, replica) = (Some("cut".to_owned()), replica.map(str::to_owned));
        ledger.note(&Outcome { target, replica, latency, error, ..Outcome::default() });
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_was_in_flight_at_the_killed_is_excused() {
        let second = Duration::from_secs(1);
        let ledger = Ledger::new(vec!["r1".to_owned(), "r2".to_owned()]);
        tokio::time::advance(10 * second).await;
        ledger.excuse(Who::Router("r1".to_owned()), Instant::now());
        ledger.excuse(Who::Engine("e1".to_owned()), Instant::now());
        tokio::time::advance(second).await;
        failed(&ledger, 0, Some("e2"), 2 * second);
        failed(&ledger, 1, Some("e1"), 2 * second);
        failed(&ledger, 1, None, 2 * second);
        assert!(ledger.unexplained().is_empty(), "{:?}", ledger.unexplained());

        failed(&ledger, 1, Some("e2"), 2 * second);
        failed(&ledger, 0, Some("e2"), second / 2);
        failed(&ledger, 1, Some("e1"), second / 2);
        assert_eq!(ledger.unexplained().len(), 3, "another router, another engine, too late");
        assert_eq!((ledger.counts().requests, ledger.counts().failed), (6, 6));
    }
}
