//! The repository's own rules: who may depend on whom, how large a file may be, where secrets of the
//! toolchain stay.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates of the workspace and the workspace crates that each may use (not counting tests).
const LAYERS: &[(&str, &[&str])] = &[
    ("grapevine-tree", &[]),
    ("grapevine-route", &["grapevine-tree"]),
    ("grapevine-mesh", &["grapevine-tree"]),
    ("grapevine-node", &["grapevine-mesh", "grapevine-route", "grapevine-tree"]),
    ("grapevine-testkit", &[]),
    ("grapevine-fuzz", &["grapevine-mesh", "grapevine-node", "grapevine-tree"]),
    ("grapevine-sim", &["grapevine-mesh", "grapevine-route", "grapevine-tree", "grapevine-testkit"]),
    ("grapevine", &["grapevine-node", "grapevine-sim", "grapevine-testkit"]),
];

/// Libraries that only some crates may name, so that what depends on them can be replaced.
const ONLY_IN: &[(&str, &[&str])] = &[
    ("chitchat", &["grapevine-mesh", "grapevine-sim"]),
    ("bincode", &["grapevine-mesh"]),
    ("axum", &["grapevine-node", "grapevine-testkit"]),
    ("reqwest", &["grapevine-node", "grapevine-testkit"]),
    ("opentelemetry", &["grapevine-node"]),
    ("opentelemetry_sdk", &["grapevine-node"]),
    ("opentelemetry-http", &["grapevine-node"]),
    ("opentelemetry-otlp", &["grapevine-node"]),
    ("opentelemetry-proto", &["grapevine-node", "grapevine-testkit"]),
];

/// What the two pure crates may use: no runtime, no network, no clock.
const PURE: &[(&str, &[&str])] = &[
    ("grapevine-tree", &["fearless_simd", "hashbrown", "memchr", "smallvec", "twox-hash", "xxhash-rust"]),
    ("grapevine-route", &["grapevine-tree", "rand", "xxhash-rust"]),
];

/// What the product is built on by decision, each at its place: replacing one is a redesign, not a refactoring.
const FOUNDATIONS: &[(&str, &str)] = &[
    ("grapevine-node", "tokio"),
    ("grapevine-node", "axum"),
    ("grapevine-node", "reqwest"),
    ("grapevine-node", "serde"),
    ("grapevine-node", "tracing"),
    ("grapevine-node", "opentelemetry"),
    ("grapevine-node", "opentelemetry-otlp"),
    ("grapevine-mesh", "chitchat"),
    ("grapevine-mesh", "bincode"),
];

/// Failures reported of other routers, in the order in which `tests/cases.md` lists them.
const CASES: usize = 123;

/// Longest source file, lines. Beyond it a file holds more than one concept.
const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Normal (not dev, not build) dependencies of each workspace crate.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let text = |v: &serde_json::Value| v.as_str().unwrap().to_owned();
    let of = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().unwrap();
        all.iter().filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect()
    };
    metadata["packages"].as_array().unwrap().iter().map(|p| (text(&p["name"]), of(p))).collect()
}

fn sources() -> Vec<PathBuf> {
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.lines().map(|line| root().join(line)).filter(|path| path.exists()).collect()
}

#[test]
fn crates_use_only_those_below_them() {
    for (name, uses) in dependencies() {
        let layer = LAYERS.iter().find(|(layer, _)| *layer == name);
        let (_, allowed) = layer.unwrap_or_else(|| panic!("{name} has no place in LAYERS"));
        for other in uses.iter().filter(|other| other.starts_with("grapevine")) {
            assert!(allowed.contains(&other.as_str()), "{name} must not depend on {other}");
        }
    }
}

#[test]
fn libraries_stay_where_they_belong() {
    for (name, uses) in dependencies() {
        for (library, crates) in ONLY_IN {
            let named = uses.iter().any(|used| used == library);
            assert!(!named || crates.contains(&name.as_str()), "{library} does not belong in {name}");
        }
        if let Some((_, allowed)) = PURE.iter().find(|(pure, _)| *pure == name) {
            for used in &uses {
                assert!(allowed.contains(&used.as_str()), "{name} is pure: no {used}");
            }
        }
    }
}

#[test]
fn the_foundations_stay() {
    let dependencies = dependencies();
    for (name, library) in FOUNDATIONS {
        let uses = &dependencies[*name];
        assert!(uses.iter().any(|used| used == library), "{name} is to use {library}");
    }
}

#[test]
fn bincode_is_named_in_one_file() {
    let naming = |path: &&PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.lines().any(|line| line.contains("bincode::"))
    };
    let files = sources();
    let found: Vec<_> = files
        .iter()
        .filter(|p| p.to_string_lossy().contains("/grapevine-mesh/src/"))
        .filter(naming)
        .collect();
    assert_eq!(found.len(), 1, "one codec file: {found:?}");
}

#[test]
fn files_hold_one_concept() {
    for path in sources() {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
    }
}

#[test]
fn pure_crates_read_no_clock() {
    for path in sources() {
        let name = path.to_string_lossy().into_owned();
        if PURE.iter().any(|(pure, _)| name.contains(&format!("/{pure}/src/"))) {
            let text = fs::read_to_string(&path).unwrap();
            for banned in ["Instant::now", "SystemTime::now", "thread_rng", "rand::rng()", "rand::random"] {
                assert!(!text.contains(banned), "{name} uses {banned}: pass it in");
            }
        }
    }
}

/// A row of `tests/cases.md`: its number and what holds it.
fn cases() -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join("tests/cases.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| A")?.split('|');
        Some((cells.next()?.trim().parse().ok()?, cells.nth(3)?.trim().to_owned()))
    };
    text.lines().filter_map(row).collect()
}

#[test]
fn every_case_is_held_by_a_test_or_a_reason() {
    let cases = cases();
    let numbers: Vec<_> = cases.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=CASES).collect::<Vec<_>>(), "each once, in order");
    for (number, held_by) in &cases {
        if held_by.starts_with("open: ") {
            continue;
        }
        let named: Vec<_> = held_by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "A{number} is held by nothing");
        for name in named {
            let (path, needle) = match name.split_once("::") {
                Some((path, test)) => (path, format!("fn {test}(")),
                None => (name, format!("A{number}")),
            };
            let text = fs::read_to_string(root().join(path)).unwrap_or_default();
            assert!(text.contains(&needle), "A{number}: there is no {name}");
        }
    }
}
