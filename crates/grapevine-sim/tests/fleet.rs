//! The fleet simulator as its users run it. More seeds: `cargo run --release -p grapevine-sim -- fleet
//! --chaos --seeds 5000`.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::process::{Command, Output};

use serde_json::Value;

fn fleet(flags: &str) -> Output {
    let words = flags.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_grapevine-sim")).args(["fleet", "--json"]).args(words).output().unwrap()
}

fn object(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs it and fails with its complaints if anything is broken.
fn sound(flags: &str) -> Value {
    let output = fleet(flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let object = object(&output);
    assert_eq!(object["violations"], 0);
    object
}

fn number(object: &Value, name: &str) -> f64 {
    object[name].as_f64().unwrap_or_else(|| panic!("no {name} in {object}"))
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    let flags = "--routers 4 --replicas 3 --minutes 0.2 --rate 40 --chaos --seed";
    let [one, again, other] = [7, 7, 8].map(|seed| fleet(&format!("{flags} {seed}")));
    assert!(object(&one)["events"].as_u64().unwrap() > 1_000);
    assert_eq!(one.stdout, again.stdout);
    assert_ne!(object(&one)["trace"], object(&other)["trace"]);
}

#[test]
fn in_64_seeds_of_chaos_nothing_breaks() {
    let object = sound("--routers 4 --replicas 3 --minutes 0.1 --rate 20 --quiet 9s --chaos --seeds 64");
    assert_eq!(object["seeds"], 64);
    assert!(number(&object, "requests") > 4_000.0);
}

#[test]
fn all_know_within_a_second_and_hit_like_one_also_with_loss() {
    for loss in ["0", "0.1"] {
        let object = sound(&format!("--routers 8 --minutes 0.4 --rate 60 --loss {loss}"));
        assert!(number(&object, "convergence_samples") > 50.0);
        assert!(number(&object, "convergence_p99_ms") < 1_000.0, "{object}");
        assert!(number(&object, "bytes_per_request_per_peer") <= 64.0, "{object}");
        assert!(number(&object, "hit_rate") >= 0.97 * number(&object, "hit_rate_single"), "{object}");
    }
}

#[test]
fn twenty_restarts_in_a_row_leave_nothing_behind() {
    // Names of the dead are kept for 300 s.
    let flags = "--routers 3 --replicas 2 --minutes 0.6 --rate 10 --quiet 400s";
    let [calm, restarted] =
        [0, 20].map(|n| number(&sound(&format!("{flags} --restarts {n}")), "idle_bytes_per_router_s"));
    assert!(restarted < 1.1 * calm, "{restarted} bytes a second instead of {calm}");
}

#[test]
fn a_rolling_restart_of_the_whole_fleet_keeps_its_hits() {
    let object = sound("--routers 4 --replicas 4 --minutes 0.8 --rate 60 --rolling");
    assert!(number(&object, "hit_rate") >= 0.95 * number(&object, "hit_rate_single"), "{object}");
}

/// The bounds are checked every virtual second; this is about growth. An hour: `--minutes 60 --memory`.
#[test]
fn what_a_mesh_holds_does_not_grow_with_time() {
    let object = sound("--routers 3 --replicas 3 --minutes 6 --rate 40 --memory");
    let minutes = object["memory"][0].as_array().unwrap();
    // The log spans two minutes, the ring 16 s.
    let [early, late] = [&minutes[2], &minutes[5]];
    for (gauge, least) in [("log_bytes", 10_000.0), ("state_bytes", 5_000.0)] {
        let (before, after) = (number(early, gauge), number(late, gauge));
        assert!(before > least && after < 1.5 * before, "{gauge}: {before}, then {after}");
    }
    assert!(minutes.iter().all(|it| number(it, "states") <= 3.0 && number(it, "holes") < 10.0), "{object}");
}

#[test]
fn a_broken_run_says_so_and_how_to_repeat_it() {
    // Nobody hears anybody: after quiet no router knows its peers.
    let output = fleet("--routers 3 --replicas 2 --minutes 0.1 --rate 10 --loss 1 --seed 3");
    assert_eq!(output.status.code(), Some(1));
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaints.contains("fleet --routers 3 --replicas 2 --minutes 0.1"), "{complaints}");
    assert!(complaints.contains("--seed 3 --seeds 1") && complaints.contains("live peers"), "{complaints}");
    assert!(number(&object(&output), "violations") >= 3.0);
}
