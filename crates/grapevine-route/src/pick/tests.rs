use grapevine_tree::Teacher;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

/// A fleet of replicas with this many requests in flight each, and the same in queued tokens times
/// a hundred.
fn fleet(inflight: &[u32]) -> Vec<Candidate> {
    let candidate = |(i, &n): (usize, &u32)| Candidate {
        replica: ReplicaId(i as u32),
        weight: 1.0,
        load: LoadView { inflight: n as f32, queued_tokens: 100.0 * n as f32, intake_tokens: 0.0 },
        kv_use: None,
    };
    inflight.iter().enumerate().map(candidate).collect()
}

fn held(index: u32, tokens: u32, count: f32) -> Match {
    Match { replica: ReplicaId(index), bytes: tokens * 4, count, teacher: Teacher::Own }
}

fn ask(tokens: f32, matches: &Matches) -> Request<'_> {
    Request {
        prompt_tokens: tokens,
        bytes_per_token: 4.0,
        matches,
        cold_hash: Some(99),
        turn: 0,
        informed: true,
    }
}

fn choose(request: &Request<'_>, candidates: &[Candidate], seed: u64) -> Decision {
    let mut rng = SmallRng::seed_from_u64(seed);
    decide(Policy::Affinity, &Weights::default(), request, candidates, &mut Ballot::default(), &mut rng)
        .unwrap()
}

#[test]
fn affinity_wins_until_the_queue_outvotes_it() {
    let matches = vec![held(2, 900, 1.0)];
    let mut candidates = fleet(&[1, 1, 1, 1]);
    let calm = choose(&ask(1_000.0, &matches), &candidates, 1);
    assert_eq!((calm.index, calm.reason, calm.matched_tokens), (2, Reason::Affinity, 900));
    assert_eq!(calm.uncached_tokens(), 100);
    candidates[2].load.queued_tokens = 20_000.0;
    let busy = choose(&ask(1_000.0, &matches), &candidates, 1);
    assert_eq!((busy.reason, busy.best_matched_tokens), (Reason::Spill, 900));
    assert_ne!(busy.index, 2);
}

#[test]
fn the_worked_example_of_the_docs() {
    let matches = vec![held(0, 1_048, 5.0), held(1, 1_048, 1.0)];
    let mut candidates = fleet(&[5, 2, 0, 3]);
    for (candidate, queued) in candidates.iter_mut().zip([2_100.0, 0.0, 0.0, 900.0]) {
        candidate.load.queued_tokens = queued;
    }
    let (weights, mut ballot) = (Weights::default(), Ballot::default());
    let mut rng = SmallRng::seed_from_u64(1);
    let request = Request { cold_hash: None, ..ask(1_072.0, &matches) };
    let d = decide(Policy::Affinity, &weights, &request, &candidates, &mut ballot, &mut rng).unwrap();
    let votes = |f: fn(&Votes) -> f32| ballot.votes.iter().map(f).collect::<Vec<_>>();
    assert_eq!(votes(|v| v.prefix), [288.0, 288.0, 12_864.0, 12_864.0]);
    assert_eq!(votes(|v| v.queue), [2_100.0, 0.0, 0.0, 900.0]);
    assert_eq!(votes(|v| v.inflight), [320.0, 128.0, 0.0, 192.0]);
    assert_eq!(votes(Votes::total), [2_708.0, 416.0, 12_864.0, 13_956.0]);
    assert_eq!((d.index, d.reason, d.matched_tokens), (1, Reason::Affinity, 1_048));
    let (cold, home) = (24.0, 43.2);
    assert_eq!(weights.home * weights.prefix * cold, home);
    let alone = vec![matches[0]];
    let request = Request { cold_hash: None, ..ask(1_072.0, &alone) };
    let d = decide(Policy::Affinity, &weights, &request, &candidates, &mut ballot, &mut rng).unwrap();
    assert_eq!(d.index, 0, "waiting is cheaper than prefilling again");
    // The same head picked a thousand times lately is nobody's own: each pays a fraction for it.
    assert!((vote::worth(1_000.0, 4) - 1.0 / 247.0).abs() < 1e-6);
}

#[test]
fn every_replica_is_judged_at_its_own_depth() {
    let matches = vec![held(0, 1_000, 1.0), held(1, 950, 1.0)];
    let mut candidates = fleet(&[0, 0, 0]);
    candidates[0].load.queued_tokens = 3_000.0;
    let d = choose(&ask(1_100.0, &matches), &candidates, 1);
    assert_eq!((d.index, d.reason), (1, Reason::Spill), "the second best holder is far better than none");
}

#[test]
fn of_equally_deep_ones_the_count_decides() {
    let matches = vec![held(1, 1_000, 2.0), held(3, 1_000, 7.0)];
    for seed in 0..20 {
        assert_eq!(choose(&ask(1_000.0, &matches), &fleet(&[0; 4]), seed).index, 3);
    }
}

