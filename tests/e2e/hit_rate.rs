//! What grapevine is for, counted by the engines themselves.

use grapevine_testkit::load::{Load, LoadConfig, Report};
use grapevine_testkit::workload::{Scenario, SmallEngines, Workload, WorkloadConfig, ideal};

use super::process::{Engine, Router, routers};

/// A cache block of the engines.
const BLOCK_BYTES: usize = 64;

/// Fast engines: what is found in caches matters here, not how long it takes.
fn engines(count: usize, cache_blocks: usize) -> Vec<Engine> {
    let blocks = cache_blocks.to_string();
    let args = [
        "--cache-blocks",
        &blocks,
        "--base-ms",
        "2",
        "--prefill-us-per-block",
        "100",
        "--decode-ms-per-token",
        "0",
    ];
    (0..count).map(|_| Engine::start(&args)).collect()
}

fn urls(engines: &[Engine]) -> Vec<String> {
    engines.iter().map(|engine| engine.url.clone()).collect()
}

fn drive(routers: &[Router], workload: WorkloadConfig, connections: usize) -> Report {
    drive_at(None, routers, workload, connections)
}

fn drive_at(rate: Option<f64>, routers: &[Router], workload: WorkloadConfig, connections: usize) -> Report {
    let targets = routers.iter().map(|router| router.url.as_str());
    let config = LoadConfig { connections, rate, max_tokens: 1, ..LoadConfig::new(targets) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let report = runtime.block_on(Load::new(config).unwrap().run(Workload::new(workload)));
    assert_eq!(report.errors, 0, "{:?}", report.first_error);
    report
}

/// Token hit rate by the engines' counters, and the busiest engine's requests against the mean.
fn counted(engines: &[Engine]) -> (f64, f64) {
    let stats: Vec<_> = engines.iter().map(Engine::stats).collect();
    let asked: u64 = stats.iter().map(|s| s.blocks_queried).sum();
    let hit: u64 = stats.iter().map(|s| s.blocks_hit).sum();
    let most = stats.iter().map(|s| s.requests).max().unwrap_or(0) as f64;
    let mean = stats.iter().map(|s| s.requests).sum::<u64>() as f64 / stats.len() as f64;
    (hit as f64 / asked as f64, most / mean)
}

fn policy(name: &str) -> Vec<(&'static str, String)> {
    vec![("GRAPEVINE_POLICY", name.to_owned())]
}

#[test]
fn the_seed_scenario_random_lands_near_22_percent() {
    let scenario = SmallEngines::seed_scenario(1);
    let engines = engines(scenario.engines, scenario.cache_blocks);
    let fleet = routers(1, &urls(&engines), &policy("random"));
    drive(&fleet, scenario.workload, 8);
    let (hit, _) = counted(&engines);
    assert!((0.16..0.28).contains(&hit), "random placement hits {hit:.3}");
}

/// What the page and the metrics say that random routing would get, against what it gets.
#[test]
fn the_estimate_for_random_routing_is_near_what_random_routing_gets() {
    for seed in [1, 2] {
        let scenario = SmallEngines::seed_scenario(seed);
        let measure = |name: &str| {
            let engines = engines(scenario.engines, scenario.cache_blocks);
            let fleet = routers(1, &urls(&engines), &policy(name));
            drive(&fleet, scenario.workload.clone(), 4);
            (counted(&engines).0, fleet[0].status().tokens)
        };
        let (measured, _) = measure("random");
        let (reached, tokens) = measure("affinity");
        let of = |part: u64, all: u64| part as f64 / all as f64;
        let (estimate, predicted) =
            (of(tokens.random_cached, tokens.prompt), of(tokens.predicted_cached, tokens.prompt));
        let reported = of(tokens.reported_cached, tokens.reported_prompt);
        println!(
            "random: estimated {estimate:.3}, measured {measured:.3}; \
             affinity: predicted {predicted:.3}, reported {reported:.3}, measured {reached:.3}"
        );
        assert!((estimate - measured).abs() < 0.06, "{estimate:.3} is said of {measured:.3}");
        assert!((predicted - reached).abs() < 0.05 && (reported - reached).abs() < 0.02);
    }
}

#[test]
fn the_seed_scenario_affinity_misses_only_first_requests() {
    let scenario = SmallEngines::seed_scenario(1);
    let engines = engines(scenario.engines, scenario.cache_blocks);
    let fleet = routers(1, &urls(&engines), &policy("affinity"));
    // One at a time: then nothing but the first request of a prefix has a reason to miss.
    let report = drive(&fleet, scenario.workload.clone(), 1);
    let (hit, _) = counted(&engines);
    let best = ideal(Workload::new(scenario.workload.clone()), BLOCK_BYTES).rate();
    assert!(hit >= 0.80 && hit >= best - 0.01, "affinity hits {hit:.3} of {best:.3}");
    let held = |cached: u64| cached as usize * 4 >= scenario.workload.prefix_bytes - 64;
    let missed: Vec<_> = report.outcomes.iter().filter(|o| !held(o.cached_tokens)).collect();
    assert_eq!(missed.len(), scenario.workload.prefixes, "one miss for each prefix");
    assert!(missed.iter().all(|o| o.turn == 0), "and it is its first request");
}

#[test]
fn with_few_prefixes_and_large_caches_affinity_gains_and_costs_nothing() {
    let scenario = SmallEngines::no_contest(1);
    let measure = |name: &str| {
        let engines = engines(scenario.engines, scenario.cache_blocks);
        let fleet = routers(1, &urls(&engines), &policy(name));
        drive(&fleet, scenario.workload.clone(), 8);
        counted(&engines).0
    };
    let (affinity, random) = (measure("affinity"), measure("random"));
    // Random prefills each of the 4 prefixes on each of the 4 engines: 12 misses more in 1,200.
    assert!((affinity - random).abs() <= 0.02, "affinity {affinity:.3}, random {random:.3}");
}

#[test]
fn the_hit_rate_is_flat_from_one_to_four_routers() {
    let workload = WorkloadConfig { asks: 12, ..WorkloadConfig::default() };
    let best = ideal(Workload::new(workload.clone()), BLOCK_BYTES).rate();
    for count in [1, 2, 4] {
        let engines = engines(4, 1_340);
        let fleet = routers(count, &urls(&engines), &policy("affinity"));
        // What real engines would let through. Asked again elsewhere within gossip's quarter second, a
        // prefix is what a fleet cannot know yet.
        drive_at(Some(120.0), &fleet, workload.clone(), 8);
        let (hit, imbalance) = counted(&engines);
        println!("{count} routers: {hit:.3} of {best:.3}");
        assert!(hit >= 0.97 * best, "{count} routers: {hit:.3} of {best:.3}");
        assert!(imbalance <= 1.3, "{count} routers: the busiest engine has {imbalance:.2} of the mean");
    }
}

#[test]
fn a84_one_common_head_one_connection_and_still_every_engine_works() {
    let workload = WorkloadConfig { scenario: Scenario::Head, asks: 8, ..WorkloadConfig::default() };
    let best = ideal(Workload::new(workload.clone()), BLOCK_BYTES).rate();
    let engines = engines(4, 1_340);
    let fleet = routers(2, &urls(&engines), &policy("affinity"));
    drive(&fleet, workload, 1);
    let (hit, imbalance) = counted(&engines);
    assert!(hit >= 0.95 * best, "{hit:.3} of {best:.3}");
    assert!(imbalance <= 1.25, "the busiest engine has {imbalance:.2} of the mean");
}
