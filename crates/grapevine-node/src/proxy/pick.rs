//! From a snapshot of the replicas to one of them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use grapevine_route::{
    Ballot, Candidate, Decision, LoadGuard, Policy, Request, Shadowed, Weights, cold_hash, decide,
    decide_shadowed, random_tokens,
};
use grapevine_tree::{Matches, Millis, PrefixKey, ReplicaId};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::consider::Field;
use super::expectation::Expectation;
use super::hearing::Hearing;
use crate::config::Mode;
use crate::error::RouterError;
use crate::observe::decisions::Considered;
use crate::replica::health::Standing;
use crate::replica::{Replica, ReplicaSet, SharedReplicas};

/// Chooses replicas.
#[derive(Debug)]
pub(super) struct Picker {
    pub(super) replicas: SharedReplicas,
    pub(super) policy: Policy,
    pub(super) mode: Mode,
    pub(super) weights: Weights,
    pub(super) bytes_per_token: f32,
    /// Most of this router's requests on one replica; 0 = no limit.
    pub(super) max_inflight: usize,
    /// Time in which a replica that came up grows to its full share.
    pub(super) slow_start_ms: Millis,
    pub(super) hearing: Arc<Hearing>,
    pub(super) seed: u64,
}

/// What is to be placed.
pub(super) struct Question<'a> {
    /// The request's number.
    pub(super) turn: u64,
    /// Its prefix key, if it has one.
    pub(super) key: Option<&'a PrefixKey>,
    /// What the tree knows; `None` when it was not asked or did not answer.
    pub(super) matches: Option<&'a Matches>,
    /// The model that it names.
    pub(super) model: Option<&'a str>,
    /// The replica that it must go to, if that one can be reached.
    pub(super) only: Option<ReplicaId>,
    /// Replicas that already refused it.
    pub(super) except: &'a [ReplicaId],
    /// Candidates that somebody wants to see, at most.
    pub(super) show: usize,
}

/// A replica for a request, and why. Nothing is counted yet.
pub(super) struct Choice {
    pub(super) replica: Arc<Replica>,
    pub(super) decision: Decision,
    /// Tokens that a replica drawn at random would have had cached, estimated.
    pub(super) random_tokens: u32,
    /// What affinity would have done, in shadow mode.
    pub(super) shadowed: Option<Shadowed>,
    pub(super) candidates_total: usize,
    /// The best of them, as many as were asked for.
    pub(super) considered: Vec<Considered>,
}

/// A replica that has the request, counted there until this is dropped.
pub(super) struct Pick {
    pub(super) replica: Arc<Replica>,
    pub(super) load: LoadGuard,
    pub(super) decision: Decision,
    /// What it should find cached there; `None` when nothing is known of that.
    pub(super) expectation: Option<Expectation>,
}