#[test]
fn a_cold_prompt_goes_to_its_home_and_routers_agree_on_it() {
    let none = Vec::new();
    let d = choose(&ask(1_000.0, &none), &fleet(&[0; 8]), 1);
    assert_eq!(d.reason, Reason::Home);
    for seed in 2..20 {
        assert_eq!(choose(&ask(1_000.0, &none), &fleet(&[0; 8]), seed).index, d.index);
    }
    let mut fewer = fleet(&[0; 8]);
    let away = (d.index + 1) % 8;
    fewer.remove(away);
    assert_eq!(
        choose(&ask(1_000.0, &none), &fewer, 1).replica,
        d.replica,
        "others coming and going change nothing"
    );
}

#[test]
fn a_home_that_took_too_much_lately_is_left() {
    let none = Vec::new();
    let mut candidates = fleet(&[0; 4]);
    let home = choose(&ask(1_000.0, &none), &candidates, 1).index;
    candidates[home].load.intake_tokens = 8_000.0;
    let d = choose(&ask(1_000.0, &none), &candidates, 1);
    assert_eq!(d.reason, Reason::Load);
    assert_ne!(d.index, home);
}

#[test]
fn a84_a_shared_head_does_not_send_everything_to_one_replica() {
    // A head known on replica 0 only; prompts that go on differently, one after another, with nothing
    // in flight: only that all use the head, and the cold tokens taken so far, can spread them.
    for (head, prompt) in [(512, 1_000.0), (8_192, 9_200.0)] {
        let mut candidates = fleet(&[0; 4]);
        let mut heads = vec![held(0, head, 1.0)];
        let mut sent = [0; 4];
        for n in 0..400u64 {
            let request = Request { cold_hash: Some(n), ..ask(prompt, &heads) };
            let d = choose(&request, &candidates, n);
            sent[d.index] += 1;
            candidates[d.index].load.intake_tokens += d.uncached_tokens() as f32;
            match heads.iter_mut().find(|m| m.replica == d.replica) {
                Some(known) => known.count += 1.0,
                None => heads.push(held(d.index as u32, head, 1.0)),
            }
        }
        assert!(sent.iter().all(|&n| (40..=160).contains(&n)), "{head}: {sent:?}");
    }
}

#[test]
fn a_conversations_own_history_counts_whole_however_long_the_shared_head() {
    // The head was picked a thousand times on each, the conversation a few times on one.
    let mut matches: Matches = (0..4).map(|i| held(i, 8_000, 1_000.0)).collect();
    matches[2] = held(2, 9_000, 4.0);
    let mut candidates = fleet(&[1; 4]);
    candidates[2].load.queued_tokens = 8_000.0;
    let d = choose(&ask(9_100.0, &matches), &candidates, 1);
    assert_eq!((d.index, d.reason), (2, Reason::Affinity));
}

#[test]
fn a83_one_hot_replica_does_not_switch_affinity_off_for_others() {
    let matches = vec![held(3, 900, 1.0)];
    let mut candidates = fleet(&[2; 10]);
    candidates[7].load.inflight = 50.0;
    let d = choose(&ask(1_000.0, &matches), &candidates, 1);
    assert_eq!((d.index, d.reason, d.guarded), (3, Reason::Affinity, None));
}

#[test]
fn the_guard_needs_both_gaps_and_judges_the_favourite() {
    let matches = vec![held(0, 1_000, 1.0)];
    let guarded = |inflight: &[u32]| {
        let mut candidates = fleet(inflight);
        for c in &mut candidates {
            c.load.queued_tokens = 0.0;
        }
        choose(&ask(1_000.0, &matches), &candidates, 1).guarded.is_some()
    };
    assert!(!guarded(&[4, 0, 0, 0]), "relative gap alone: an idle fleet");
    assert!(!guarded(&[39, 28, 28, 28]), "absolute gap alone: a busy fleet");
    assert!(guarded(&[20, 2, 2, 2]), "both");
    let mut candidates = fleet(&[20, 2, 2, 2]);
    candidates[0].load.queued_tokens = 0.0;
    let d = choose(&ask(1_000.0, &matches), &candidates, 1);
    assert_eq!((d.reason, d.guarded), (Reason::Guard, Some(ReplicaId(0))));
}

#[test]
fn a85_many_replicas_and_little_load_do_not_collapse() {
    let matches: Matches = (0..50).map(|i| held(i, 500, 1.0)).collect();
    let mut candidates = fleet(&[0; 200]);
    let mut sent = vec![0; 200];
    for n in 0..60 {
        let warm = if n % 4 == 0 {
            ask(1_000.0, &matches)
        } else {
            Request { cold_hash: Some(n), ..ask(1_000.0, EMPTY) }
        };
        let d = choose(&warm, &candidates, n);
        sent[d.index] += 1;
        candidates[d.index].load.inflight += 1.0;
        candidates[d.index].load.queued_tokens += d.uncached_tokens() as f32;
        candidates[d.index].load.intake_tokens += d.uncached_tokens() as f32;
    }
    assert!(sent.iter().all(|&n| n <= 4), "{sent:?}");
}

