//! A network of the test's own: a namespace with a bridge, to which routers' namespaces are wired.

use std::io::{Write as _, stderr};
use std::process::{Command, Stdio};

/// Set in the process that runs inside.
const INSIDE: &str = "GRAPEVINE_NET_TEST_INSIDE";

/// The bridge's own address: engines and the test live here.
pub(crate) const HUB: &str = "10.77.0.254";
pub(crate) const HUB_V6: &str = "fd77::254";

/// Runs `test` in a network namespace of its own: this test binary again, with only the test called
/// `name`.
pub(crate) fn isolated(name: &str, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        make_bridge();
        return test();
    }
    if let Err(why) = can_isolate() {
        // Not by a macro: those are captured, and a skipped test must be seen.
        let _ = writeln!(stderr(), "SKIPPED {name}: {why}");
        return;
    }
    let inside = unshare()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1", "--include-ignored"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(inside.success(), "{name} failed inside its namespace");
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "--"]);
    command
}

fn can_isolate() -> Result<(), String> {
    let script = "ip link add v0 type veth peer name v1 && ip link add br0 type bridge";
    let tried = unshare().args(["sh", "-c", script]).stdin(Stdio::null()).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("unshare: {error}")),
    }
}

fn make_bridge() {
    sh("ip link set lo up");
    sh("ip link add br0 type bridge && ip link set br0 up");
    sh(&format!("ip addr add {HUB}/24 dev br0 && ip addr add {HUB_V6}/64 dev br0 nodad"));
}

/// Runs a shell command that must succeed.
pub(crate) fn sh(script: &str) {
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}
