//! The documentation, held against the repository and the binary.
//!
//! A block of commands that begins with three back ticks and `sh` in README.md or docs/guides is run, all
//! blocks of a file one after another in one shell. What cannot be run here says why: `sh ignore=needs-gpu`.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod markdown;
#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "shared with the end-to-end tests, which use all of it")]
mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use grapevine_node::config::sections;
use markdown::{Page, words_like};
use process::{Engine, Router, chat, get};

/// Variables that are no settings of a router: of tests, of scripts, of compose.yaml.
const NO_SETTINGS: &[&str] = &[
    "GRAPEVINE_BIN",
    "GRAPEVINE_IMAGE",
    "GRAPEVINE_TEST_BINARY",
    "GRAPEVINE_TEST_PREVIOUS",
    "GRAPEVINE_TEST_LLAMA",
    "GRAPEVINE_TEST_VLLM",
];

/// What follows the name in labels of keys (docs/protocol.md): no subcommands.
const NO_COMMANDS: &[&str] = &["exchange", "gossip", "prefix"];

/// Seconds for the commands of a guide: they take 20 where they take longest, and beyond this they hang.
const GUIDE_LIMIT: &str = "180";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files of the repository below `folders` that end in one of `ends`, new ones included.
fn files(folders: &[&str], ends: &[&str]) -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .args(folders)
        .current_dir(root())
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let wanted = listed.lines().filter(|name| ends.iter().any(|end| name.ends_with(end)));
    wanted.map(|name| root().join(name)).filter(|path| path.is_file()).collect()
}

fn pages() -> Vec<Page> {
    files(&["."], &[".md"]).into_iter().map(Page::read).collect()
}

fn fail_with(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn links_lead_somewhere() {
    let pages: BTreeMap<PathBuf, Page> = pages().into_iter().map(|page| (page.path.clone(), page)).collect();
    let mut problems = Vec::new();
    for page in pages.values() {
        for link in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.path.clone() } else { page.folder().join(path) };
            let Ok(target) = target.canonicalize() else {
                problems.push(format!("{}: {link} does not exist", page.name()));
                continue;
            };
            let known = pages.get(&target).is_none_or(|page| page.anchors().contains(anchor));
            if !anchor.is_empty() && !known {
                problems.push(format!("{}: {link} has no such heading", page.name()));
            }
        }
    }
    fail_with(&problems);
}

/// Names of all settings, those of files with secrets included.
fn settings() -> BTreeSet<String> {
    let rows = sections().iter().flat_map(|section| &section.settings);
    rows.flat_map(|row| [Some(row.name.to_owned()), row.file_name()]).flatten().collect()
}

#[test]
fn settings_that_are_named_exist() {
    let settings = settings();
    let reference = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut problems = Vec::new();
    let texts = [files(&["."], &[".md"]), files(&["deploy"], &[""])].concat();
    for path in texts {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for name in words_like(&text, "GRAPEVINE_") {
            if !settings.contains(&name) && !NO_SETTINGS.contains(&&*name) {
                problems.push(format!("{}: {name} is no setting", path.display()));
            }
        }
        for name in words_like(&text, "OTEL_") {
            if !reference.contains(&name) {
                problems.push(format!("{}: {name} is not in docs/configuration.md", path.display()));
            }
        }
    }
    fail_with(&problems);
}

#[test]
fn every_setting_is_explained() {
    let reference = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let missing = settings().into_iter().filter(|name| !reference.contains(&format!("`{name}`")));
    fail_with(&missing.map(|name| format!("{name} is not in docs/configuration.md")).collect::<Vec<_>>());
}

/// What `grapevine SUBCOMMAND --help` prints; `None` where there is no such subcommand.
fn help_of(subcommand: &str) -> Option<String> {
    let help = Command::new(env!("CARGO_BIN_EXE_grapevine")).args([subcommand, "--help"]).output().unwrap();
    help.status.success().then(|| String::from_utf8(help.stdout).unwrap())
}

#[test]
fn commands_that_are_named_exist() {
    let mut helps: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut problems = Vec::new();
    for page in pages() {
        for command in page.commands("grapevine") {
            let Some((subcommand, rest)) = command.split_first() else { continue };
            if NO_COMMANDS.contains(&&**subcommand) {
                continue;
            }
            let help = helps.entry(subcommand.clone()).or_insert_with(|| help_of(subcommand));
            let Some(help) = help else {
                problems.push(format!("{}: no `grapevine {subcommand}`", page.name()));
                continue;
            };
            for flag in rest.iter().filter(|word| word.starts_with("--") && word.len() > 2) {
                let flag = flag.split('=').next().unwrap();
                if !help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == flag) {
                    problems.push(format!("{}: `grapevine {subcommand}` has no {flag}", page.name()));
                }
            }
        }
    }
    fail_with(&problems);
}

/// Names of metrics that the binary serves, and those of its crates, which logs are filtered by.
fn metrics() -> BTreeSet<String> {
    let engine = Engine::start(&[]);
    let router = Router::start(std::slice::from_ref(&engine.url), &[]);
    // Times by method and status are there from the first request on.
    let hello = serde_json::json!([{"role": "user", "content": "hello"}]);
    assert_eq!(chat(&router.url, &hello).0.status, 200);
    let text = String::from_utf8(get(&format!("{}/metrics", router.admin)).1).unwrap();
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let parts = ["", "_total", "_bucket", "_sum", "_count"];
    families.flat_map(|family| parts.map(|part| format!("{family}{part}"))).collect()
}

#[test]
fn metrics_that_are_named_exist() {
    let (metrics, mut problems) = (metrics(), Vec::new());
    assert!(metrics.contains("grapevine_requests_total"), "they are read");
    let crates = ["grapevine_node", "grapevine_mesh", "grapevine_tree", "grapevine_route"];
    for page in pages() {
        let named = ["grapevine_", "gen_ai_server_", "http_server_"].map(|ours| words_like(&page.text, ours));
        for name in named.into_iter().flatten() {
            if !metrics.contains(&name) && !crates.contains(&&*name) {
                problems.push(format!("{}: {name} is no metric", page.name()));
            }
        }
    }
    fail_with(&problems);
}

/// In a network of their own, so that their ports are free, and with nothing left running after them.
#[test]
fn commands_of_the_guides_work() {
    let isolated = ["--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let able = Command::new("unshare").args(isolated).args(["ip", "link", "set", "lo", "up"]).output();
    if !able.is_ok_and(|output| output.status.success()) {
        // Not by `eprintln`, which a passing test's runner keeps to itself.
        let said = b"SKIPPED: no namespaces here, the guides' commands are not run\n";
        return std::io::stderr().write_all(said).unwrap();
    }
    let mut problems = Vec::new();
    for page in
        pages().iter().filter(|page| page.name() == "README.md" || page.name().starts_with("docs/guides/"))
    {
        let script = page.script();
        if script.is_empty() {
            continue;
        }
        let binaries = Path::new(env!("CARGO_BIN_EXE_grapevine")).parent().unwrap().display();
        let path = format!("{binaries}:{}", std::env::var("PATH").unwrap());
        let script = format!("ip link set lo up\nset -euo pipefail\n{script}");
        let output = Command::new("timeout")
            .args([GUIDE_LIMIT, "unshare"])
            .args(isolated)
            .args(["bash", "-c", &script])
            .current_dir(root())
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !output.status.success() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let said = text(&output.stdout) + &text(&output.stderr);
            problems.push(format!("{}: {}\n{script}\n---\n{said}", page.name(), output.status));
        }
    }
    fail_with(&problems);
}
