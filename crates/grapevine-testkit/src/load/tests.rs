use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;
use crate::engine::{CutHow, Engine, EngineConfig, EngineHandle, Fault, FaultRule};
use crate::workload::{Scenario, Workload, WorkloadConfig, ideal};

async fn instant() -> EngineHandle {
    Engine::start(EngineConfig { cache_blocks: 1_000_000, ..EngineConfig::instant() }).await.unwrap()
}

fn small(scenario: Scenario) -> WorkloadConfig {
    WorkloadConfig { scenario, prefixes: 6, asks: 5, ..WorkloadConfig::default() }
}

#[tokio::test]
async fn one_endless_cache_gives_the_ideal_rate() {
    for scenario in [Scenario::Uniform, Scenario::Head, Scenario::Zipf, Scenario::Chat] {
        for stream in [false, true] {
            let engine = instant().await;
            let config = LoadConfig { connections: 1, stream, ..LoadConfig::new([engine.url()]) };
            let workload = Workload::new(small(scenario));
            let report = Load::new(config).unwrap().run(workload.clone()).await;
            assert_eq!((report.requests, report.errors), (30, 0), "{:?}", report.first_error);
            let stats = engine.stats();
            let best = ideal(workload, 64);
            assert_eq!((stats.blocks_queried, stats.blocks_hit), (best.asked, best.found), "{scenario:?}");
            assert_eq!(report.cached_tokens, stats.blocks_hit * 16, "what the answers say");
            assert_eq!(report.completion_tokens, 30 * 8);
            assert!(report.outcomes.iter().all(|outcome| outcome.first.is_some()));
        }
    }
}

#[tokio::test]
async fn requests_go_to_the_targets_in_turn() {
    let engines = [instant().await, instant().await];
    let load = Load::new(LoadConfig::new(engines.iter().map(EngineHandle::url))).unwrap();
    let run = tokio::spawn(load.run(Workload::new(small(Scenario::Uniform))));
    let report = run.await.unwrap();
    assert_eq!(report.by_target().into_values().collect::<Vec<_>>(), [15, 15]);
    assert_eq!(engines.map(|engine| engine.stats().requests), [15, 15]);
}

#[tokio::test]
async fn a_target_that_takes_no_connection_is_passed_over_if_that_is_wanted() {
    let engine = instant().await;
    // A port that nobody listens on: one just given back may be another test's by now.
    let targets = ["http://127.0.0.1:1".to_owned(), engine.url()];
    for (fail_over, errors) in [(false, 15), (true, 0)] {
        let config = LoadConfig { fail_over, ..LoadConfig::new(targets.clone()) };
        let report = Load::new(config).unwrap().run(Workload::new(small(Scenario::Uniform))).await;
        assert_eq!((report.requests, report.errors), (30, errors), "{:?}", report.first_error);
    }
    let nobody = LoadConfig { fail_over: true, ..LoadConfig::new(["http://127.0.0.1:1"]) };
    let report = Load::new(nobody).unwrap().run(Workload::new(small(Scenario::Uniform))).await;
    assert_eq!(report.errors, 30);
}

#[tokio::test]
async fn a_conversation_has_one_request_at_a_time() {
    let config =
        EngineConfig { base: Duration::from_millis(2), serial_prefill: false, ..EngineConfig::instant() };
    let engine = Engine::start(config).await.unwrap();
    let chat = WorkloadConfig { prefixes: 3, asks: 6, ..small(Scenario::Chat) };
    let report = Load::new(LoadConfig::new([engine.url()])).unwrap().run(Workload::new(chat)).await;
    assert_eq!(report.errors, 0, "{:?}", report.first_error);
    assert!(engine.stats().max_running <= 3);
    for group in 0..3 {
        let turns: Vec<usize> =
            report.outcomes.iter().filter(|o| o.group == group).map(|outcome| outcome.turn).collect();
        assert!(turns.is_sorted(), "{turns:?}");
    }
}

#[tokio::test]
async fn the_rate_is_kept() {
    let engine = instant().await;
    let config = LoadConfig { rate: Some(100.0), ..LoadConfig::new([engine.url()]) };
    let report = Load::new(config).unwrap().run(Workload::new(small(Scenario::Uniform))).await;
    // The last of 30 may not leave before 290 ms have passed.
    assert!(report.wall >= Duration::from_millis(290), "{:?}", report.wall);
}

#[tokio::test]
async fn failures_are_told_apart() {
    let cases = [
        (Fault::Status { code: 503 }, "503"),
        (Fault::ErrorEvent { after_events: 2 }, "error event"),
        (Fault::Cut { after_events: 2, how: CutHow::Eof }, "decoding response body"),
        (Fault::CutBeforeHeaders { how: CutHow::Rst }, "sending request"),
    ];
    for (fault, says) in cases {
        let engine = instant().await;
        engine.faults().add(FaultRule::always(fault));
        let config = LoadConfig { stream: true, connections: 1, ..LoadConfig::new([engine.url()]) };
        let report = Load::new(config).unwrap().run(Workload::new(small(Scenario::Uniform)).take(3)).await;
        assert_eq!(report.errors, 3);
        let error = report.first_error.unwrap();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn a_run_can_be_watched_and_stopped() {
    let engine = instant().await;
    let seen = std::sync::Arc::new(AtomicU64::new(0));
    let load = Load::new(LoadConfig::new([engine.url()])).unwrap();
    let stop = load.stopper();
    let count = std::sync::Arc::clone(&seen);
    let endless = WorkloadConfig { endless: true, ..small(Scenario::Uniform) };
    let report = load
        .on_outcome(move |_| {
            if count.fetch_add(1, Ordering::Relaxed) == 50 {
                stop.stop();
            }
        })
        .run(Workload::new(endless))
        .await;
    assert!(report.stopped);
    assert_eq!(report.requests, seen.load(Ordering::Relaxed));
    assert!(report.requests > 50);
}
