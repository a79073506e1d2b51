//! The page at `/` of the admin listener, in headless Chromium. Where there is no Chromium or npm's registry
//! cannot be reached, the tests say so and pass.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

#[path = "../e2e/process.rs"]
#[expect(dead_code, reason = "shared with the end-to-end tests, which use all of it")]
mod process;

use std::path::{Path, PathBuf};
use std::process::Command;

use process::{Engine, chat, get, routers, wait_for};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

const SCRIPTS: [&str; 6] =
    ["package.json", "browser.mjs", "scenes.mjs", "serve.mjs", "states.mjs", "live.mjs"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn chromium() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Some(named.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let here = |name| std::env::split_paths(&paths).map(move |dir| dir.join(name)).find(|path| path.exists());
    BROWSERS.into_iter().find_map(here)
}

/// A script of this folder, with its packages beside it and the browser as its first argument.
fn script(name: &str) -> Option<Command> {
    let Some(browser) = chromium() else {
        println!("SKIPPED: no Chromium here; name one with CHROMIUM");
        return None;
    };
    // One folder for each script: tests run at the same time.
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser").join(name);
    std::fs::create_dir_all(&home).unwrap();
    for file in SCRIPTS {
        std::fs::copy(root().join("tests/browser").join(file), home.join(file)).unwrap();
    }
    let install = ["install", "--silent", "--no-audit", "--no-fund"];
    let installed = Command::new("npm").args(install).current_dir(&home).output();
    if !installed.as_ref().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: npm's playwright-core and axe-core cannot be installed here: {installed:?}");
        return None;
    }
    let mut command = Command::new("node");
    command.arg(home.join(name)).arg(browser);
    command.env("PAGE_FILES", root().join("crates/grapevine-node/src/admin/page"));
    Some(command)
}

fn passes(mut script: Command) {
    let output = script.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&output.stdout));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// In every state that the page knows. `SCREENSHOTS=FOLDER` keeps pictures of them.
#[test]
fn every_state_is_sound() {
    let Some(mut script) = script("states.mjs") else { return };
    script.args(std::env::var_os("SCREENSHOTS"));
    passes(script);
}

#[test]
fn it_shows_what_the_router_says() {
    let Some(mut script) = script("live.mjs") else { return };
    let engines: Vec<Engine> = (0..2).map(|_| Engine::start(&["--base-ms", "0"])).collect();
    let urls: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
    let routers = routers(2, &urls, &[]);
    let preamble = "You answer questions about vines. ".repeat(64);
    for i in 0..24 {
        let router = routers.get(i % 2).unwrap();
        let messages = serde_json::json!([
            {"role": "system", "content": preamble},
            {"role": "user", "content": format!("question {i}")},
        ]);
        assert_eq!(chat(&router.url, &messages).0.status, 200);
    }
    let admin = &routers.first().unwrap().admin;
    wait_for("the traffic to be in the hit rates", || {
        let fleet: serde_json::Value =
            serde_json::from_slice(&get(&format!("{admin}/api/v1/fleet")).1).ok()?;
        let shown: u64 = fleet["points"].as_array()?.iter().filter_map(|p| p["requests"].as_u64()).sum();
        (shown == 24).then_some(())
    });
    script.arg(admin);
    passes(script);
}

/// The scenes are served under the policy that the router sends.
#[test]
fn the_scenes_have_the_routers_policy() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let ours = read("crates/grapevine-node/src/admin/page.rs");
    let policy = ours.split("CONTENT_SECURITY_POLICY: &str").nth(1).unwrap().split('"').nth(1).unwrap();
    assert!(read("tests/browser/serve.mjs").contains(&format!("\"{policy}\"")), "{policy}");
}
