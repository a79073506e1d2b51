//! A host that says what a test tells it to, and helpers to wait.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grapevine_mesh::{
    FetchError, Host, Incoming, LoadReport, MeshHandle, Outgoing, PeerStatus, ReplicaEpoch, Snapshot,
    entry_len,
};
use grapevine_tree::{
    DeltaEntry, Mark, PrefixKey, PrefixTree, ReplicaHistory, ReplicaId, RouterId, SnapshotPage, TreeConfig,
};

/// Virtual or real time to wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The admin ports of a network, by URL.
#[derive(Default)]
pub(crate) struct Admins {
    handles: Mutex<BTreeMap<String, MeshHandle>>,
    dead: Mutex<BTreeSet<String>>,
    questions: Mutex<Vec<Vec<u8>>>,
    pub(crate) asked: AtomicU64,
}

impl Admins {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn open(&self, url: &str, mesh: &MeshHandle) {
        self.handles.lock().unwrap().insert(url.to_owned(), mesh.clone());
    }

    pub(crate) fn close(&self, url: &str) {
        self.handles.lock().unwrap().remove(url);
    }

    /// Nobody answers there, or somebody does again.
    pub(crate) fn set_dead(&self, url: &str, dead: bool) {
        let mut all = self.dead.lock().unwrap();
        if dead {
            all.insert(url.to_owned())
        } else {
            all.remove(url)
        };
    }

    /// The first questions that were asked, as they were.
    pub(crate) fn questions(&self) -> Vec<Vec<u8>> {
        self.questions.lock().unwrap().clone()
    }

    async fn fetch(&self, url: &str, body: &[u8]) -> Result<Vec<u8>, FetchError> {
        if self.asked.fetch_add(1, Relaxed) < 100 {
            self.questions.lock().unwrap().push(body.to_vec());
        }
        if self.dead.lock().unwrap().contains(url) {
            return Err(FetchError::Unreachable("cut".to_owned()));
        }
        let mesh = self.handles.lock().unwrap().get(url).cloned();
        let mesh = mesh.ok_or(FetchError::Unreachable("nobody".to_owned()))?;
        // A round trip.
        tokio::time::sleep(Duration::from_millis(2)).await;
        mesh.answer(body).await.map_err(|refused| FetchError::Refused(refused.status()))
    }
}

/// Says what a test wants, and keeps what it hears in a real tree.
pub(crate) struct TestHost {
    say: Mutex<Saying>,
    heard: Mutex<Vec<Incoming>>,
    tree: Mutex<PrefixTree>,
    restored: Mutex<Vec<Snapshot>>,
    admins: Arc<Admins>,
}

#[derive(Default)]
struct Saying {
    entries: VecDeque<DeltaEntry>,
    loads: Vec<LoadReport>,
    epochs: Vec<ReplicaEpoch>,
    ignores_budget: bool,
}

impl Host for TestHost {
    async fn collect(&self, budget: usize) -> Outgoing {
        let mut say = self.say.lock().unwrap();
        let mut left = budget;
        let mut entries = Vec::new();
        while let Some(entry) = say.entries.front() {
            let len = entry_len(entry);
            if len > left && !say.ignores_budget {
                break;
            }
            left = left.saturating_sub(len);
            entries.extend(say.entries.pop_front());
        }
        Outgoing { entries, loads: say.loads.clone(), epochs: say.epochs.clone(), draining: false }
    }

    fn loads(&self) -> Vec<LoadReport> {
        self.say.lock().unwrap().loads.clone()
    }

    fn deliver(&self, incoming: Incoming) {
        let mut tree = self.tree.lock().unwrap();
        incoming.entries.iter().for_each(|entry| tree.apply(incoming.origin, entry, 1));
        self.heard.lock().unwrap().push(incoming);
    }

    async fn fetch(&self, url: &str, body: Vec<u8>, _limit: usize) -> Result<Vec<u8>, FetchError> {
        self.admins.fetch(url, &body).await
    }

    async fn histories(&self) -> Option<Vec<ReplicaHistory>> {
        Some(self.tree.lock().unwrap().histories())
    }

    async fn snapshot(&self, cursor: u64, budget: usize) -> Option<SnapshotPage> {
        Some(self.tree.lock().unwrap().snapshot(cursor, budget, 1))
    }

    async fn restore(&self, snapshot: Snapshot) {
        let mut tree = self.tree.lock().unwrap();
        let dates = tree.adopt(&snapshot.histories);
        for node in snapshot.pages().flatten() {
            tree.restore(snapshot.teacher, &node, &dates, 1);
        }
        self.restored.lock().unwrap().push(snapshot);
    }
}

impl TestHost {
    pub(crate) fn new() -> Arc<Self> {
        Self::with(&Admins::new())
    }