#[derive(Default)]
struct Scratch {
    /// Positions of those that serve the request's model.
    eligible: Vec<usize>,
    candidates: Vec<Candidate>,
    positions: Vec<usize>,
    ballot: Ballot,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Picker {
    /// The replica for `question`, already counted as loaded.
    ///
    /// Limits are read before the count is raised, so a burst may pass one by the number of worker
    /// threads.
    pub(super) fn pick(&self, question: &Question<'_>, now: Millis) -> Result<(Pick, Choice), RouterError> {
        let choice = self.choose(question, now)?;
        let (replica, decision) = (Arc::clone(&choice.replica), choice.decision.clone());
        let load = replica.load.begin(decision.uncached_tokens());
        replica.counters.picked(decision.prompt_tokens, decision.matched_tokens);
        replica.counters.random_tokens.fetch_add(u64::from(choice.random_tokens), Relaxed);
        Ok((Pick { replica, load, decision, expectation: None }, choice))
    }

    /// The replica for `question`. Changes nothing.
    pub(super) fn choose(&self, question: &Question<'_>, now: Millis) -> Result<Choice, RouterError> {
        let set = self.replicas.load();
        SCRATCH.with_borrow_mut(|scratch| {
            self.gather(&set, question, now, scratch)?;
            let (decision, shadowed, random_tokens) =
                self.decide(question, scratch).ok_or(RouterError::NoReplica)?;
            let position = scratch.positions.get(decision.index).ok_or(RouterError::NoReplica)?;
            let replica = Arc::clone(set.replicas.get(*position).ok_or(RouterError::NoReplica)?);
            let Scratch { candidates, positions, ballot, .. } = scratch;
            let candidates_total = candidates.len();
            let bytes_per_token = self.bytes_per_token;
            let field =
                Field { replicas: &set.replicas, positions, candidates, ballot, bytes_per_token, now };
            let considered =
                if question.show == 0 { Vec::new() } else { field.considered(&decision, question.show) };
            Ok(Choice { replica, decision, random_tokens, shadowed, candidates_total, considered })
        })
    }

    /// The candidates: those of the best standing that anybody has, so the last replica is never ejected and
    /// dead ones enter no statistic; only those that serve the request's model. One that drains is none, except
    /// for what it alone owns. When fewer than half of the replicas are good, those are too few to carry
    /// what was meant for all, and it is rather this router that sees badly: then everybody is a candidate who
    /// is not known to be gone.
    fn gather(
        &self,
        set: &ReplicaSet,
        question: &Question<'_>,
        now: Millis,
        scratch: &mut Scratch,
    ) -> Result<(), RouterError> {
        scratch.candidates.clear();
        scratch.positions.clear();
        if let Some(owner) = question.only.and_then(|only| position_of(set, only, now)) {
            let replica = set.replicas.get(owner).ok_or(RouterError::NoReplica)?;
            scratch.candidates.push(candidate(replica, 1.0, now));
            scratch.positions.push(owner);
            return Ok(());
        }
        let (good, best) = survey(set, question, now, &mut scratch.eligible)?;
        if best == Standing::NotReady {
            return Err(RouterError::NoReplica);
        }
        let panic = good * 2 < scratch.eligible.len();
        for &position in &scratch.eligible {
            let Some(replica) = set.replicas.get(position) else { continue };
            let standing = replica.health.standing(now);
            let unsure = panic && standing != Standing::NotReady && !replica.health.is_refused();
            if question.except.contains(&replica.id) || (standing != best && !unsure) {
                continue;
            }
            if self.max_inflight != 0 && replica.load.own_inflight() as usize >= self.max_inflight {
                continue;
            }
            let warmth = replica.health.warmth(now, self.slow_start_ms);
            scratch.candidates.push(candidate(replica, warmth, now));
            scratch.positions.push(position);
        }
        if scratch.candidates.is_empty() { Err(RouterError::Overloaded) } else { Ok(()) }
    }

    /// The decision, what it would have been in shadow mode, and what a draw would have found.
    fn decide(
        &self,
        question: &Question<'_>,
        scratch: &mut Scratch,
    ) -> Option<(Decision, Option<Shadowed>, u32)> {
        const NONE: &Matches = &Matches::new();
        let matches = question.matches.unwrap_or(NONE);
        let request = Request {
            prompt_tokens: question.key.map_or(0.0, |key| key.bytes as f32 / self.bytes_per_token),
            bytes_per_token: self.bytes_per_token,
            matches,
            // Without the tree's answer nothing is known to be cold: by load alone.
            cold_hash: question.matches.and(question.key).and_then(|key| cold_hash(key, matches)),
            turn: question.turn,
            informed: self.hearing.hears_all(),
        };
        let mut rng = SmallRng::seed_from_u64(self.seed ^ question.turn);
        let Scratch { candidates, ballot, .. } = scratch;
        let random = random_tokens(&request, candidates.len()) as u32;
        if self.mode == Mode::Shadow && self.policy == Policy::Affinity && candidates.len() > 1 {
            let shadowed = decide_shadowed(&self.weights, &request, candidates, ballot, &mut rng)?;
            return Some((shadowed.done.clone(), Some(shadowed), random));
        }
        let decision = decide(self.policy, &self.weights, &request, candidates, ballot, &mut rng)?;
        Some((decision, None, random))
    }
}

/// Notes who serves the request's model and does not drain. How many of them are good, and the best standing
/// among those that did not refuse it already.
fn survey(
    set: &ReplicaSet,
    question: &Question<'_>,
    now: Millis,
    eligible: &mut Vec<usize>,
) -> Result<(usize, Standing), RouterError> {
    eligible.clear();
    if set.open().next().is_none() {
        return Err(RouterError::EmptyFleet);
    }
    let suits = set.eligible(question.model, now)?;
    let (mut good, mut best) = (0, Standing::NotReady);
    for (position, replica) in set.replicas.iter().enumerate() {
        if replica.draining || !suits.allows(replica) {
            continue;
        }
        eligible.push(position);
        let standing = replica.health.standing(now);
        good += usize::from(standing == Standing::Good);
        if !question.except.contains(&replica.id) {
            best = best.min(standing);
        }
    }
    Ok((good, best))
}

fn candidate(replica: &Replica, warmth: f32, now: Millis) -> Candidate {
    let (weight, load) = (replica.weight * warmth, replica.load.view());
    Candidate { replica: replica.id, weight, load, kv_use: replica.kv_use(load.inflight, now) }
}

/// Where a replica is in the set, if it can be asked at all.
fn position_of(set: &ReplicaSet, id: ReplicaId, now: Millis) -> Option<usize> {
    let reachable = |r: &Arc<Replica>| r.id == id && r.health.standing(now) != Standing::NotReady;
    set.replicas.iter().position(reachable)
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use grapevine_route::Reason;
    use grapevine_tree::{Match, Teacher};

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::engine::Reading;
    use crate::replica::Vitals;
    use crate::replica::health::Probe;

    fn picker(n: u16, policy: Policy) -> Picker {
        let spec = |i| ReplicaSpec::new(format!("r{i}"), format!("http://127.0.0.1:{i}"));
        let specs: Vec<_> = (1..=n).map(spec).collect();
        Picker {
            replicas: Arc::new(ArcSwap::from_pointee(ReplicaSet::from_specs(&specs).unwrap())),
            policy,
            mode: Mode::Route,
            weights: Weights::default(),
            bytes_per_token: 4.0,
            max_inflight: 0,
            slow_start_ms: 0,
            hearing: Arc::default(),
            seed: 7,
        }
    }

    fn question(turn: u64) -> Question<'static> {
        Question { turn, key: None, matches: None, model: None, only: None, except: &[], show: 0 }
    }

