//! Whom to ask for which missing segments, and when to give them up. Pure: time, the random source and
//! the answers are arguments.
//!
//! A hole is first left to gossip for some ticks. Then its origin is asked, then any other live peer: a
//! dead router's last words lie with who heard them. What every peer that can be asked has not, or what
//! is older than anyone keeps it, is given up. A peer that does not answer is left alone for a while,
//! longer each time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::{Millis, RouterId};
use rand::RngExt;
use rand::rngs::SmallRng;

use crate::fleet::Want;
use crate::log;

/// Questions on their way at once: they share the peers' admin ports with probes and metrics.
const MAX_RUNNING: usize = 2;

/// How long a peer that did not answer is left alone at first, in milliseconds; doubled each time.
const PENALTY_MS: Millis = 1_000;

/// The longest such time. A wrong admin URL then costs a connection attempt a minute.
const MAX_PENALTY_MS: Millis = 60_000;

/// A peer that can be asked: live, of our version, and it said where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub id: RouterId,
    /// Its name.
    pub name: Arc<str>,
    /// Where its admin port answers.
    pub url: Arc<str>,
}

/// What to do about a hole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask `from` for what is wanted.
    Ask {
        /// What.
        want: Want,
        /// Whom.
        from: Candidate,
    },
    /// Nobody has it.
    GiveUp(Want),
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered. What did not come is not there, unless there was `more` than fits.
    Answered {
        /// There is more.
        more: bool,
    },
    /// No answer, or none that can be believed.
    Failed,
}

#[derive(Debug, Default)]
struct Origin {
    running: bool,
    generation: u64,
    /// The lowest hole that this is about, and the end of the highest.
    first: u64,
    last: u64,
    not_before: Millis,
    /// Who answered and has not what is missing.
    without: BTreeSet<RouterId>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Penalty {
    failures: u32,
    until: Millis,
}

/// Decides about holes.
#[derive(Debug)]
pub struct Puller {
    grace_ms: Millis,
    origins: BTreeMap<RouterId, Origin>,
    penalties: BTreeMap<RouterId, Penalty>,
    running: usize,
    /// Whose turn it was last: the others go first.
    last: RouterId,
}

impl Puller {
    /// Gossip has `grace` for bringing a segment by itself.
    pub fn new(grace: Duration) -> Self {
        let grace_ms = grace.as_millis() as Millis;
        Self { grace_ms, origins: BTreeMap::new(), penalties: BTreeMap::new(), running: 0, last: RouterId(0) }
    }

    /// What to do now about what is wanted. `has(peer, want)` says whether that peer is known to be
    /// past it.
    pub fn next(
        &mut self,
        wants: Vec<Want>,
        candidates: &[Candidate],
        has: impl Fn(RouterId, &Want) -> bool,
        now: Millis,
        rng: &mut SmallRng,
    ) -> Vec<Step> {
        let wanted: BTreeSet<RouterId> = wants.iter().map(|want| want.origin).collect();
        self.origins.retain(|id, origin| origin.running || wanted.contains(id));
        let last = self.last;
        let (after, before): (Vec<_>, Vec<_>) = wants.into_iter().partition(|want| want.origin > last);
        let in_turn = after.into_iter().chain(before);
        in_turn.filter_map(|want| self.step(want, candidates, &has, now, rng)).collect()
    }

    /// What became of a question to `from` about `origin`.
    pub fn answered(&mut self, origin: RouterId, from: RouterId, outcome: Outcome, now: Millis) {
        self.running = self.running.saturating_sub(1);
        let state = self.origins.entry(origin).or_default();
        state.running = false;
        match outcome {
            Outcome::Answered { more } => {
                self.penalties.remove(&from);
                if !more {
                    state.without.insert(from);
                }
            }
            Outcome::Failed => self.punish(from, now),
        }
    }

    /// No answer will come to what is on its way.
    pub fn reset(&mut self) {
        self.running = 0;
        self.origins.clear();
    }

    /// Leaves a peer alone for a while: it did not answer.
    pub fn punish(&mut self, peer: RouterId, now: Millis) {
        let penalty = self.penalties.entry(peer).or_default();
        let longer = PENALTY_MS << penalty.failures.min(10);
        penalty.until = now.saturating_add(longer.min(MAX_PENALTY_MS));
        penalty.failures = penalty.failures.saturating_add(1);
    }

    /// Whether that peer may be asked now.
    pub fn may_ask(&self, peer: RouterId, now: Millis) -> bool {
        self.penalties.get(&peer).is_none_or(|penalty| penalty.until <= now)
    }

    /// Forgets peers that are gone.
    pub fn keep_only(&mut self, peers: &BTreeSet<RouterId>) {
        self.penalties.retain(|peer, _| peers.contains(peer));
    }

    fn step(
        &mut self,
        want: Want,
        candidates: &[Candidate],
        has: &impl Fn(RouterId, &Want) -> bool,
        now: Millis,
        rng: &mut SmallRng,
    ) -> Option<Step> {
        let (&(first, _), &(_, last)) = (want.holes.first()?, want.holes.last()?);
        let grace = if want.pointed { 0 } else { self.grace_ms };
        let origin = self.origins.entry(want.origin).or_default();
        if origin.running {
            return None;
        }
        if (origin.first, origin.generation) != (first, want.generation) {
            // A little apart from the others, who miss the same.
            let jitter = rng.random_range(0..=self.grace_ms / 8);
            let not_before = want.since.saturating_add(grace).saturating_add(jitter);
            *origin = Origin { first, last, generation: want.generation, not_before, ..Origin::default() };
        }
        if origin.not_before > now {
            return None;
        }
        let others: Vec<&Candidate> =
            candidates.iter().filter(|it| !origin.without.contains(&it.id)).collect();
        let vain = others.is_empty() && !candidates.is_empty();
        if vain || now.saturating_sub(want.since) > log::MAX_AGE_MS {
            return Some(Step::GiveUp(up_to(want, origin.last)));
        }
        if self.running >= MAX_RUNNING {
            return None;
        }
        let from = choose(&others, &self.penalties, &want, has, now, rng)?.clone();
        origin.running = true;
        self.running += 1;
        self.last = want.origin;
        Some(Step::Ask { want, from })
    }
}

/// The origin itself; or someone who is past it; or anyone.
fn choose<'a>(
    candidates: &[&'a Candidate],
    penalties: &BTreeMap<RouterId, Penalty>,
    want: &Want,
    has: &impl Fn(RouterId, &Want) -> bool,
    now: Millis,
    rng: &mut SmallRng,
) -> Option<&'a Candidate> {
    let may_ask = |it: &&&Candidate| penalties.get(&it.id).is_none_or(|penalty| penalty.until <= now);
    let free: Vec<&Candidate> = candidates.iter().filter(may_ask).copied().collect();
    if let Some(origin) = free.iter().find(|it| it.id == want.origin) {
        return Some(origin);
    }
    let past: Vec<&Candidate> = free.iter().filter(|it| has(it.id, want)).copied().collect();
    let among = if past.is_empty() { free } else { past };
    let last = among.len().checked_sub(1)?;
    among.get(rng.random_range(0..=last)).copied()
}

/// The holes up to number `last`: what is later, or a hole has grown to since, was not asked for yet.
fn up_to(mut want: Want, last: u64) -> Want {
    want.holes.retain(|hole| hole.0 <= last);
    want.holes.iter_mut().for_each(|hole| hole.1 = hole.1.min(last));
    want
}

#[cfg(test)]
mod tests;
