//! What deploy/ says, held against the binary and against the tools that read it.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

#[path = "../e2e/client.rs"]
mod client;
mod compose;
mod licences;
mod previous;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "shared with the end-to-end tests, which use all of it")]
mod process;
#[path = "../e2e/seat.rs"]
mod seat;
mod upgrade;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compose::Compose;
use process::{Engine, Process, Router, routers};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Said where a passing test's runner does not keep it to itself.
fn say(text: &str) {
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).unwrap();
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The container file, compose file, unit, chart and manifests, by the tools that know their formats. What
/// the registries do not have is skipped, and named.
#[test]
fn tools_find_nothing_wrong_with_what_is_deployed() {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy");
    let python = tools.join("bin/python");
    let checks = root().join("tests/deploy");
    std::fs::create_dir_all(&tools).unwrap();
    let ready = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&tools))
        && succeeds(
            Command::new(&python)
                .args(["-m", "pip", "install", "-q", "-r"])
                .arg(checks.join("requirements.txt")),
        );
    if !ready {
        return say("SKIPPED: the checks of deploy/ cannot be installed here");
    }
    let Output { status, stdout, stderr } = Command::new(python)
        .arg(checks.join("check.py"))
        .arg(root())
        .arg(env!("CARGO_BIN_EXE_grapevine"))
        .arg(&tools)
        .output()
        .unwrap();
    let said = String::from_utf8(stdout).unwrap();
    for line in said.lines().filter(|line| line.starts_with("SKIPPED")) {
        say(line);
    }
    assert!(status.success(), "{said}\n{}", String::from_utf8_lossy(&stderr));
}

/// The version stands in one place for the binary; what is deployed must name the same.
#[test]
fn versions_are_those_of_the_binary() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("deploy/docker/Dockerfile", format!("ARG VERSION={version}")),
        ("deploy/compose/.env", format!("GRAPEVINE_IMAGE=grapevine:{version}")),
        ("deploy/compose/vllm.env", format!("GRAPEVINE_IMAGE=grapevine:{version}")),
        ("deploy/helm/grapevine/Chart.yaml", format!("appVersion: \"{version}\"")),
        ("deploy/kubernetes/example/kustomization.yaml", format!("    newTag: {version}")),
    ] {
        let text = std::fs::read_to_string(root().join(file)).unwrap();
        assert!(text.lines().any(|have| have == line), "{file} lacks `{line}`");
    }
}

/// compose.yaml without containers: its engines, routers and load as processes, with their arguments and
/// settings, on loopback instead of its network.
#[test]
fn what_compose_starts_works_together() {
    let compose = Compose::read(&root().join("deploy/compose"));
    let command = compose.arguments("engine");
    let engines: Vec<Engine> = (0..compose.count("engine-"))
        .map(|_| Engine::start(&with(&command, "--listen", "127.0.0.1:0")))
        .collect();
    assert_eq!(engines.len(), 4);
    let named = compose.setting("GRAPEVINE_REPLICAS");
    let names = named.split(',').map(|replica| replica.split_once('=').unwrap().0);
    let replicas: Vec<String> =
        names.zip(&engines).map(|(name, engine)| format!("{name}={}", engine.url)).collect();
    let settings = compose.settings(|name| {
        // Said anew for loopback, where status is to be seen without the token.
        let placed = ["_REPLICAS", "_GOSSIP_LISTEN", "_GOSSIP_SEEDS", "_ADMIN_TOKEN"];
        name.starts_with("GRAPEVINE_") && !placed.iter().any(|end| name.ends_with(end))
    });
    let routers: Vec<Router> = routers(compose.count("router-"), &replicas, &settings);
    assert_eq!(routers.len(), 3);

    let urls: Vec<&str> = routers.iter().map(|router| router.url.as_str()).collect();
    let named = "http://router-1:8080,http://router-2:8080,http://router-3:8080";
    let command = compose.arguments("load").replace(named, &urls.join(","));
    let mut load = Process::start(&[&["load"], &*with(&command, "--seconds", "3")].concat(), &[]);
    assert_eq!(load.end().code(), Some(0), "{}", load.log());
    load.line(|line| line.contains(" 0 failed, token hit rate").then_some(()));
}

/// Arguments, with another value of one of the options.
fn with<'a>(arguments: &'a str, option: &str, value: &'a str) -> Vec<&'a str> {
    let mut words: Vec<&str> = arguments.split_whitespace().collect();
    let at = words.iter().position(|word| *word == option).unwrap();
    words[at + 1] = value;
    words
}
