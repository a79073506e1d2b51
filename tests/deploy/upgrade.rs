//! Two versions in one fleet: the binary of another release beside this one.
//!
//! Runs when `GRAPEVINE_TEST_PREVIOUS` names a binary.

use std::process::Command;

use serde_json::Value;

use super::process::{Engine, Process, Router, chat, free_tcp, free_udp, get, wait_for};
use super::{say, with};

/// Prefixes that the other release is asked first.
const PREFIXES: usize = 20;

struct Previous {
    /// Held while it runs.
    _process: Process,
    url: String,
}

/// A router of the other release.
fn previous(binary: &str, settings: &[(&str, String)]) -> Previous {
    let (listen, admin) = (free_tcp(), free_tcp());
    let mut command = Command::new(binary);
    command.arg("serve");
    let mut all = settings.to_vec();
    all.extend([("GRAPEVINE_LISTEN", listen.clone()), ("GRAPEVINE_ADMIN_LISTEN", admin.clone())]);
    let process = Process::spawn(command, &all);
    wait_for("the other release to be ready", || {
        (get(&format!("http://{admin}/readyz")).0 == 200).then_some(())
    });
    Previous { _process: process, url: format!("http://{listen}") }
}

#[test]
fn another_release_beside_this_one_breaks_nothing() {
    let Ok(binary) = std::env::var("GRAPEVINE_TEST_PREVIOUS") else {
        return say("SKIPPED: GRAPEVINE_TEST_PREVIOUS names no binary of another release");
    };
    let engines: Vec<Engine> = (0..4).map(|_| Engine::start(&[])).collect();
    let replicas: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
    let (old_gossip, new_gossip) = (free_udp(), free_udp());
    let settings = |gossip: &str| {
        vec![
            ("GRAPEVINE_GOSSIP_LISTEN", gossip.to_owned()),
            ("GRAPEVINE_GOSSIP_SEEDS", format!("{old_gossip},{new_gossip}")),
            ("GRAPEVINE_CLUSTER_SECRET", "a secret of the test".to_owned()),
            ("GRAPEVINE_REPLICAS", replicas.join(",")),
            ("GRAPEVINE_DEBUG_HEADERS", "true".to_owned()),
        ]
    };
    let old = previous(&binary, &settings(&old_gossip));
    let new = Router::start(&replicas, &settings(&new_gossip));
    let alike = wait_for("the two to meet and to say what they speak", || {
        let status: Value = serde_json::from_slice(&get(&format!("{}/api/v1/status", new.admin)).1).ok()?;
        let peer = status["peers"].as_array()?.first()?.clone();
        peer["live"].as_bool().filter(|live| *live)?;
        peer["compatible"].as_bool()
    });
    say(&format!("{binary} and this build speak alike: {alike}"));

    if alike {
        known_to_both(&old.url, &new);
    }
    let targets = format!("{},{}", old.url, new.url);
    let mut load = Process::start(
        &[&["load"], &*with(&format!("{targets} --seconds 0"), "--seconds", "3")].concat(),
        &[],
    );
    assert_eq!(load.end().code(), Some(0), "{}", load.log());
    load.line(|line| line.contains(" 0 failed").then_some(()));
}

/// What the other release has seen is matched here, once gossip has brought it.
fn known_to_both(old: &str, new: &Router) {
    let ask = |prefix: usize, question: &str| {
        let system = format!("{prefix} ").repeat(500);
        serde_json::json!([{"role": "system", "content": system}, {"role": "user", "content": question}])
    };
    for prefix in 0..PREFIXES {
        assert_eq!(chat(old, &ask(prefix, "one")).0.status, 200);
    }
    wait_for("what the other release has seen", || {
        (new.status().gossip.entries_received >= PREFIXES as u64).then_some(())
    });
    let matched = |prefix: &usize| {
        let (head, _) = chat(&new.url, &ask(*prefix, "two"));
        head.header("x-grapevine-matched-tokens").is_some_and(|tokens| tokens != "0")
    };
    assert_eq!((0..PREFIXES).filter(matched).count(), PREFIXES);
}
