//! A replica that lost its cache loses its credit, within a few requests, on every router.

use serde_json::{Value, json};

use super::process::{Engine, Router, chat, exchange, routers, wait_for};

/// Conversations: a dozen for each engine, four of them by each router.
const CONVERSATIONS: usize = 36;

/// Bytes of each: 2,000 tokens.
const PROMPT_BYTES: usize = 8_000;

/// Share of all prompts that is found when every one goes where it was before.
const WARM: f64 = 0.95;

const FAR: &str = "1h";

const FAST: [&str; 6] = ["--base-ms", "0", "--prefill-us-per-block", "0", "--decode-ms-per-token", "0"];

fn engines() -> Vec<Engine> {
    (0..3).map(|_| Engine::start(&FAST)).collect()
}

fn fleet(engines: &[Engine], settings: &[(&'static str, &str)]) -> Vec<Router> {
    let urls: Vec<_> = engines.iter().map(|engine| engine.url.clone()).collect();
    let mut all = vec![("GRAPEVINE_DEBUG_HEADERS", "true".to_owned())];
    all.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
    routers(3, &urls, &all)
}

/// One conversation's request: who answered it, and the share of its prompt that was cached there.
struct Asked {
    replica: String,
    cached: f64,
}

fn ask(router: &Router, conversation: usize) -> Asked {
    let text = format!("conversation {conversation} ").repeat(PROMPT_BYTES / 15 + 1);
    let (head, body) = chat(&router.url, &json!([{"role": "user", "content": &text[..PROMPT_BYTES]}]));
    assert_eq!(head.status, 200);
    let usage: Value = serde_json::from_slice(&body).unwrap();
    let tokens = |at: &str| usage.pointer(at).and_then(Value::as_f64).unwrap();
    let cached = tokens("/usage/prompt_tokens_details/cached_tokens") / tokens("/usage/prompt_tokens");
    Asked { replica: head.header("x-grapevine-replica").unwrap().to_owned(), cached }
}

/// Every conversation once, each time through another router.
fn round(fleet: &[Router], shift: usize) -> Vec<Asked> {
    (0..CONVERSATIONS).map(|i| ask(&fleet[(i + shift) % fleet.len()], i)).collect()
}

fn mean(asked: &[Asked]) -> f64 {
    asked.iter().map(|a| a.cached).sum::<f64>() / asked.len() as f64
}

/// Fills the caches until every router, one after the other, finds there what it predicts. Routers
/// that hear of a prefix too late place it twice at first.
fn warm_up(fleet: &[Router]) -> Vec<Asked> {
    let mut shift = 0;
    let mut found = 0;
    wait_for("caches to be warm", || {
        let asked = round(fleet, shift);
        found = if mean(&asked) > WARM { found + 1 } else { 0 };
        shift += 1;
        (found == fleet.len()).then_some(asked)
    })
}

/// Waits until gossip is over, and prompts are so long unused that failures count: those of a moment ago may
/// not have been prefilled yet.
fn settle(fleet: &[Router]) {
    let since = fleet[0].status().router.uptime_seconds;
    wait_for("the prompts to be settled", || {
        (fleet[0].status().router.uptime_seconds > since + 2.5).then_some(())
    });
}

/// The epoch of every replica, as each router sees it.
fn epochs(fleet: &[Router]) -> Vec<Vec<u32>> {
    fleet.iter().map(|r| r.status().replicas.iter().map(|replica| replica.epoch).collect()).collect()
}

/// Verdicts on the first replica, of all routers.
fn lost_caches(fleet: &[Router]) -> u64 {
    fleet.iter().map(|router| router.status().replicas[0].lost_caches).sum()
}

fn post(url: &str) {
    assert_eq!(exchange(url, "POST", &[], b"").0.status, 200);
}

#[test]
fn a87_a_reset_cache_is_noticed_by_what_answers_report() {
    let engines = engines();
    let settings = [("GRAPEVINE_METRICS_INTERVAL", "0s"), ("GRAPEVINE_HEALTH_INTERVAL", FAR)];
    let fleet = fleet(&engines, &settings);
    warm_up(&fleet);
    // Rounds are faster than gossip. One after a pause shows every router how deep the caches go, with all that
    // the others sent; what lies deeper than anything that was found accuses nobody.
    settle(&fleet);
    let warm = round(&fleet, 0);
    post(&format!("{}/reset", engines[0].url));
    settle(&fleet);
    let victim = fleet[0].status().replicas[0].name.clone();
    let mut misses = 0;
    for (i, before) in warm.iter().enumerate() {
        let asked = ask(&fleet[i % fleet.len()], i);
        if asked.replica == victim && lost_caches(&fleet) == 0 {
            misses += 1;
        }
        if asked.replica != victim && before.replica != victim {
            assert!(asked.cached > WARM, "another replica's credit holds: {}", asked.cached);
        }
    }
    assert!(misses <= 10, "noticed after {misses} requests");
    wait_for("every router to drop the credit", || {
        epochs(&fleet).iter().all(|epochs| *epochs == [1, 0, 0]).then_some(())
    });
    // What it prefilled before the verdict was forgotten with the rest.
    warm_up(&fleet);
    assert!((1..=3).contains(&lost_caches(&fleet)), "once, or by several routers at the same time");
    assert_eq!(epochs(&fleet), [[1, 0, 0]; 3], "counted once");
}

#[test]
fn a87_a_restart_that_no_request_met_is_noticed_by_the_engines_metrics() {
    let engines = engines();
    let settings = [("GRAPEVINE_METRICS_INTERVAL", "100ms"), ("GRAPEVINE_HEALTH_INTERVAL", FAR)];
    let fleet = fleet(&engines, &settings);
    warm_up(&fleet);
    let known = |router: &Router| router.status().replicas.iter().all(|r| r.engine.cache_tokens.is_some());
    wait_for("the engines' metrics", || fleet.iter().all(known).then_some(()));
    post(&format!("{}/restart", engines[1].url));
    wait_for("every router to drop the credit", || {
        epochs(&fleet).iter().all(|epochs| *epochs == [0, 1, 0]).then_some(())
    });
    warm_up(&fleet);
    assert_eq!(epochs(&fleet), [[0, 1, 0]; 3], "counted once, whoever noticed it how");
}

#[test]
fn a87_a_killed_engine_that_comes_back_counts_once() {
    let mut engines = engines();
    let settings = [("GRAPEVINE_METRICS_INTERVAL", "100ms"), ("GRAPEVINE_HEALTH_INTERVAL", "100ms")];
    let fleet = fleet(&engines, &settings);
    warm_up(&fleet);
    let address = engines[2].url.trim_start_matches("http://").to_owned();
    let mut old = engines.pop().unwrap();
    old.process.signal("KILL");
    old.process.end();
    let healthy = |router: &Router| router.status().replicas[2].health == "up";
    wait_for("every router to miss it", || fleet.iter().all(|router| !healthy(router)).then_some(()));
    engines.push(Engine::start(&[&FAST[..], &["--listen", &address]].concat()));
    wait_for("every router to find it", || fleet.iter().all(healthy).then_some(()));
    wait_for("every router to drop the credit", || {
        epochs(&fleet).iter().all(|epochs| *epochs == [0, 0, 1]).then_some(())
    });
    warm_up(&fleet);
    assert_eq!(epochs(&fleet), [[0, 0, 1]; 3], "counted once, whoever noticed it how");
}