const EMPTY: &Matches = &Vec::new();

#[test]
fn a60_a_miss_goes_to_the_idle_replica() {
    for seed in 0..20 {
        let d = choose(&Request { cold_hash: None, ..ask(0.0, EMPTY) }, &fleet(&[9, 0, 9, 9]), seed);
        assert_eq!((d.index, d.reason), (1, Reason::NoKey));
    }
}

#[test]
fn a86_weights_divide_load() {
    let mut candidates = fleet(&[0, 0]);
    candidates[0].weight = 4.0;
    let mut sent = [0.0f32; 2];
    for n in 0..500 {
        let d = choose(&Request { cold_hash: Some(n), ..ask(100.0, EMPTY) }, &candidates, n);
        sent[d.index] += 1.0;
        candidates[d.index].load.inflight += 1.0;
        candidates[d.index].load.intake_tokens += 100.0;
    }
    assert!((3.0..5.0).contains(&(sent[0] / sent[1])), "{sent:?}");
}

#[test]
fn kv_pressure_counts_when_known_and_only_then() {
    let mut candidates = fleet(&[0; 3]);
    let home = choose(&ask(1_000.0, EMPTY), &candidates, 1).index;
    candidates[home].kv_use = Some(1.0);
    assert_ne!(choose(&ask(1_000.0, EMPTY), &candidates, 1).index, home);
    candidates[home].kv_use = Some(0.5);
    assert_eq!(choose(&ask(1_000.0, EMPTY), &candidates, 1).index, home);
}

#[test]
fn a56_every_policy_spreads_equal_requests_evenly() {
    for policy in [Policy::RoundRobin, Policy::Random, Policy::LeastLoaded, Policy::Affinity] {
        let mut candidates = fleet(&[0; 4]);
        let mut rng = SmallRng::seed_from_u64(1);
        let mut ballot = Ballot::default();
        let mut sent = [0; 4];
        for turn in 0..400 {
            let request = Request { turn, cold_hash: None, ..ask(0.0, EMPTY) };
            let d =
                decide(policy, &Weights::default(), &request, &candidates, &mut ballot, &mut rng).unwrap();
            sent[d.index] += 1;
            candidates[d.index].load.inflight += 1.0;
        }
        let most = if policy == Policy::Random { 130 } else { 101 };
        assert!(sent.iter().all(|&n| n <= most), "{policy:?} {sent:?}");
    }
}

#[test]
fn no_candidates_no_decision() {
    let mut rng = SmallRng::seed_from_u64(1);
    let none = decide(
        Policy::Affinity,
        &Weights::default(),
        &ask(1.0, EMPTY),
        &[],
        &mut Ballot::default(),
        &mut rng,
    );
    assert_eq!(none, None);
    assert_eq!(choose(&ask(1.0, EMPTY), &fleet(&[3]), 1).reason, Reason::Only);
}

fn arb_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let one = (0u32..100, 0f32..1e6, 0f32..1e6, prop::option::of(0f32..=1.0), 1u8..5);
    prop::collection::vec(one, 1..20).prop_map(|all| {
        let make = |(i, (inflight, queued_tokens, intake_tokens, kv_use, weight)): (
            usize,
            (u32, f32, f32, _, u8),
        )| {
            let load = LoadView { inflight: inflight as f32, queued_tokens, intake_tokens };
            Candidate { replica: ReplicaId(i as u32), weight: f32::from(weight), load, kv_use }
        };
        all.into_iter().enumerate().map(make).collect()
    })
}

proptest! {
    #[test]
    fn the_winner_has_the_lowest_sum_of_what_the_ballot_shows(
        candidates in arb_candidates(),
        matches in prop::collection::vec((0u32..20, 0u32..3_000, 0f32..9.0), 0..6),
        tokens in 0f32..100_000.0,
        seed: u64,
    ) {
        let matches: Matches = matches.into_iter().map(|(i, t, c)| held(i, t, c)).collect();
        let mut ballot = Ballot::default();
        let mut rng = SmallRng::seed_from_u64(seed);
        let request = ask(tokens, &matches);
        let d = decide(Policy::Affinity, &Weights::default(), &request, &candidates, &mut ballot, &mut rng).unwrap();
        prop_assert_eq!(ballot.votes.len(), candidates.len());
        prop_assert_eq!(candidates[d.index].replica, d.replica);
        let lowest = ballot.votes.iter().map(Votes::total).fold(f32::INFINITY, f32::min);
        prop_assert_eq!(ballot.votes[d.index].total(), lowest);
        prop_assert!(d.matched_tokens <= d.prompt_tokens);
        let mut again = SmallRng::seed_from_u64(seed);
        let same = decide(Policy::Affinity, &Weights::default(), &request, &candidates, &mut Ballot::default(), &mut again);
        prop_assert_eq!(same, Some(d), "deterministic");
    }
}
