//! A host that says what a test tells it to, and helpers to wait.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grapevine_mesh::{Host, Incoming, LoadReport, MeshHandle, Outgoing, PeerStatus, ReplicaEpoch, entry_len};
use grapevine_tree::{DeltaEntry, Mark, ReplicaId, RouterId};

/// Virtual or real time to wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct TestHost {
    say: Mutex<Saying>,
    heard: Mutex<Vec<Incoming>>,
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

    fn deliver(&self, incoming: Incoming) {
        self.heard.lock().unwrap().push(incoming);
    }
}

impl TestHost {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn say(&self, hashes: impl IntoIterator<Item = u64>) {
        self.say.lock().unwrap().entries.extend(hashes.into_iter().map(entry));
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

    /// Hashes heard of router `name`, in order.
    pub(crate) fn hashes(&self, name: &str) -> Vec<u64> {
        let heard = self.heard.lock().unwrap();
        let of_router = heard.iter().filter(|it| it.origin == RouterId::of_name(name));
        of_router.flat_map(|it| &it.entries).map(|entry| entry.marks[0].hash).collect()
    }

    /// Latest inflight heard of router `name`.
    pub(crate) fn inflight(&self, name: &str) -> Option<u32> {
        let heard = self.heard.lock().unwrap();
        let of_router = heard.iter().rev().filter(|it| it.origin == RouterId::of_name(name));
        of_router.flat_map(|it| &it.loads).flatten().map(|load| load.inflight).next()
    }
}

pub(crate) fn entry(hash: u64) -> DeltaEntry {
    let marks = [Mark { index: 0, hash }, Mark { index: 9, hash: !hash }].into_iter().collect();
    DeltaEntry { replica: ReplicaId(7), count: 1.0, age_tokens: 0, marks }
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
    let all = traffic.datagrams_rejected.iter().chain(&traffic.segments_rejected);
    all.filter(|(name, _)| *name == reason).map(|(_, count)| count).sum()
}
