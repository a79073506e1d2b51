//! The candidates of a decision with their votes, for people to look at.

use std::sync::Arc;

use grapevine_route::{Ballot, Candidate, Decision, Votes};
use grapevine_tree::Millis;

use crate::observe::decisions::Considered;
use crate::replica::Replica;

/// What was decided on.
pub(super) struct Field<'a> {
    /// All replicas.
    pub(super) replicas: &'a [Arc<Replica>],
    /// Where among them each candidate is.
    pub(super) positions: &'a [usize],
    pub(super) candidates: &'a [Candidate],
    pub(super) ballot: &'a Ballot,
    pub(super) bytes_per_token: f32,
    pub(super) now: Millis,
}

impl Field<'_> {
    /// At most `most` candidates, the best first, and always the winner.
    pub(super) fn considered(&self, decision: &Decision, most: usize) -> Vec<Considered> {
        let total = |index: usize| self.ballot.votes.get(index).map_or(0.0, Votes::total);
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        order.sort_by(|a, b| total(*a).total_cmp(&total(*b)).then(a.cmp(b)));
        let winner = order.iter().position(|index| *index == decision.index);
        if let Some(place) = winner.filter(|place| *place >= most) {
            order.swap(place, most.saturating_sub(1));
        }
        order.truncate(most);
        order.into_iter().filter_map(|index| self.one(index, decision)).collect()
    }

    fn one(&self, index: usize, decision: &Decision) -> Option<Considered> {
        let candidate = self.candidates.get(index)?;
        let replica = self.replicas.get(*self.positions.get(index)?)?;
        let matched = self.ballot.matched.get(index).copied().flatten();
        let tokens = matched.map_or(0.0, |m| m.bytes as f32 / self.bytes_per_token) as u32;
        Some(Considered {
            replica: Arc::clone(replica),
            matched_tokens: tokens.min(decision.prompt_tokens),
            count: matched.map_or(0.0, |m| m.count),
            teacher: matched.map(|m| m.teacher),
            votes: self.ballot.votes.get(index).copied().unwrap_or_default(),
            inflight: candidate.load.inflight,
            queued_tokens: candidate.load.queued_tokens,
            weight: candidate.weight,
            standing: replica.health.standing(self.now),
            won: index == decision.index,
        })
    }
}
