//! Shadow mode: route by load alone, and say what affinity would have done.

use grapevine_tree::Matches;
use rand::Rng;

use crate::decision::{Decision, Reason};
use crate::pick::{Ballot, Candidate, Policy, Request, decide};
use crate::vote::Weights;

/// One request, decided twice.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadowed {
    /// Where it goes: by load alone. Its matched tokens are what that replica happens to hold.
    pub done: Decision,
    /// Where affinity would have sent it.
    pub wanted: Decision,
}

impl Shadowed {
    /// Both name the same replica.
    pub fn agrees(&self) -> bool {
        self.done.replica == self.wanted.replica
    }
}

/// Chooses one of `candidates` by load alone, and says which one affinity would have chosen; `None` when
/// there are none. The ballot holds affinity's votes.
pub fn decide_shadowed(
    w: &Weights,
    request: &Request<'_>,
    candidates: &[Candidate],
    ballot: &mut Ballot,
    rng: &mut impl Rng,
) -> Option<Shadowed> {
    const NOTHING: &Matches = &Matches::new();
    let blind = Request { matches: NOTHING, cold_hash: None, ..*request };
    let by_load = decide(Policy::Affinity, w, &blind, candidates, ballot, rng)?;
    let wanted = decide(Policy::Affinity, w, request, candidates, ballot, rng)?;
    let matched = ballot.matched.get(by_load.index).copied().flatten();
    let tokens =
        matched.map_or(0.0, |m| (m.bytes as f32 / request.bytes_per_token).min(request.prompt_tokens));
    let done = Decision {
        reason: Reason::Shadow,
        matched_tokens: tokens as u32,
        best_matched_tokens: wanted.best_matched_tokens,
        teacher: matched.map(|m| m.teacher),
        ..by_load
    };
    Some(Shadowed { done, wanted })
}

#[cfg(test)]
mod tests {
    use grapevine_tree::{Match, ReplicaId, Teacher};
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::load::LoadView;

    fn fleet(inflight: [u32; 3]) -> Vec<Candidate> {
        let view = |n| LoadView { inflight: n as f32, queued_tokens: 10.0 * n as f32, intake_tokens: 0.0 };
        let candidate =
            |(i, n)| Candidate { replica: ReplicaId(i), weight: 1.0, load: view(n), kv_use: None };
        (0..).zip(inflight).map(candidate).collect()
    }

    fn shadowed(inflight: [u32; 3], matches: &Matches) -> Shadowed {
        let request = Request {
            prompt_tokens: 1_000.0,
            bytes_per_token: 4.0,
            matches,
            cold_hash: Some(7),
            turn: 0,
            informed: true,
        };
        let mut rng = SmallRng::seed_from_u64(1);
        let (w, mut ballot) = (Weights::default(), Ballot::default());
        decide_shadowed(&w, &request, &fleet(inflight), &mut ballot, &mut rng).expect("candidates")
    }

    #[test]
    fn the_request_goes_by_load_and_the_gain_of_affinity_is_known() {
        let held = |replica, tokens: u32| Match {
            replica: ReplicaId(replica),
            bytes: tokens * 4,
            count: 1.0,
            teacher: Teacher::Own,
        };
        let found = shadowed([2, 0, 3], &vec![held(2, 900), held(1, 100)]);
        assert_eq!((found.done.replica, found.done.reason), (ReplicaId(1), Reason::Shadow));
        assert_eq!((found.done.matched_tokens, found.done.best_matched_tokens), (100, 900));
        assert_eq!((found.wanted.replica, found.wanted.matched_tokens), (ReplicaId(2), 900));
        assert!(!found.agrees());
    }

    #[test]
    fn affinity_never_pulls_a_shadowed_request() {
        for busy in 1..5 {
            let m = Match { replica: ReplicaId(0), bytes: 4_000, count: 9.0, teacher: Teacher::Own };
            let found = shadowed([busy, 0, 9], &vec![m]);
            assert_eq!(found.done.replica, ReplicaId(1));
            assert_eq!(found.done.teacher, None);
        }
    }
}
