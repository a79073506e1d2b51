//! The decision log: one JSON line for each decision, hashes and lengths, never text. `grapevine replay`
//! reads it.
//!
//! A request hands its decision to a bounded queue and goes on; a thread of its own writes. When the queue
//! is full, or the disk is, decisions are dropped and counted, and it is said once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use grapevine_route::Decision;
use grapevine_tree::{PrefixKey, Teacher};
use serde::Serialize;

use crate::replica::Replica;

/// Decisions that may wait to be written: a disk that stands still for a moment costs none.
const QUEUE: usize = 8_192;

/// Between two tries to write after one that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Who may read a new file: its owner and whoever ships logs. Hashes are no text, but who has the fleet's
/// secret can test a guess against them.
const MODE: u32 = 0o640;

/// Which files a log may fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The file that is written; those before it have `.1`, `.2`, ... behind its name.
    pub path: PathBuf,
    /// Size at which a new file is begun, bytes.
    pub max_bytes: u64,
    /// Files kept, this one included.
    pub files: usize,
}

/// A decision to be written.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When, Unix time in ms.
    pub at_ms: u64,
    /// The path, if it is one that the router knows.
    pub path: Option<&'static str>,
    /// The prompt's key, if it was read.
    pub key: Option<Arc<PrefixKey>>,
    /// 1 for the first replica that was tried.
    pub attempt: u32,
    /// The decision.
    pub decision: Decision,
    /// The replica.
    pub replica: Arc<Replica>,
    /// Replicas that might have got it.
    pub candidates: usize,
}

/// Hands decisions to the writer.
#[derive(Debug)]
pub struct DecisionLog {
    queue: SyncSender<Logged>,
    counts: Arc<Counts>,
}

/// What became of the decisions.
#[derive(Debug, Default)]
pub struct Counts {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl Counts {
    /// Written since the start.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Dropped since the start, because the queue or the disk was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

impl DecisionLog {
    /// Opens the log and starts its writer, which ends with this.
    pub fn open(room: &Room, router: &str) -> io::Result<Self> {
        let (queue, decisions) = sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let files = Files::open(room)?;
        let writer = Writer {
            router: router.to_owned(),
            files,
            counts: Arc::clone(&counts),
            failed_at: None,
            pending: 0,
        };
        std::thread::Builder::new().name("decision-log".to_owned()).spawn(move || writer.run(&decisions))?;
        Ok(Self { queue, counts })
    }

    /// Writes it some time soon, or drops it.
    pub fn write(&self, logged: Logged) {
        if self.queue.try_send(logged).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    /// What became of the decisions.
    pub fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }
}

/// A line. `grapevine-sim` reads `at_ms`, `key`, `bytes` and `attempt`.
#[derive(Serialize)]
struct Line<'a> {
    at_ms: u64,
    router: &'a str,
    path: Option<&'static str>,
    attempt: u32,
    replica: &'a str,
    reason: &'static str,
    prompt_tokens: u32,
    matched_tokens: u32,
    best_matched_tokens: u32,
    teacher: Option<String>,
    guarded: Option<String>,
    tied: u32,
    candidates: usize,
    bytes: u64,
    key: Vec<String>,
}

impl<'a> Line<'a> {
    fn of(router: &'a str, logged: &'a Logged) -> Self {
        let Logged { at_ms, path, key, attempt, decision, replica, candidates } = logged;
        Self {
            at_ms: *at_ms,
            router,
            path: *path,
            attempt: *attempt,
            replica: &replica.name,
            reason: decision.reason.name(),
            prompt_tokens: decision.prompt_tokens,
            matched_tokens: decision.matched_tokens,
            best_matched_tokens: decision.best_matched_tokens,
            teacher: decision.teacher.map(|teacher| match teacher {
                Teacher::Own => "own".to_owned(),
                Teacher::Peer(router) => format!("{router:?}"),
            }),
            guarded: decision.guarded.map(|replica| format!("{replica:?}")),
            tied: decision.tied,
            candidates: *candidates,
            bytes: key.as_ref().map_or(0, |key| key.bytes),
            key: key.iter().flat_map(|key| &key.hashes).map(|hash| format!("{hash:016x}")).collect(),
        }
    }
}

struct Writer {
    router: String,
    files: Files,
    counts: Arc<Counts>,
    failed_at: Option<Instant>,
    /// Lines taken that have not yet reached the file.
    pending: u64,
}

impl Writer {
    /// Writes what comes; what was written is on its way to the disk whenever nothing waits.
    fn run(mut self, decisions: &Receiver<Logged>) {
        while let Ok(first) = decisions.recv() {
            let mut next = Ok(first);
            while let Ok(logged) = next {
                self.take(&logged);
                next = decisions.try_recv();
            }
            match self.files.out.flush() {
                Ok(()) => self.reached_the_file(),
                Err(error) => self.failed(&error),
            }
            if next.is_err_and(|end| end == TryRecvError::Disconnected) {
                return;
            }
        }
    }

    fn take(&mut self, logged: &Logged) {
        self.pending += 1;
        if self.failed_at.is_some_and(|at| at.elapsed() < PAUSE) {
            self.give_up();
            return;
        }
        let line = serde_json::to_vec(&Line::of(&self.router, logged)).map_err(io::Error::from);
        if let Err(error) = line.and_then(|line| self.files.write(line)) {
            self.failed(&error);
        }
    }

    fn reached_the_file(&mut self) {
        let lines = std::mem::take(&mut self.pending);
        self.counts.written.fetch_add(lines, Relaxed);
        if lines > 0 && self.failed_at.take().is_some() {
            tracing::info!("decisions are logged again");
        }
    }

