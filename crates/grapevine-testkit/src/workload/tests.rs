use std::collections::{HashMap, HashSet};

use super::*;

const BLOCK: usize = 64;

fn config(scenario: Scenario) -> WorkloadConfig {
    WorkloadConfig { scenario, ..WorkloadConfig::default() }
}

#[test]
fn one_seed_gives_one_workload() {
    for scenario in [Scenario::Uniform, Scenario::Head, Scenario::Zipf, Scenario::Chat] {
        let asks =
            |seed| Workload::new(WorkloadConfig { seed, asks: 3, ..config(scenario) }).collect::<Vec<_>>();
        assert_eq!(asks(1), asks(1));
        assert_ne!(asks(1), asks(2));
        assert_eq!(asks(1).len(), 180);
    }
}

#[test]
fn the_texts_never_change() {
    // Workloads are named by their seed in published numbers.
    let first = Workload::new(WorkloadConfig::default()).next().unwrap();
    assert_eq!(crate::engine::digest(&first.render()), GOLDEN);
}

const GOLDEN: &str = "dd32947aa027a7ff";

#[test]
fn ideal_rates_are_those_of_the_benchmark_script() {
    let rate = |scenario| ideal(Workload::new(config(scenario)), BLOCK).rate() * 100.0;
    // 64 of 67 blocks are shared, 19 of 20 times found.
    let uniform = 100.0 * (19.0 * 64.0) / (20.0 * 67.0);
    assert!((rate(Scenario::Uniform) - uniform).abs() < 1e-9);
    for (scenario, published) in [(Scenario::Head, 93.09), (Scenario::Zipf, 90.8), (Scenario::Chat, 93.17)] {
        let got = rate(scenario);
        assert!((got - published).abs() < 0.1, "{scenario:?}: {got} instead of {published}");
    }
}

#[test]
fn small_engines_hit_at_random_what_the_seed_says() {
    for seed in 1..=3 {
        let small = SmallEngines::seed_scenario(seed);
        let run = |pick: &mut dyn FnMut(&Ask) -> usize| {
            replay(Workload::new(small.workload.clone()), BLOCK, small.engines, small.cache_blocks, pick)
                .rate()
        };
        let mut rng = Rng::new(seed);
        let random = run(&mut |_| rng.below(small.engines));
        assert!((0.20..0.24).contains(&random), "random {random}");
        let sticky = run(&mut |ask| ask.group);
        let best = ideal(Workload::new(small.workload.clone()), BLOCK).rate();
        assert!((sticky - best).abs() < 1e-9, "sticky {sticky}, ideal {best}");
    }
}

#[test]
fn without_contest_it_makes_no_difference() {
    let easy = SmallEngines::no_contest(1);
    let workload = || Workload::new(easy.workload.clone());
    let mut rng = Rng::new(1);
    let random = replay(workload(), BLOCK, easy.engines, easy.cache_blocks, |_| rng.below(4)).rate();
    assert!(ideal(workload(), BLOCK).rate() - random < 0.02);
}

#[test]
fn rounds_ask_each_group_once_a_round() {
    let config = WorkloadConfig { order: Order::Rounds, prefixes: 7, asks: 3, ..WorkloadConfig::default() };
    let groups: Vec<usize> = Workload::new(config).map(|ask| ask.group).collect();
    for round in groups.chunks(7) {
        assert_eq!(round.iter().collect::<HashSet<_>>().len(), 7);
    }
}

#[test]
fn a_turn_carries_all_turns_before() {
    let config = WorkloadConfig { prefixes: 3, asks: 4, ..config(Scenario::Chat) };
    let mut last: HashMap<usize, Ask> = HashMap::new();
    for ask in Workload::new(config) {
        assert!(ask.in_turn);
        assert_eq!(ask.messages.len(), 2 * ask.turn + 2);
        if let Some(before) = last.get(&ask.group) {
            assert_eq!(ask.turn, before.turn + 1);
            assert_eq!(ask.messages[..before.messages.len()], before.messages[..]);
        }
        last.insert(ask.group, ask);
    }
}

#[test]
fn an_endless_workload_starts_new_conversations_but_keeps_prefixes() {
    let endless = |scenario| {
        let config = WorkloadConfig { prefixes: 2, asks: 3, endless: true, ..config(scenario) };
        Workload::new(config).take(18).collect::<Vec<_>>()
    };
    let groups = |asks: &[Ask]| asks.iter().map(|ask| ask.group).collect::<HashSet<_>>().len();
    assert_eq!(groups(&endless(Scenario::Chat)), 6);
    assert_eq!(groups(&endless(Scenario::Uniform)), 2);
}

#[test]
fn a_mix_alternates_and_keeps_groups_apart() {
    let shared = Workload::new(WorkloadConfig { prefixes: 2, asks: 2, ..WorkloadConfig::default() });
    let chat = Workload::new(WorkloadConfig { prefixes: 2, asks: 2, ..config(Scenario::Chat) });
    let asks: Vec<Ask> = mix(shared, chat).collect();
    assert_eq!(asks.len(), 8);
    for (index, ask) in asks.iter().enumerate() {
        assert_eq!((ask.index, ask.in_turn), (index, index % 2 == 1));
        assert_eq!(ask.group % 2, index % 2);
    }
}

#[test]
fn popularity_falls_with_rank() {
    let mut counts = [0usize; 60];
    Workload::new(config(Scenario::Zipf)).for_each(|ask| counts[ask.group] += 1);
    let (first, tenth) = (counts[0] as f64, counts[9] as f64);
    assert!((6.0..16.0).contains(&(first / tenth)), "{first} to {tenth}");
}
