//! The binary of the version before this one: what `GRAPEVINE_TEST_PREVIOUS` names, or built from the newest
//! tag, or, as long as there is no tag, from the commit in `previous.txt`.
//!
//! What both versions depend on is taken from this build where it is the same, so that only our own crates
//! are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::{root, say, succeeds};

/// Where there is none: why.
static BINARY: LazyLock<Result<String, String>> =
    LazyLock::new(|| std::env::var("GRAPEVINE_TEST_PREVIOUS").or_else(|_| build(&commit()?)));

/// The binary; says why the test that asks is skipped where there is none.
pub(crate) fn binary() -> Option<&'static str> {
    match &*BINARY {
        Ok(binary) => Some(binary),
        Err(why) => {
            say(&format!("SKIPPED: no other version to test with: {why}"));
            None
        }
    }
}

/// `serve` of it.
pub(crate) fn serve(binary: &str) -> Command {
    let mut command = Command::new(binary);
    command.arg("serve");
    command
}

/// The commit of the newest tag before HEAD, or that of `previous.txt`.
fn commit() -> Result<String, String> {
    let tags = git(&["tag", "--merged", "HEAD", "--no-contains", "HEAD", "--sort=-creatordate"])?;
    let written = fs::read_to_string(root().join("tests/deploy/previous.txt")).unwrap();
    let named = tags.lines().next().unwrap_or(written.trim()).to_owned();
    // A shallow clone does not have it.
    git(&["rev-parse", "--verify", &format!("{named}^{{commit}}")]).map(|commit| commit.trim().to_owned())
}

fn git(args: &[&str]) -> Result<String, String> {
    let output = Command::new("git").args(args).current_dir(root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(said(&output.stdout))
    } else {
        Err(said(&output.stderr).trim().to_owned())
    }
}

/// Builds a commit, in a folder of its own.
fn build(commit: &str) -> Result<String, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("previous");
    let (source, target) = (place.join(commit), place.join("target"));
    once(&source, |folder| unpack(commit, folder));
    once(&target, take_dependencies);
    let features: &[&str] =
        if cfg!(feature = "kubernetes") { &["--features", "grapevine/kubernetes"] } else { &[] };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--bin", "grapevine", "--locked", "--manifest-path"])
        .arg(source.join("Cargo.toml"))
        .args(features)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(target.join("debug/grapevine").to_str().unwrap().to_owned())
}

/// Makes a folder unless it is there; never half of it.
fn once(folder: &Path, make: impl FnOnce(&Path)) {
    let partly = folder.with_extension("part");
    if folder.exists() {
        return;
    }
    let _ = fs::remove_dir_all(&partly);
    fs::create_dir_all(&partly).unwrap();
    make(&partly);
    fs::rename(partly, folder).unwrap();
}

/// Puts the files of a commit into a folder.
fn unpack(commit: &str, folder: &Path) {
    let archive = folder.with_extension("tar");
    git(&["archive", "--output", archive.to_str().unwrap(), commit]).unwrap();
    assert!(succeeds(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(folder)));
    fs::remove_file(archive).unwrap();
}

/// Begins a target directory with what this build made of the registry's crates: linked, not copied, where it
/// is large. Cargo takes what fits and builds the rest.
fn take_dependencies(target: &Path) {
    let ours = Path::new(env!("CARGO_BIN_EXE_grapevine")).parent().unwrap();
    let theirs = target.join("debug");
    fs::create_dir(&theirs).unwrap();
    for (folder, how) in [("deps", "-al"), ("build", "-a"), (".fingerprint", "-a")] {
        assert!(succeeds(Command::new("cp").arg(how).arg(ours.join(folder)).arg(&theirs)));
        for entry in entries(&theirs.join(folder)) {
            let name = entry.file_name().unwrap().to_string_lossy();
            match name.contains("grapevine") {
                true if entry.is_dir() => fs::remove_dir_all(entry).unwrap(),
                true => fs::remove_file(entry).unwrap(),
                false => {}
            }
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
