//! The files that routers read and write: lists, keys, logs on a disk that can be filled.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grapevine_node::auth::keys::line_for;

use super::hub::{HUB, sh};

/// The key of all clients.
pub(crate) const KEY: &str = "the key of the clients of the fault matrix";

/// Room for decision logs.
const DISK_BYTES: usize = 1 << 20;

/// What replaces a file: no YAML, no JSON, no list of keys, not even text.
const GARBAGE: &[u8] = b"\xff\xfe{{{: [garbage\n\x00\x01 - }";

/// A folder of files; within it a disk of its own.
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    replicas: String,
}

impl Files {
    /// `replicas` is the list of replicas, as YAML.
    pub(crate) fn new(replicas: String) -> Self {
        let folder = std::env::temp_dir().join(format!("grapevine-faults-{}", std::process::id()));
        let files = Self { folder, replicas };
        fs::create_dir_all(files.disk()).unwrap();
        sh(&format!("mount -t tmpfs -o size={DISK_BYTES} none {}", files.disk().display()));
        let resolver = files.folder.join("resolv.conf");
        fs::write(&resolver, format!("nameserver {HUB}\noptions timeout:1 attempts:1\n")).unwrap();
        // This mount is seen in this test's namespace only.
        sh(&format!("mount --bind {} /etc/resolv.conf", resolver.display()));
        files.mend();
        files
    }

    pub(crate) fn replicas(&self) -> PathBuf {
        self.folder.join("replicas.yaml")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.folder.join("keys")
    }

    pub(crate) fn log_of(&self, router: &str) -> PathBuf {
        self.disk().join(format!("{router}.jsonl"))
    }

    fn disk(&self) -> PathBuf {
        self.folder.join("disk")
    }

    /// Lists and keys are as they should be.
    pub(crate) fn mend(&self) {
        self.replace(&self.replicas(), self.replicas.as_bytes());
        self.replace(&self.keys(), format!("{}\n", line_for("clients", KEY.as_bytes())).as_bytes());
    }

    /// Lists and keys are garbage.
    pub(crate) fn spoil(&self) {
        self.replace(&self.replicas(), GARBAGE);
        self.replace(&self.keys(), GARBAGE);
    }

    /// Not a byte more fits on the disk.
    pub(crate) fn fill_disk(&self) {
        let mut file = fs::File::create(self.disk().join("filler")).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    pub(crate) fn free_disk(&self) {
        fs::remove_file(self.disk().join("filler")).unwrap();
    }

    /// Whether this router's log has grown within the last second.
    pub(crate) fn was_just_written(&self, router: &str) -> bool {
        let modified = fs::metadata(self.log_of(router)).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < Duration::from_secs(1)))
    }

    fn replace(&self, path: &Path, content: &[u8]) {
        let new = self.folder.join("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.disk()).status();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
