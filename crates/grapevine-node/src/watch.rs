//! Following files that operators replace while the router runs.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// What tells one state of a file from another; `None` while it is away. A file that is replaced has
/// another time of change or length; one behind a symbolic link, as in a mounted Secret, is followed.
type Stamp = Option<(SystemTime, u64)>;

/// Notices when files are not what they were.
pub(crate) struct FileChanges {
    paths: Vec<PathBuf>,
    looks: Interval,
    seen: Vec<Stamp>,
}

impl FileChanges {
    /// Looks at `paths` once in every `look`; what they are now is not a change.
    pub(crate) async fn of(paths: &[&Path], look: Duration) -> Self {
        let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
        let mut looks = interval(look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let seen = stamps(&paths).await;
        Self { paths, looks, seen }
    }

    /// Waits until one of them has changed.
    pub(crate) async fn next(&mut self) {
        loop {
            self.looks.tick().await;
            let now = stamps(&self.paths).await;
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

async fn stamps(paths: &[PathBuf]) -> Vec<Stamp> {
    let mut stamps = Vec::with_capacity(paths.len());
    for path in paths {
        stamps.push(stamp(path).await);
    }
    stamps
}

async fn stamp(path: &Path) -> Stamp {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
