//! Two versions in one fleet: the binary of the version before this one beside this one.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::client::{Resolver, Traffic};
use super::process::{Engine, LIMIT, Router, binary, chat, free_udp, get, wait_for};
use super::seat::{Seat, retire};
use super::{previous, say};

/// Prefixes that each is asked first.
const PREFIXES: usize = 20;

/// Routers that are replaced.
const ROUTERS: usize = 3;

/// Tokens of a stream: half a second of generation.
const STREAM_TOKENS: u32 = 25;

/// What `arguments` print, with one engine set.
fn printed(binary: &str, arguments: &[&str], settings: &[(&str, String)]) -> Vec<u8> {
    let ours = |name: &str| name.starts_with("GRAPEVINE_") || name.starts_with("OTEL_");
    let output = Command::new(binary)
        .args(arguments)
        .env_clear()
        .envs(std::env::vars().filter(|(name, _)| !ours(name)))
        .env("GRAPEVINE_REPLICAS", "http://127.0.0.1:8000")
        .envs(settings.iter().cloned())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Wire version and hash scheme: routers that have both in common understand each other.
fn speaks(binary: &str) -> (u64, u64) {
    let version: Value = serde_json::from_slice(&printed(binary, &["version", "--json"], &[])).unwrap();
    let number = |name: &str| version[name].as_u64().unwrap();
    (number("wire_version"), number("hash_scheme"))
}

/// Every setting that a version knows, as it would be written.
fn settings(binary: &str, set: &[(&str, String)]) -> BTreeMap<String, String> {
    let rows: Value = serde_json::from_slice(&printed(binary, &["config", "--json"], set)).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.as_array().unwrap().iter().map(|row| (text(&row["name"]), text(&row["value"]))).collect()
}

#[test]
fn what_one_version_has_seen_the_other_matches() {
    let Some(old) = previous::binary() else { return };
    let engines: Vec<Engine> = (0..4).map(|_| Engine::start(&[])).collect();
    let replicas: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
    let gossip = [free_udp(), free_udp()];
    let start = |number: usize, command: Command| {
        let settings = [
            ("GRAPEVINE_GOSSIP_LISTEN", gossip[number].clone()),
            ("GRAPEVINE_GOSSIP_SEEDS", gossip.join(",")),
            ("GRAPEVINE_CLUSTER_SECRET", "a secret of the test".to_owned()),
            ("GRAPEVINE_DEBUG_HEADERS", "true".to_owned()),
        ];
        Router::start_with(command, &replicas, &settings)
    };
    let routers = [start(0, previous::serve(old)), start(1, Router::command())];
    let alike = speaks(old) == speaks(&binary());
    for router in &routers {
        let said = wait_for("the two to meet and to say what they speak", || says_of_its_peer(router));
        assert_eq!(said, alike, "what a version says and what its routers think of each other");
    }
    say(&format!("{old} and this build speak alike: {alike}"));
    if alike {
        known_to_the_other("old", &routers[0], &routers[1]);
        known_to_the_other("new", &routers[1], &routers[0]);
    }
}

fn status(router: &Router) -> Option<Value> {
    serde_json::from_slice(&get(&format!("{}/api/v1/status", router.admin)).1).ok()
}

/// Whether a router understands the other one, once it knows.
fn says_of_its_peer(router: &Router) -> Option<bool> {
    let status = status(router)?;
    let peer = status["peers"].as_array()?.first()?;
    peer["live"].as_bool().filter(|live| *live)?;
    peer["compatible"].as_bool()
}

/// What one router has seen is matched by the other, once gossip has brought it.
fn known_to_the_other(what: &str, one: &Router, other: &Router) {
    let ask = |router: &Router, prefix: usize| {
        let system = format!("{what} {prefix} ").repeat(400);
        let question = serde_json::json!([
            {"role": "system", "content": system},
            {"role": "user", "content": router.url},
        ]);
        let (head, _) = chat(&router.url, &question);
        assert_eq!(head.status, 200);
        head
    };
    let heard = || status(other)?["gossip"]["entries_received"].as_u64();
    let before = wait_for("its status", heard);
    (0..PREFIXES).for_each(|prefix| drop(ask(one, prefix)));
    let all = before + PREFIXES as u64;
    wait_for("what one has seen", || heard().filter(|entries| *entries >= all));
    let matched = |prefix: &usize| {
        ask(other, *prefix).header("x-grapevine-matched-tokens").is_some_and(|tokens| tokens != "0")
    };
    assert_eq!((0..PREFIXES).filter(matched).count(), PREFIXES, "seen by the {what} one first");
}

#[test]
fn an_upgrade_router_by_router_under_load_fails_no_request() {
    let Some(old) = previous::binary() else { return };
    let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--decode-ms-per-token", "20"])).collect();
    let replicas: Vec<_> = engines.iter().map(|engine| engine.url.clone()).collect();
    let seeds: Vec<_> = (0..ROUTERS).map(|_| free_udp()).collect();
    let seats: Vec<_> = (0..ROUTERS).map(|number| Seat::new(number, &seeds)).collect();
    let begin = |seat: &Seat| seat.start(previous::serve(old), &replicas);
    let mut routers: Vec<_> = seats.iter().map(begin).collect();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = grapevine_testkit::load::http_client(32, LIMIT).unwrap();
    let traffic = {
        let _inside = runtime.enter();
        Traffic::start(16, STREAM_TOKENS, &Resolver::start(&routers, &client), &client)
    };
    for (seat, router) in seats.iter().zip(&mut routers) {
        retire(router);
        *router = seat.start(Router::command(), &replicas);
        // Whatever they speak: those that learn from each other are counted elsewhere.
        let met = || router.status().peers.iter().filter(|peer| peer.live).count() == ROUTERS - 1;
        wait_for("it to be met", || met().then_some(()));
        wait_for("it to carry load", || (router.status().inflight > 0).then_some(()));
    }
    let (done, failed) = runtime.block_on(traffic.end());
    assert_eq!(failed, Vec::<String>::new(), "{done} were whole");
    say(&format!("{ROUTERS} routers of {old} were replaced: {done} streams, 0 failed"));
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Every setting that the old version has a value for, said aloud, is understood by this one as the old one understood it.
#[test]
fn settings_of_the_version_before_mean_the_same() {
    let Some(old) = previous::binary() else { return };
    let before = settings(old, &[]);
    let is_said = |(name, value): &(&String, &String)| name.starts_with("GRAPEVINE_") && *value != "none";
    let said: Vec<(&str, String)> =
        before.iter().filter(is_said).map(|(name, value)| (name.as_str(), value.clone())).collect();
    printed(&binary(), &["config", "--check"], &said);
    let after = settings(&binary(), &said);
    for (name, value) in said {
        assert_eq!(after.get(name), Some(&value), "{name}");
    }
}