    fn names(picker: &Picker, turns: u64) -> Vec<String> {
        let mut names: Vec<_> =
            (0..turns).map(|t| picker.pick(&question(t), 0).unwrap().0.replica.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    #[test]
    fn a56_every_policy_spreads_equal_requests() {
        for policy in [Policy::Affinity, Policy::RoundRobin, Policy::Random, Policy::LeastLoaded] {
            assert_eq!(names(&picker(4, policy), 100), ["r1", "r2", "r3", "r4"], "{policy:?}");
        }
    }

    #[test]
    fn a59_a_replica_that_is_not_well_is_no_candidate_unless_it_is_the_last() {
        let picker = picker(2, Policy::LeastLoaded);
        let set = picker.replicas.load_full();
        set.replicas[0].health.connect_failed(0, true, 0.5);
        assert_eq!(names(&picker, 50), ["r2"]);
        set.replicas[1].health.connect_failed(0, true, 0.5);
        assert_eq!(names(&picker, 50), ["r1", "r2"], "both ejected: both tried");
    }

    #[test]
    fn a21_when_most_look_bad_everybody_is_tried_who_is_not_known_to_be_gone() {
        let picker = picker(4, Policy::LeastLoaded);
        let set = picker.replicas.load_full();
        for replica in &set.replicas[..2] {
            replica.health.connect_failed(0, false, 0.5);
        }
        assert_eq!(names(&picker, 50), ["r3", "r4"], "half are good");
        set.replicas[2].health.connect_failed(0, false, 0.5);
        assert_eq!(names(&picker, 50), ["r1", "r2", "r3", "r4"], "one cannot carry four's load");
        set.replicas[0].health.connect_failed(0, true, 0.5);
        assert_eq!(names(&picker, 50), ["r2", "r3", "r4"], "nobody listens there");
    }

    #[test]
    fn a_replica_that_came_up_gets_a_growing_share() {
        let mut picker = picker(2, Policy::LeastLoaded);
        picker.slow_start_ms = 10_000;
        let set = picker.replicas.load_full();
        set.replicas[0].health.connect_failed(0, true, 0.5);
        set.replicas[0].health.served(50_000);
        let share = |now| {
            let held: Vec<_> = (0..100).map(|turn| picker.pick(&question(turn), now).unwrap().0).collect();
            held.iter().filter(|pick| pick.replica.name == "r1").count()
        };
        let shares = [share(50_000), share(55_000), share(60_000)];
        assert!(
            (5..15).contains(&shares[0]) && (30..42).contains(&shares[1]) && shares[2] == 50,
            "{shares:?}"
        );
    }

    fn says(picker: &Picker, position: usize, kv_use: f64) {
        let reading = Reading { kv_use: Some(kv_use), ..Reading::default() };
        let vitals = Vitals { reading, at: 0, moved_at: 0 };
        picker.replicas.load().replicas[position].engine.store(Some(Arc::new(vitals)));
    }

    #[test]
    fn a57_a_gauge_that_stuck_at_full_keeps_no_replica_from_work() {
        let picker = picker(2, Policy::Affinity);
        says(&picker, 0, 1.0);
        says(&picker, 1, 0.0);
        let key = PrefixKey { hashes: vec![1], bytes: 4_096 };
        let none = Vec::new();
        let asked = |turn| Question { key: Some(&key), matches: Some(&none), ..question(turn) };
        let share = |now| {
            let held: Vec<_> = (0..40).map(|turn| picker.pick(&asked(turn), now).unwrap()).collect();
            held.iter().filter(|pick| pick.0.replica.name == "r1").count()
        };
        let (fresh, old) = (share(0), share(60_000));
        assert!((1..20).contains(&fresh), "{fresh} of 40: it counts, and what is in flight outvotes it");
        assert!((18..=22).contains(&old), "{old} of 40: what was said long ago says nothing");
    }

    #[test]
    fn a58_a_burst_is_spread_by_own_requests_while_engines_still_say_that_they_are_idle() {
        let picker = picker(4, Policy::Affinity);
        (0..4).for_each(|position| says(&picker, position, 0.0));
        let held: Vec<_> = (0..64).map(|turn| picker.pick(&question(turn), 0).unwrap()).collect();
        for replica in &picker.replicas.load().replicas {
            assert_eq!(replica.load.own_inflight(), 16, "{}", replica.name);
        }
        drop(held);
    }

    #[test]
    fn a50_a_replica_that_says_it_is_not_ready_gets_nothing() {
        let picker = picker(1, Policy::LeastLoaded);
        for _ in 0..3 {
            picker.replicas.load().replicas[0].health.probed(Probe::NotReady, false, 0);
        }
        assert_eq!(picker.pick(&question(0), 0).err(), Some(RouterError::NoReplica));
    }

    #[test]
    fn a_retry_goes_elsewhere_or_nowhere() {
        let picker = picker(2, Policy::RoundRobin);
        let first = picker.pick(&question(0), 0).unwrap().0.replica;
        let refused = [first.id];
        let again = |turn| Question { except: &refused, ..question(turn) };
        for turn in 0..10 {
            assert_ne!(picker.pick(&again(turn), 0).unwrap().0.replica.id, first.id);
        }
        let alone = self::picker(1, Policy::RoundRobin);
        let only = alone.pick(&question(0), 0).unwrap().0.replica;
        let refused = [only.id];
        let nowhere = Question { except: &refused, ..question(1) };
        assert_eq!(alone.pick(&nowhere, 0).err(), Some(RouterError::NoReplica));
    }

    #[test]
    fn full_replicas_are_overloaded_not_absent() {
        let mut picker = picker(2, Policy::LeastLoaded);
        picker.max_inflight = 1;
        let held: Vec<_> = (0..2).map(|t| picker.pick(&question(t), 0).unwrap().0).collect();
        assert_eq!(picker.pick(&question(2), 0).err(), Some(RouterError::Overloaded));
        drop(held);
        assert!(picker.pick(&question(3), 0).is_ok());
    }

    #[test]
    fn a53_counts_return_to_zero_when_picks_are_dropped() {
        let picker = picker(1, Policy::Affinity);
        for turn in 0..1_000 {
            drop(picker.pick(&question(turn), 0).unwrap());
        }
        assert_eq!(picker.replicas.load().replicas[0].load.own_inflight(), 0);
    }

    #[test]
    fn the_replica_that_holds_the_prefix_is_picked_and_its_cold_part_has_a_name() {
        let picker = picker(4, Policy::Affinity);
        let holder = picker.replicas.load().replicas[2].id;
        let key = PrefixKey { hashes: (1..=8).collect(), bytes: 1_024 };
        let m = Match { replica: holder, bytes: 512, count: 1.0, teacher: Teacher::Own };
        let matches = vec![m];
        assert_eq!(cold_hash(&key, &matches), Some(5));
        assert_eq!(cold_hash(&key, &vec![Match { bytes: 1_024, ..m }]), Some(8));
        let asked = Question { key: Some(&key), matches: Some(&matches), ..question(1) };
        let (pick, _) = picker.pick(&asked, 0).unwrap();
        assert_eq!((pick.replica.id, pick.decision.reason), (holder, Reason::Affinity));
        assert_eq!(pick.replica.load.own_queued_tokens(), 128);
        let late = Question { matches: None, ..asked };
        assert_eq!(picker.pick(&late, 0).unwrap().0.decision.reason, Reason::NoKey);
    }
}
