//! What a router says of itself: when, and which way.
//!
//! Load is stale within a second, so it goes straight to every peer: each tick while there is any, and between
//! ticks when it changed. chitchat carries it too, once a second, for peers that are reached over others only; what is news for longer (epochs,
//! farewells) it carries at once.

use grapevine_tree::Millis;

use crate::codec::{self, Vitals};
use crate::{LoadReport, ReplicaEpoch};

/// Replicas whose load is told, at most, the busiest first: 12 bytes each, 6 KiB.
pub const MAX_LOADS: usize = 512;

/// Epochs that are told, at most, the largest first: 9 bytes each.
pub const MAX_EPOCHS: usize = 512;

/// Least time between two writes of mere load into chitchat while peers are told directly, in milliseconds. In
/// a fleet of 32 load would else be two thirds of what chitchat carries.
const WRITE_LOAD_MS: Millis = 1_000;

/// What there is to say.
pub(super) struct Own {
    pub(super) loads: Vec<LoadReport>,
    pub(super) epochs: Vec<ReplicaEpoch>,
    pub(super) draining: bool,
}

/// When and how it is said.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// Number of the first segment that a newcomer should listen to.
    pub(super) floor: u64,
    /// That number is news.
    pub(super) must_write: bool,
    /// Peers are told directly.
    pub(super) direct: bool,
    pub(super) now: Millis,
}

/// Speaks for one router.
#[derive(Debug)]
pub(super) struct Voice {
    vitals: Vitals,
    /// Bytes of what was written last.
    len: usize,
    written_floor: u64,
    written_at: Millis,
    /// Load changed since.
    unwritten: bool,
    /// Peers are to be told.
    untold: bool,
}

impl Voice {
    pub(super) fn new(boot: u64) -> Self {
        let vitals = Vitals { boot, ..Vitals::default() };
        Self { vitals, len: 0, written_floor: 0, written_at: 0, unwritten: false, untold: false }
    }

    /// The first word of a generation, to write.
    pub(super) fn begin(&mut self, generation: u64, now: Millis) -> Vec<u8> {
        self.vitals.generation = generation;
        self.vitals.seq = 1;
        self.vitals.floor = 1;
        self.write(now)
    }

    /// Takes in what there is to say: the bytes to write into chitchat, if any.
    pub(super) fn say(&mut self, own: Own, moment: Moment) -> Option<Vec<u8>> {
        let Own { mut loads, mut epochs, draining } = own;
        busiest(&mut loads);
        largest(&mut epochs);
        let moved = loads != self.vitals.loads;
        let is_news = moment.must_write || epochs != self.vitals.epochs || draining != self.vitals.draining;
        let is_busy = loads.iter().any(|it| it.inflight > 0);
        self.unwritten |= moved;
        let rested = moment.now.saturating_sub(self.written_at) >= WRITE_LOAD_MS;
        let write = is_news || (self.unwritten && (rested || !moment.direct));
        let tell = moment.direct && (is_news || moved || is_busy);
        if write || tell {
            let (seq, floor) = (self.vitals.seq + 1, moment.floor);
            self.vitals = Vitals { loads, epochs, draining, seq, floor, ..std::mem::take(&mut self.vitals) };
        }
        self.untold |= tell;
        write.then(|| self.write(moment.now))
    }

    /// Between two ticks: what replicas have to do now. There is something to tell if that changed.
    pub(super) fn note_loads(&mut self, mut loads: Vec<LoadReport>) {
        busiest(&mut loads);
        let work = |it: &LoadReport| (it.replica, it.inflight, it.queued_tokens);
        let has_work = |it: &&LoadReport| it.inflight > 0 || it.queued_tokens > 0;
        if self.vitals.loads.iter().filter(has_work).map(work).eq(loads.iter().map(work)) {
            return;
        }
        self.vitals.loads = loads;
        self.vitals.seq += 1;
        (self.unwritten, self.untold) = (true, true);
    }

    fn write(&mut self, now: Millis) -> Vec<u8> {
        let bytes = codec::encode_vitals(&self.vitals);
        self.len = bytes.len();
        (self.written_at, self.written_floor, self.unwritten) = (now, self.vitals.floor, false);
        bytes
    }

    /// What is to be told to every peer, once.
    pub(super) fn take_untold(&mut self) -> Option<Vitals> {
        std::mem::take(&mut self.untold).then(|| self.vitals.clone())
    }

    pub(super) fn epochs(&self) -> &[ReplicaEpoch] {
        &self.vitals.epochs
    }

    pub(super) fn written_floor(&self) -> u64 {
        self.written_floor
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Keeps the busiest, in a stable order: an unchanged load must not look changed.
fn busiest(loads: &mut Vec<LoadReport>) {
    if loads.len() > MAX_LOADS {
        loads.sort_by_key(|it| std::cmp::Reverse((it.queued_tokens, it.inflight, it.new_tokens)));
        loads.truncate(MAX_LOADS);
    }
    loads.sort_by_key(|it| it.replica);
}

fn largest(epochs: &mut Vec<ReplicaEpoch>) {
    if epochs.len() > MAX_EPOCHS {
        epochs.sort_by_key(|it| std::cmp::Reverse(it.epoch));
        epochs.truncate(MAX_EPOCHS);
    }
    epochs.sort_by_key(|it| it.replica);
}
