//! A time of day that can be moved for one process: `clock_gettime` of a small library that is loaded before
//! the system's.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::hub::sh;

/// One router's clock.
pub(crate) struct Clock {
    offset: PathBuf,
    library: PathBuf,
}

impl Clock {
    /// A clock that is right; its files are in `folder`.
    pub(crate) fn new(folder: &Path, owner: &str) -> Self {
        let library = folder.join("clock.so");
        if !library.exists() {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/faults/clock.c");
            sh(&format!("cc -shared -fPIC -O1 -o {} {source}", library.display()));
        }
        let offset = folder.join(format!("clock-{owner}"));
        std::fs::write(&offset, 0_i64.to_ne_bytes()).unwrap();
        Self { offset, library }
    }

    /// What the environment of its process must say.
    pub(crate) fn settings(&self) -> [(&'static str, String); 2] {
        let text = |path: &Path| path.display().to_string();
        [("LD_PRELOAD", text(&self.library)), ("FAULTS_CLOCK", text(&self.offset))]
    }

    /// Moves it so many seconds away from the true time. The file is mapped, so it must keep its length.
    pub(crate) fn move_by(&self, seconds: i64) {
        let mut file = OpenOptions::new().write(true).open(&self.offset).unwrap();
        file.write_all(&seconds.to_ne_bytes()).unwrap();
    }
}
