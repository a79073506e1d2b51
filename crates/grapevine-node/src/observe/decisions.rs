//! The last decisions with their votes. Only so many a second are kept in full: nobody reads more, and
//! what they cost must not grow with the traffic.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use grapevine_route::{Decision, Votes};
use grapevine_tree::{Millis, Teacher};

use super::pace::Pace;
use crate::bounded::cut;
use crate::replica::Replica;
use crate::replica::health::Standing;

/// Decisions kept.
const KEPT: usize = 256;

/// Decisions recorded in one second, at most.
const PER_SECOND: u8 = 50;

/// Candidates recorded with a decision, the best first, and always the winner.
pub const CANDIDATES: usize = 16;

/// Longest model name or request id that is kept, bytes.
const MAX_TEXT: usize = 96;

/// A replica that might have got the request.
#[derive(Clone, Debug)]
pub struct Considered {
    /// Which.
    pub replica: Arc<Replica>,
    /// Tokens of the prompt that it is believed to hold.
    pub matched_tokens: u32,
    /// How often it was picked for that lately.
    pub count: f32,
    /// Who taught that.
    pub teacher: Option<Teacher>,
    /// Its votes. All 0 where the policy has none.
    pub votes: Votes,
    /// Requests in flight there, as far as known.
    pub inflight: f32,
    /// Prefill tokens queued there, as far as known.
    pub queued_tokens: f32,
    /// Its relative capacity.
    pub weight: f32,
    /// Its health.
    pub standing: Standing,
    /// It got the request.
    pub won: bool,
}

/// What the tree said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It answered.
    Answered,
    /// It did not answer in time.
    Late,
    /// There was nothing to ask.
    None,
}

impl Lookup {
    /// What it said, if it was asked.
    pub fn of(asked: bool, answered: bool) -> Self {
        match (asked, answered) {
            (true, true) => Self::Answered,
            (true, false) => Self::Late,
            (false, _) => Self::None,
        }
    }

    /// The name in JSON and spans.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Late => "late",
            Self::None => "none",
        }
    }
}

/// A decision and what is known of its request.
#[derive(Debug)]
pub struct Recorded {
    /// Its number, from 1.
    pub seq: u64,
    /// When, Unix time in ms.
    pub at_ms: u64,
    /// The request's id.
    pub request_id: Option<String>,
    /// The trace's id, if it is traced.
    pub trace_id: Option<String>,
    /// The path, if it is one that the router knows.
    pub path: Option<&'static str>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// 1 for the first replica that was tried.
    pub attempt: u32,
    /// What the tree said.
    pub lookup: Lookup,
    /// From the whole request read to a replica chosen.
    pub micros: u64,
    /// The decision.
    pub decision: Decision,
    /// The replica whose affinity vote the guard took.
    pub guarded: Option<Arc<Replica>>,
    /// Replicas that might have got it.
    pub candidates_total: usize,
    /// The best of them.
    pub candidates: Vec<Considered>,
    /// How it ended.
    pub outcome: OnceLock<&'static str>,
    /// Cached tokens, as the answer reported.
    pub reported_cached: OnceLock<u64>,
}

/// The last decisions.
#[derive(Debug)]
pub struct Decisions {
    ring: Mutex<Ring>,
    pace: Pace,
    skipped: AtomicU64,
}

impl Default for Decisions {
    fn default() -> Self {
        Self { ring: Mutex::default(), pace: Pace::new(PER_SECOND), skipped: AtomicU64::new(0) }
    }
}

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    kept: VecDeque<Arc<Recorded>>,
}

impl Decisions {
    /// Whether a decision at `now` is to be recorded in full.
    pub fn wants(&self, now: Millis) -> bool {
        let wanted = self.pace.passes(now);
        if !wanted {
            self.skipped.fetch_add(1, Relaxed);
        }
        wanted
    }

    /// Records it; gives it for what is still to come of it.
    pub fn add(&self, mut recorded: Recorded) -> Arc<Recorded> {
        let mut ring = self.lock();
        ring.next += 1;
        recorded.seq = ring.next;
        let recorded = Arc::new(recorded);
        if ring.kept.len() == KEPT {
            ring.kept.pop_back();
        }
        ring.kept.push_front(Arc::clone(&recorded));
        recorded
    }

    /// At most `limit` decisions after number `after`, the newest first.
    pub fn after(&self, after: u64, limit: usize) -> Vec<Arc<Recorded>> {
        let ring = self.lock();
        ring.kept.iter().take_while(|recorded| recorded.seq > after).take(limit).cloned().collect()
    }

    /// Decisions that were not recorded since the start.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Nothing in here panics half-way.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a client wrote, cut to what is kept of it.
pub fn short(text: &str) -> String {
    cut(text, MAX_TEXT).to_owned()
}

#[cfg(test)]
mod tests {
    use grapevine_route::Reason;
    use grapevine_tree::ReplicaId;

    use super::*;

    fn recorded() -> Recorded {
        let decision = Decision {
            replica: ReplicaId(1),
            index: 0,
            reason: Reason::Load,
            prompt_tokens: 10,
            matched_tokens: 0,
            best_matched_tokens: 0,
            teacher: None,
            guarded: None,
            tied: 1,
        };
        Recorded {
            seq: 0,
            at_ms: 0,
            request_id: None,
            trace_id: None,
            path: None,
            model: None,
            attempt: 1,
            lookup: Lookup::None,
            micros: 5,
            decision,
            guarded: None,
            candidates_total: 0,
            candidates: Vec::new(),
            outcome: OnceLock::new(),
            reported_cached: OnceLock::new(),
        }
    }

    #[test]
    fn only_so_many_are_recorded_in_a_second_and_the_rest_is_counted() {
        let decisions = Decisions::default();
        let wanted = |now| (0..200).filter(|_| decisions.wants(now)).count() as u64;
        let per_second = u64::from(PER_SECOND);
        assert_eq!((wanted(10), wanted(999), wanted(1_000)), (per_second, 0, per_second));
        assert_eq!(decisions.skipped(), 600 - 2 * per_second);
    }

    #[test]
    fn the_newest_come_first_and_the_oldest_go() {
        let decisions = Decisions::default();
        (0..KEPT + 10).for_each(|_| drop(decisions.add(recorded())));
        let numbers = |after, limit| decisions.after(after, limit).iter().map(|r| r.seq).collect::<Vec<_>>();
        assert_eq!(numbers(0, 1_000).len(), KEPT);
        assert_eq!(numbers(0, 2), [KEPT as u64 + 10, KEPT as u64 + 9]);
        assert_eq!(numbers(KEPT as u64 + 9, 100), [KEPT as u64 + 10]);
        assert!(numbers(u64::MAX, 100).is_empty());
    }

    #[test]
    fn what_clients_write_is_cut_at_a_character() {
        assert_eq!(short("llama"), "llama");
        let long = "ä".repeat(MAX_TEXT);
        assert_eq!(short(&long).len(), MAX_TEXT);
    }
}
