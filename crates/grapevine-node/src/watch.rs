//! Following files that operators replace while the router runs.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

/// What tells one state of a file from another; `None` while it is away. One behind a symbolic link, as in a
/// mounted Secret, is followed.
type Stamp = Option<State>;

/// Not the time of its last writing, which copies keep: a key may be replaced by one as long and as old. That
/// of its last change is the system's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    inode: u64,
    changed: (i64, i64),
    bytes: u64,
}

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
    let changed = (metadata.ctime(), metadata.ctime_nsec());
    Some(State { inode: metadata.ino(), changed, bytes: metadata.len() })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_file_as_long_and_as_old_as_the_one_before_is_another() {
        let dir = std::env::temp_dir().join(format!("grapevine-watch-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (file, next) = (dir.join("keys"), dir.join("next"));
        fs::write(&file, "old").unwrap();
        fs::write(&next, "new").unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        fs::File::options().write(true).open(&next).unwrap().set_modified(written).unwrap();
        let mut changes = FileChanges::of(&[&file], Duration::from_millis(1)).await;
        fs::rename(&next, &file).unwrap();
        let noticed = tokio::time::timeout(Duration::from_secs(20), changes.next()).await;
        fs::remove_dir_all(&dir).unwrap();
        assert!(noticed.is_ok());
    }
}
