//! The clients that people use, against the binary. Their packages are installed on the way; where no
//! registry can be reached the test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod engine;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "shared with the end-to-end tests, which use all of it")]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;

use process::{Router, wait_for};

fn scripts(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(kind)
}

/// Where packages are installed; kept between runs.
fn home(kind: &str) -> PathBuf {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(kind);
    std::fs::create_dir_all(&home).unwrap();
    home
}

fn succeeds(command: &mut Command) -> bool {
    let done = command.output();
    let good = done.as_ref().is_ok_and(|output| output.status.success());
    if !good {
        eprintln!("{command:?}: {done:?}");
    }
    good
}

/// Runs a script against a router; its last lines are the test's message when it fails.
fn check(mut script: Command) {
    let engine = engine::start();
    let router = Router::start(&[format!("http://{engine}")], &[]);
    let output = script.arg(&router.url).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
    wait_for("nothing in flight: the streams that were left are over", || {
        let status = router.status();
        (status.inflight == 0 && status.requests["client_closed"] >= 1).then_some(())
    });
}

#[test]
fn python_clients_get_what_the_engine_said() {
    let home = home("python");
    let python = home.join("bin/python");
    let requirements = scripts("python").join("requirements.txt");
    let ready = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&home))
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "-q", "-r"]).arg(requirements));
    if !ready {
        return println!("SKIPPED: Python's openai and anthropic cannot be installed here");
    }
    let mut script = Command::new(python);
    script.arg(scripts("python").join("check.py"));
    check(script);
}

#[test]
fn javascript_clients_get_what_the_engine_said() {
    let home = home("node");
    for file in ["package.json", "check.mjs"] {
        std::fs::copy(scripts("node").join(file), home.join(file)).unwrap();
    }
    let install = ["install", "--silent", "--no-audit", "--no-fund"];
    if !succeeds(Command::new("npm").args(install).current_dir(&home)) {
        return println!("SKIPPED: npm's openai and ai cannot be installed here");
    }
    let mut script = Command::new("node");
    script.arg(home.join("check.mjs"));
    check(script);
}
