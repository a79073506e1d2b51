//! Runs the models of `models/`: what must hold of the lock-free parts in whatever order threads run.

use std::path::Path;
use std::process::Command;

#[test]
fn what_is_lock_free_holds_in_every_order() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/loom/models/Cargo.toml");
    let run = Command::new(env!("CARGO"))
        .args(["test", "--locked", "--manifest-path"])
        .arg(models)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("loom"))
        .output()
        .unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(run.status.success(), "{}\n{}", said(&run.stdout), said(&run.stderr));
}
