//! The JSON of `/api/v1/decisions` and `/api/v1/explain`.

use std::collections::BTreeMap;

use grapevine_mesh::MeshStatus;
use grapevine_route::{Decision, Votes};
use grapevine_tree::Teacher;
use serde::{Deserialize, Serialize};

use super::survey::Observatory;
use crate::observe::decisions::{Considered, Recorded};
use crate::proxy::explain::Explanation;

/// Recent decisions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DecisionList {
    /// The newest first.
    pub decisions: Vec<DecisionView>,
    /// Decisions that were not kept since the start: only so many a second are.
    pub skipped: u64,
}

/// Why a request went where it did, or would go.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecisionView {
    /// Its number; absent in an explanation.
    pub seq: Option<u64>,
    /// When, Unix time in ms.
    pub at_ms: u64,
    /// The router that decided.
    pub router: String,
    /// The path, if it is one that the router knows.
    pub path: Option<String>,
    /// The request's id.
    pub request_id: Option<String>,
    /// The trace's id.
    pub trace_id: Option<String>,
    /// The model that was asked for.
    pub model: Option<String>,
    /// 1 for the first replica that was tried.
    pub attempt: u32,
    /// What the tree said: `answered`, `late` or `none`.
    pub lookup: String,
    /// Why the winner won.
    pub reason: String,
    /// The winner.
    pub replica: String,
    /// Tokens of the prompt, estimated from bytes.
    pub prompt_tokens: u32,
    /// Of those, believed cached there.
    pub matched_tokens: u32,
    /// The most that any candidate is believed to hold.
    pub best_matched_tokens: u32,
    /// Who taught the winner's match: `own`, or a peer's name.
    pub teacher: Option<String>,
    /// The replica whose affinity vote the guard took.
    pub guarded: Option<String>,
    /// Candidates that shared the lowest sum; 1: no tie.
    pub tied: u32,
    /// From the whole request read to a replica chosen, microseconds.
    pub decision_us: u64,
    /// How it ended; absent while it runs.
    pub outcome: Option<String>,
    /// Cached tokens, as the answer reported.
    pub reported_cached_tokens: Option<u64>,
    /// Replicas that might have got it.
    pub candidates_total: usize,
    /// The best of them, and always the winner.
    pub candidates: Vec<CandidateView>,
}

/// A replica that might have got the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CandidateView {
    /// Its name.
    pub replica: String,
    /// Tokens of the prompt that it is believed to hold.
    pub matched_tokens: u32,
    /// How often it was picked for that lately.
    pub count: f32,
    /// Who taught that.
    pub teacher: Option<String>,
    /// The sum of its votes, in tokens of cost; the lowest wins.
    pub total: f32,
    /// Its votes by name.
    pub votes: BTreeMap<String, f32>,
    /// Requests in flight there.
    pub inflight: f32,
    /// Prefill tokens queued there.
    pub queued_tokens: f32,
    /// Its relative capacity.
    pub weight: f32,
    /// Its health.
    pub standing: String,
    /// It won.
    pub won: bool,
}

/// An explanation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainView {
    /// The decision.
    #[serde(flatten)]
    pub decision: DecisionView,
    /// How the router chooses.
    pub policy: String,
    /// `route` or `shadow`.
    pub mode: String,
    /// Where affinity would have sent it, in shadow mode.
    pub affinity_replica: Option<String>,
    /// What was read of the request.
    pub key: KeyView,
}

/// A prompt's key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeyView {
    /// Bytes of the prompt, as they are counted.
    pub bytes: u64,
    /// Boundaries.
    pub boundaries: usize,
    /// The first 8 hexadecimal digits of the deepest one's hash.
    pub hash8: Option<String>,
    /// The way of cutting and hashing.
    pub scheme: u16,
}

/// Puts names in the place of ids.
struct Namer<'a> {
    router: &'a str,
    mesh: &'a MeshStatus,
}

impl Observatory {
    /// At most `limit` decisions after number `after`.
    pub fn decisions(&self, after: u64, limit: usize) -> DecisionList {
        let mesh = self.mesh.status();
        let namer = Namer { router: &self.router_id, mesh: &mesh };
        let recent = self.proxy.decisions.after(after, limit);
        DecisionList {
            decisions: recent.iter().map(|recorded| namer.recorded(recorded)).collect(),
            skipped: self.proxy.decisions.skipped(),
        }
    }

