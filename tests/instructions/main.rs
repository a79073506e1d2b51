//! What key, lookup, insert, votes and the whole decision cost, in instructions: counted by callgrind, so the
//! same on a busy machine, and held against `baseline.json`. A rise of a tenth fails.
//!
//! Skipped aloud where valgrind is not installed. After a change that is meant:
//! `UPDATE_BASELINE=1 cargo test -p grapevine --test instructions`.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Pieces, and how often each is done between the two counts.
const PIECES: [(&str, u64); 5] =
    [("key", 64), ("lookup", 640), ("observe", 640), ("votes", 640), ("decision", 64)];

/// How much more than the baseline is too much.
const TOLERANCE: f64 = 1.10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The program that is counted, optimised, but without what would take minutes to build.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("instructions");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(root().join("tests/instructions/counted/Cargo.toml"))
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("release/counted")
}

/// Instructions of a run.
fn count(program: &Path, piece: &str, times: u64) -> u64 {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("callgrind.{piece}.{times}"));
    let ran = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .args([piece, &times.to_string()])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let profile = std::fs::read_to_string(&out).unwrap();
    let total = profile.lines().find_map(|line| line.strip_prefix("summary: ")).unwrap();
    total.trim().parse().unwrap()
}

#[test]
fn no_piece_of_a_decision_costs_a_tenth_more_than_its_baseline() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("SKIPPED: instruction counts need valgrind, which is not installed");
        return;
    }
    let program = build();
    let cost = |(piece, times)| {
        let each = (count(&program, piece, times * 2) - count(&program, piece, times)) / times;
        (piece.to_owned(), each)
    };
    let counted: BTreeMap<String, u64> = PIECES.into_iter().map(cost).collect();
    let file = root().join("tests/instructions/baseline.json");
    if std::env::var_os("UPDATE_BASELINE").is_some() {
        let text = serde_json::to_string_pretty(&counted).unwrap() + "\n";
        return std::fs::write(file, text).unwrap();
    }
    let baseline: BTreeMap<String, u64> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    println!("counted {counted:?}, baseline {baseline:?}");
    for (piece, counted) in counted {
        let limit = baseline[&piece] as f64 * TOLERANCE;
        assert!(counted as f64 <= limit, "{piece}: {counted} instructions, baseline {}", baseline[&piece]);
    }
}
