//! From votes to a decision.

use grapevine_tree::{Match, Matches, PrefixKey, ReplicaId, boundary};
use rand::{Rng, RngExt};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::decision::{Decision, Reason};
use crate::guard;
use crate::load::LoadView;
use crate::vote::{self, FleetView, Votes, Weights};

/// How replicas are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Votes: prefix affinity against load.
    #[default]
    Affinity,
    /// In turn.
    RoundRobin,
    /// At random.
    Random,
    /// The fewest requests in flight, ties at random.
    LeastLoaded,
}

/// A replica that may take the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its id.
    pub replica: ReplicaId,
    /// Relative capacity, > 0; 1 for all where they are equal.
    pub weight: f32,
    /// Its load.
    pub load: LoadView,
    /// KV cache use 0..=1 where the engine says.
    pub kv_use: Option<f32>,
}

impl Candidate {
    /// What of `load` falls on a unit of its weight. By the inverse, which is the same for all that is asked of one
    /// candidate: divisions would be half of a decision among a thousand.
    pub(crate) fn share(&self, load: f32) -> f32 {
        load * (1.0 / self.weight)
    }
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Estimated prompt length in tokens; 0 without a key.
    pub prompt_tokens: f32,
    /// Bytes of the canonical prompt for one token.
    pub bytes_per_token: f32,
    /// What the tree knows, deepest first; empty without a key.
    pub matches: &'a Matches,
    /// Hash at the first boundary past the deepest match, `None` without a key. Names the cold part
    /// of the prompt deep enough to tell prompts with a common head apart.
    pub cold_hash: Option<u64>,
    /// A number that grows by one for each request, for round robin.
    pub turn: u64,
    /// This router hears its peers, or has none: what it knows of replicas is what the fleet knows.
    pub informed: bool,
}

/// Every candidate's votes in the last decision, in the order of the candidates. Reuse it: no
/// allocation once it has grown.
#[derive(Clone, Debug, Default)]
pub struct Ballot {
    /// Votes of each candidate.
    pub votes: Vec<Votes>,
    /// What each candidate is believed to hold.
    pub matched: Vec<Option<Match>>,
    /// The tokens of it.
    held: Vec<f32>,
    /// The most that any of them holds.
    deepest: f32,
    best: Vec<usize>,
}

/// The hash at the first boundary past the deepest match, which names the cold part of the prompt; the last
/// one where all of it is matched.
pub fn cold_hash(key: &PrefixKey, matches: &Matches) -> Option<u64> {
    let deepest = matches.iter().map(|m| m.bytes as usize).max().unwrap_or(0);
    let past = key.hashes.iter().enumerate().find(|(index, _)| boundary::depth(*index) > deepest);
    past.map(|(_, hash)| hash).or(key.hashes.last()).copied()
}

/// Chooses one of `candidates`; `None` when there are none.
pub fn decide(
    policy: Policy,
    w: &Weights,
    request: &Request<'_>,
    candidates: &[Candidate],
    ballot: &mut Ballot,
    rng: &mut impl Rng,
) -> Option<Decision> {
    ballot.fill_matches(request, candidates);
    if candidates.is_empty() {
        return None;
    }
    let baseline = |index: usize| ballot.decision(request, candidates, index, Reason::Policy, None, 1);
    Some(match policy {
        Policy::RoundRobin => baseline((request.turn % candidates.len() as u64) as usize),
        Policy::Random => baseline(rng.random_range(0..candidates.len())),
        Policy::LeastLoaded => least_loaded(request, candidates, ballot, rng),
        Policy::Affinity => by_votes(w, request, candidates, ballot, rng),
    })
}

fn least_loaded(
    request: &Request<'_>,
    candidates: &[Candidate],
    ballot: &mut Ballot,
    rng: &mut impl Rng,
) -> Decision {
    let load = |i: usize, _: &Ballot| candidates[i].share(candidates[i].load.inflight);
    let (index, tied) = ballot.lowest(candidates.len(), rng, load, |_, _| 0.0);
    ballot.decision(request, candidates, index, Reason::Policy, None, tied)
}

fn by_votes(
    w: &Weights,
    request: &Request<'_>,
    candidates: &[Candidate],
    ballot: &mut Ballot,
    rng: &mut impl Rng,
) -> Decision {
    let fleet = survey(request, candidates, ballot);
    ballot.votes.clear();
    for (i, c) in candidates.iter().enumerate() {
        ballot.votes.push(Votes {
            prefix: vote::prefix(w, &fleet, request, ballot.held[i]),
            queue: vote::queue(w, c),
            inflight: vote::inflight(w, c),
            kv: vote::kv(w, request, c),
            home: vote::home(w, &fleet, i),
            spread: vote::spread(w, &fleet, c),
        });
    }
    let mut guarded = None;
    loop {
        let cost = |i: usize, b: &Ballot| b.votes[i].total();
        let count = |i: usize, b: &Ballot| -b.matched[i].map_or(0.0, |m| m.count);
        let (index, tied) = ballot.lowest(candidates.len(), rng, cost, count);
        let held = ballot.held[index];
        let full = vote::prefix(w, &fleet, request, 0.0);
        let favoured = held > 0.0 && ballot.votes[index].prefix < full;
        if favoured && guard::overloaded(w, &fleet, &candidates[index]) {
            // It keeps its match (the prediction stays honest) but not the vote.
            ballot.votes[index].prefix = full;
            guarded.get_or_insert(candidates[index].replica);
            continue;
        }
        let reason = reason_of(request, candidates, ballot, &fleet, index, guarded);
        return ballot.decision(request, candidates, index, reason, guarded, tied);
    }
}