    /// An explanation as it is shown.
    pub fn explained(&self, path: &str, explained: &Explanation, at_ms: u64) -> ExplainView {
        let mesh = self.mesh.status();
        let namer = Namer { router: &self.router_id, mesh: &mesh };
        let name = |id| self.replicas.replicas().load().get(id).map(|replica| replica.name.clone());
        let mut decision = namer.decision(&explained.decision, &explained.candidates, at_ms);
        decision.path = crate::metrics::kind::route_of(path).map(str::to_owned);
        decision.model.clone_from(&explained.model);
        decision.lookup = explained.lookup.name().to_owned();
        decision.decision_us = explained.micros;
        decision.guarded = explained.guarded.as_ref().map(|replica| replica.name.clone());
        decision.candidates_total = explained.candidates_total;
        ExplainView {
            decision,
            policy: super::survey::policy_name(self.policy).to_owned(),
            mode: self.mode.name().to_owned(),
            affinity_replica: explained.wanted.as_ref().and_then(|wanted| name(wanted.replica)),
            key: KeyView {
                bytes: explained.key_bytes,
                boundaries: explained.boundaries,
                hash8: explained.hash.map(hash8),
                scheme: grapevine_tree::boundary::SCHEME,
            },
        }
    }
}

impl Namer<'_> {
    fn recorded(&self, recorded: &Recorded) -> DecisionView {
        DecisionView {
            seq: Some(recorded.seq),
            path: recorded.path.map(str::to_owned),
            request_id: recorded.request_id.clone(),
            trace_id: recorded.trace_id.clone(),
            model: recorded.model.clone(),
            attempt: recorded.attempt,
            lookup: recorded.lookup.name().to_owned(),
            guarded: recorded.guarded.as_ref().map(|replica| replica.name.clone()),
            decision_us: recorded.micros,
            outcome: recorded.outcome.get().map(|outcome| (*outcome).to_owned()),
            reported_cached_tokens: recorded.reported_cached.get().copied(),
            candidates_total: recorded.candidates_total,
            ..self.decision(&recorded.decision, &recorded.candidates, recorded.at_ms)
        }
    }

    fn decision(&self, decision: &Decision, candidates: &[Considered], at_ms: u64) -> DecisionView {
        let winner = candidates.iter().find(|candidate| candidate.won);
        DecisionView {
            seq: None,
            at_ms,
            router: self.router.to_owned(),
            path: None,
            request_id: None,
            trace_id: None,
            model: None,
            attempt: 1,
            lookup: String::new(),
            reason: decision.reason.name().to_owned(),
            replica: winner.map_or_else(|| format!("{:?}", decision.replica), |w| w.replica.name.clone()),
            prompt_tokens: decision.prompt_tokens,
            matched_tokens: decision.matched_tokens,
            best_matched_tokens: decision.best_matched_tokens,
            teacher: decision.teacher.map(|teacher| self.teacher(teacher)),
            guarded: None,
            tied: decision.tied,
            decision_us: 0,
            outcome: None,
            reported_cached_tokens: None,
            candidates_total: candidates.len(),
            candidates: candidates.iter().map(|candidate| self.candidate(candidate)).collect(),
        }
    }

    fn candidate(&self, candidate: &Considered) -> CandidateView {
        CandidateView {
            replica: candidate.replica.name.clone(),
            matched_tokens: candidate.matched_tokens,
            count: candidate.count,
            teacher: candidate.teacher.map(|teacher| self.teacher(teacher)),
            total: candidate.votes.total(),
            votes: votes(&candidate.votes),
            inflight: candidate.inflight,
            queued_tokens: candidate.queued_tokens,
            weight: candidate.weight,
            standing: candidate.standing.name().to_owned(),
            won: candidate.won,
        }
    }

    fn teacher(&self, teacher: Teacher) -> String {
        match teacher {
            Teacher::Own => "own".to_owned(),
            Teacher::Peer(id) => {
                let peer = self.mesh.peers.iter().find(|peer| peer.id == id);
                peer.map_or_else(|| format!("{id:?}"), |peer| peer.name.to_string())
            }
        }
    }
}

fn votes(votes: &Votes) -> BTreeMap<String, f32> {
    let Votes { prefix, queue, inflight, kv, home, spread } = *votes;
    let named = [
        ("prefix", prefix),
        ("queue", queue),
        ("inflight", inflight),
        ("kv", kv),
        ("home", home),
        ("spread", spread),
    ];
    named.into_iter().map(|(name, vote)| (name.to_owned(), vote)).collect()
}

/// A hash as people see it: enough to tell prefixes apart.
pub(super) fn hash8(hash: u64) -> String {
    format!("{:08x}", hash >> 32)
}