    /// What could not be written is not tried again: the next decisions are newer.
    fn failed(&mut self, error: &io::Error) {
        self.give_up();
        if self.failed_at.replace(Instant::now()).is_none() {
            tracing::warn!(%error, "decisions cannot be logged; they are dropped and counted");
        }
        self.files.reopen();
    }

    fn give_up(&mut self) {
        self.counts.dropped.fetch_add(std::mem::take(&mut self.pending), Relaxed);
    }
}

/// The file that is written, and those before it.
struct Files {
    room: Room,
    out: BufWriter<File>,
    bytes: u64,
}

impl Files {
    fn open(room: &Room) -> io::Result<Self> {
        let (out, bytes) = append(&room.path)?;
        Ok(Self { room: room.clone(), out, bytes })
    }

    fn write(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        line.push(b'\n');
        if self.bytes > 0 && self.bytes + line.len() as u64 > self.room.max_bytes {
            self.rotate()?;
        }
        self.out.write_all(&line)?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.out.flush()?;
        for older in (1..self.room.files).rev() {
            let from = if older == 1 { self.room.path.clone() } else { numbered(&self.room.path, older - 1) };
            match fs::rename(from, numbered(&self.room.path, older)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.room.files == 1 {
            fs::remove_file(&self.room.path)?;
        }
        (self.out, self.bytes) = append(&self.room.path)?;
        Ok(())
    }

    /// Gives up what waits in memory, and begins anew at the file's end.
    fn reopen(&mut self) {
        if let Ok((out, bytes)) = append(&self.room.path) {
            let _ = std::mem::replace(&mut self.out, out).into_parts();
            self.bytes = bytes;
        }
    }
}

fn append(path: &Path) -> io::Result<(BufWriter<File>, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(MODE).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((BufWriter::new(file), bytes))
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    use grapevine_route::Reason;
    use grapevine_tree::ReplicaId;

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::ReplicaSet;

    fn logged() -> Logged {
        let spec = ReplicaSpec::new("r0", "http://127.0.0.1:1");
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        let decision = Decision {
            replica: ReplicaId(1),
            index: 0,
            reason: Reason::Affinity,
            prompt_tokens: 75,
            matched_tokens: 32,
            best_matched_tokens: 32,
            teacher: Some(Teacher::Own),
            guarded: None,
            tied: 1,
        };
        Logged {
            at_ms: 1_700_000_000_000,
            path: Some("/v1/completions"),
            key: Some(Arc::new(PrefixKey { hashes: vec![10, u64::MAX], bytes: 300 })),
            attempt: 1,
            decision,
            replica: Arc::clone(&set.replicas[0]),
            candidates: 4,
        }
    }

    /// A directory that goes with the test.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("grapevine-log-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn config(&self, max_bytes: u64, files: usize) -> Room {
            Room { path: self.0.join("decisions.jsonl"), max_bytes, files }
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(20), "never: {what}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_line_holds_hashes_and_lengths() {
        let dir = Dir::new("line");
        let config = dir.config(1 << 20, 2);
        let log = DecisionLog::open(&config, "router-a").unwrap();
        log.write(logged());
        until("it is written", || fs::read_to_string(&config.path).is_ok_and(|text| text.ends_with('\n')));
        let line: serde_json::Value = serde_json::from_slice(&fs::read(&config.path).unwrap()).unwrap();
        assert_eq!(line["key"], serde_json::json!(["000000000000000a", "ffffffffffffffff"]));
        assert_eq!((&line["reason"], &line["replica"]), (&"affinity".into(), &"r0".into()));
        assert_eq!((line["bytes"].as_u64(), line["matched_tokens"].as_u64()), (Some(300), Some(32)));
        assert_eq!(log.counts().written(), 1);
    }

    #[test]
    fn files_are_bounded_in_size_and_number() {
        let dir = Dir::new("rotate");
        let config = dir.config(2_000, 3);
        let log = DecisionLog::open(&config, "router-a").unwrap();
        (0..100).for_each(|_| log.write(logged()));
        until("all are written", || log.counts().written() == 100);
        drop(log);
        let mut names: Vec<_> = fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["decisions.jsonl", "decisions.jsonl.1", "decisions.jsonl.2"]);
        assert!(fs::read_dir(&dir.0).unwrap().all(|e| e.unwrap().metadata().unwrap().len() <= 2_000));
    }

    #[test]
    fn files_are_not_for_everybody() {
        use std::os::unix::fs::PermissionsExt;
        let dir = Dir::new("mode");
        let config = dir.config(2_000, 3);
        let log = DecisionLog::open(&config, "router-a").unwrap();
        (0..30).for_each(|_| log.write(logged()));
        until("all are written", || log.counts().written() == 30);
        let modes =
            fs::read_dir(&dir.0).unwrap().map(|e| e.unwrap().metadata().unwrap().permissions().mode());
        let modes: Vec<_> = modes.collect();
        assert!(modes.len() == 3 && modes.iter().all(|mode| mode & 0o027 == 0), "{modes:?}");
    }

    #[test]
    fn a_full_disk_costs_decisions_only() {
        let config = Room { path: "/dev/full".into(), max_bytes: 1 << 20, files: 2 };
        let log = DecisionLog::open(&config, "router-a").unwrap();
        (0..1_000).for_each(|_| log.write(logged()));
        until("all are counted", || log.counts().dropped() == 1_000);
        assert_eq!(log.counts().written(), 0);
    }
}