/// What the scorers must know of all candidates. Only candidates count: a dead replica's empty queue
/// must not move a mean.
fn survey(request: &Request<'_>, candidates: &[Candidate], ballot: &Ballot) -> FleetView {
    let n = candidates.len() as f32;
    let (intake, inflight) = candidates.iter().fold((0.0, 0.0), |(intake, inflight), c| {
        (intake + c.share(c.load.intake_tokens), inflight + c.share(c.load.inflight))
    });
    let matched = ballot.matched.iter().flatten();
    let best = matched.max_by(|a, b| a.bytes.cmp(&b.bytes).then(a.count.total_cmp(&b.count)));
    FleetView {
        mean_intake: intake / n,
        mean_inflight: inflight / n,
        cold_tokens: (request.prompt_tokens - ballot.deepest).max(0.0),
        worth: vote::worth(best.map_or(0.0, |m| m.count), candidates.len()),
        home: request.cold_hash.and_then(|hash| home_of(hash, candidates)),
        informed: request.informed,
    }
}

/// Weighted rendezvous hashing: every router ranks the replicas of one hash alike, and a replica
/// that comes or goes moves only its own share.
fn home_of(hash: u64, candidates: &[Candidate]) -> Option<usize> {
    let draw = |c: &Candidate| xxh3_64_with_seed(&c.replica.0.to_le_bytes(), hash) >> 11;
    let draws = candidates.iter().map(draw).enumerate();
    if candidates.windows(2).all(|two| two[0].weight == two[1].weight) {
        // The score below grows with the draw: no logarithms needed.
        return draws.max_by_key(|&(_, draw)| draw).map(|(i, _)| i);
    }
    let score = |(i, draw): (usize, u64)| {
        // (0, 1], so that the logarithm is finite.
        let unit = (draw as f64 + 1.0) / (1u64 << 53) as f64;
        (i, -f64::from(candidates[i].weight) / unit.ln().min(-f64::MIN_POSITIVE))
    };
    draws.map(score).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}

fn reason_of(
    request: &Request<'_>,
    candidates: &[Candidate],
    ballot: &Ballot,
    fleet: &FleetView,
    index: usize,
    guarded: Option<ReplicaId>,
) -> Reason {
    let held = ballot.held[index];
    let deepest = request.prompt_tokens - fleet.cold_tokens;
    if candidates.len() == 1 {
        Reason::Only
    } else if guarded.is_some_and(|g| g != candidates[index].replica) {
        Reason::Guard
    } else if request.cold_hash.is_none() && request.matches.is_empty() {
        Reason::NoKey
    } else if held < deepest {
        Reason::Spill
    } else if held > 0.0 {
        Reason::Affinity
    } else if fleet.home == Some(index) {
        Reason::Home
    } else {
        Reason::Load
    }
}

impl Ballot {
    fn fill_matches(&mut self, request: &Request<'_>, candidates: &[Candidate]) {
        self.votes.clear();
        self.matched.clear();
        self.matched.resize(candidates.len(), None);
        self.held.clear();
        self.held.resize(candidates.len(), 0.0);
        self.deepest = 0.0;
        if request.matches.is_empty() {
            return;
        }
        // A replica set is kept in the order of ids; a caller that does not pays in time only.
        let sorted = candidates.is_sorted_by_key(|c| c.replica);
        for m in request.matches {
            let at = if sorted {
                candidates.binary_search_by_key(&m.replica, |c| c.replica).ok()
            } else {
                candidates.iter().position(|c| c.replica == m.replica)
            };
            let Some(at) = at.filter(|&at| self.matched[at].is_none()) else {
                // Deepest first: a replica's first match is its deepest.
                continue;
            };
            self.matched[at] = Some(*m);
            self.held[at] = (m.bytes as f32 / request.bytes_per_token).min(request.prompt_tokens);
            self.deepest = self.deepest.max(self.held[at]);
        }
    }

    /// The index with the lowest cost, of those with equal ones that with the lowest tie-break, equal ones again at
    /// random, and how many were equal.
    fn lowest(
        &mut self,
        n: usize,
        rng: &mut impl Rng,
        cost: impl Fn(usize, &Self) -> f32,
        tie_break: impl Fn(usize, &Self) -> f32,
    ) -> (usize, u32) {
        let mut best = std::mem::take(&mut self.best);
        best.clear();
        let mut lowest = f32::INFINITY;
        for i in 0..n {
            let this = cost(i, self);
            let order = this.total_cmp(&lowest).then_with(|| {
                let known = best.first().map_or(f32::INFINITY, |&known| tie_break(known, self));
                tie_break(i, self).total_cmp(&known)
            });
            if order.is_lt() {
                lowest = this;
                best.clear();
            }
            if order.is_le() {
                best.push(i);
            }
        }
        let picked = if best.len() > 1 { best[rng.random_range(0..best.len())] } else { best[0] };
        let tied = best.len() as u32;
        self.best = best;
        (picked, tied)
    }

    fn decision(
        &self,
        request: &Request<'_>,
        candidates: &[Candidate],
        index: usize,
        reason: Reason,
        guarded: Option<ReplicaId>,
        tied: u32,
    ) -> Decision {
        Decision {
            replica: candidates[index].replica,
            index,
            reason,
            prompt_tokens: request.prompt_tokens as u32,
            matched_tokens: self.held[index] as u32,
            best_matched_tokens: self.deepest as u32,
            teacher: self.matched[index].map(|m| m.teacher),
            guarded,
            tied,
        }
    }
}

#[cfg(test)]
mod tests;