    /// A host that fetches from these admin ports.
    pub(crate) fn with(admins: &Arc<Admins>) -> Arc<Self> {
        Arc::new(Self {
            say: Mutex::default(),
            heard: Mutex::default(),
            tree: Mutex::new(PrefixTree::new(TreeConfig::default())),
            restored: Mutex::default(),
            admins: admins.clone(),
        })
    }

    /// Says this, as one that has picked it.
    pub(crate) fn say(&self, numbers: impl IntoIterator<Item = u64>) {
        let entries: Vec<DeltaEntry> = numbers.into_iter().map(entry).collect();
        let mut tree = self.tree.lock().unwrap();
        entries.iter().for_each(|entry| tree.apply(RouterId(0), entry, 1));
        self.say.lock().unwrap().entries.extend(entries);
    }

    pub(crate) fn say_load(&self, inflight: u32) {
        let load = LoadReport { replica: ReplicaId(1), inflight, queued_tokens: 0, new_tokens: 0 };
        self.say.lock().unwrap().loads = vec![load];
    }

    pub(crate) fn say_epoch(&self, epoch: u32) {
        self.say.lock().unwrap().epochs = vec![ReplicaEpoch { replica: ReplicaId(1), epoch }];
    }

    pub(crate) fn ignore_budget(&self) {
        self.say.lock().unwrap().ignores_budget = true;
    }

    pub(crate) fn heard(&self) -> Vec<Incoming> {
        self.heard.lock().unwrap().clone()
    }

    /// Numbers heard of router `name`, in order.
    pub(crate) fn numbers(&self, name: &str) -> Vec<u64> {
        let heard = self.heard.lock().unwrap();
        let of_router = heard.iter().filter(|it| it.origin == RouterId::of_name(name));
        of_router.flat_map(|it| &it.entries).map(|entry| entry.marks[0].hash >> 8).collect()
    }

    /// Numbers heard of router `name`, sorted.
    pub(crate) fn sorted(&self, name: &str) -> Vec<u64> {
        let mut numbers = self.numbers(name);
        numbers.sort_unstable();
        numbers
    }

    /// Latest inflight heard of router `name`.
    pub(crate) fn inflight(&self, name: &str) -> Option<u32> {
        let heard = self.heard.lock().unwrap();
        let of_router = heard.iter().rev().filter(|it| it.origin == RouterId::of_name(name));
        of_router.flat_map(|it| &it.loads).flatten().map(|load| load.inflight).next()
    }

    /// Whether its tree knows where this is.
    pub(crate) fn knows(&self, number: u64) -> bool {
        let hashes = entry(number).marks.iter().take(1).map(|mark| mark.hash).collect();
        let mut found = Vec::new();
        self.tree.lock().unwrap().lookup(&PrefixKey { hashes, bytes: 128 }, 1, &mut found);
        found.iter().any(|it| it.replica == ReplicaId(7))
    }

    /// Whom it took a snapshot of, and the epochs in them.
    pub(crate) fn teachers(&self) -> Vec<(RouterId, Vec<ReplicaEpoch>)> {
        self.restored.lock().unwrap().iter().map(|it| (it.teacher, it.epochs.clone())).collect()
    }
}

/// Spread like a real hash above the low byte, which is no part of one; and found again from it.
pub(crate) fn entry(number: u64) -> DeltaEntry {
    let marks = [Mark { index: 0, hash: number << 8 }, Mark { index: 9, hash: !(number << 8) & !0xff }];
    DeltaEntry { replica: ReplicaId(7), count: 1.0, epoch: 0, marks: marks.into_iter().collect() }
}

/// Waits until `done`, looking every few milliseconds of virtual or real time.
pub(crate) async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = tokio::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn peer(mesh: &MeshHandle, name: &str) -> Option<PeerStatus> {
    mesh.status().peers.iter().find(|peer| &*peer.name == name).cloned()
}

pub(crate) fn is_live(mesh: &MeshHandle, name: &str) -> bool {
    peer(mesh, name).is_some_and(|peer| peer.live)
}

/// Lets `ticks` ticks of `mesh` pass.
pub(crate) async fn ticks(mesh: &MeshHandle, ticks: u64) {
    let target = mesh.status().totals.ticks + ticks;
    until("ticks pass", || mesh.status().totals.ticks >= target).await;
}

/// Count under `reason` in a list of rejects.
pub(crate) fn rejected(mesh: &MeshHandle, reason: &str) -> u64 {
    let status = mesh.status();
    let traffic = &status.totals.traffic;
    let all =
        traffic.datagrams_rejected.iter().chain(&traffic.segments_rejected).chain(&traffic.questions_refused);
    all.filter(|(name, _)| *name == reason).map(|(_, count)| count).sum()
}
