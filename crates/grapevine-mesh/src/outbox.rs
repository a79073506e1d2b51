//! What this router publishes: it turns what the host has to say into chitchat writes.
//!
//! Pure: time is an argument. An idle router writes nothing: a segment is written when there are
//! entries, the vitals when they changed. One exception: when the last segment has grown older
//! than the ring's span, the vitals are written once more to tell newcomers not to take it.

use std::collections::VecDeque;
use std::time::Duration;

use grapevine_tree::{DeltaEntry, Millis};

use crate::carrier::{self, SLOTS, VITALS_KEY};
use crate::codec::{self, SEGMENT_OVERHEAD, Segment, Vitals};
use crate::{LoadReport, Outgoing, ReplicaEpoch};

/// Entries that wait for a later tick, at most: about ten full ticks of a small fleet. They are
/// absolute counts, so what is dropped is told again when the prefix is next used.
pub const MAX_BACKLOG: usize = 4096;

/// Replicas whose load is told, at most, the busiest first: 12 bytes each, 6 KiB.
pub const MAX_LOADS: usize = 512;

/// Epochs that are told, at most, the largest first: 9 bytes each.
pub const MAX_EPOCHS: usize = 512;

/// Segments that a new generation says again: what the one before it said in its last 2 s may not
/// have reached anyone. Said twice does no harm.
const REPEATED: usize = 8;

/// A key and the value to set it to.
pub type Write = (String, String);

/// Counts of what went out and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries published.
    pub entries: u64,
    /// Bytes of values published, before chitchat compresses and repeats them.
    pub value_bytes: u64,
    /// Times an entry had to wait for a later tick.
    pub deferred: u64,
    /// Entries dropped because too many waited.
    pub dropped: u64,
    /// Entries dropped because they say what cannot be.
    pub invalid: u64,
}

/// The publishing side of one router.
#[derive(Debug)]
pub struct Outbox {
    boot: u64,
    generation: u64,
    span_ms: Millis,
    seq: u64,
    vitals: Vitals,
    vitals_len: usize,
    backlog: VecDeque<DeltaEntry>,
    backlog_bytes: usize,
    /// Numbers and times of the segments in the ring, oldest first.
    ring: VecDeque<(u64, Millis)>,
    /// The newest of them.
    recent: VecDeque<Segment>,
    tally: Tally,
}

impl Outbox {
    /// The outbox of a process that started as `generation` and publishes every `interval`.
    pub fn new(generation: u64, interval: Duration) -> Self {
        let span_ms = SLOTS.saturating_mul(interval.as_millis() as Millis);
        Self {
            boot: generation,
            generation,
            span_ms,
            seq: 0,
            vitals: Vitals::default(),
            vitals_len: 0,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            ring: VecDeque::new(),
            recent: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Gossip starts, or starts again, under `generation` with an empty state. The first writes.
    pub fn begin(&mut self, generation: u64) -> Vec<Write> {
        self.generation = generation;
        self.seq = 0;
        self.ring.clear();
        self.vitals.seq = 0;
        let mut writes = Vec::new();
        self.write_vitals(1, &mut writes);
        for segment in std::mem::take(&mut self.recent) {
            self.write_segment(segment.entries, segment.sent_ms, &mut writes);
        }
        writes
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Bytes of new entries that fit this tick, in a fleet with `others`.
    pub fn room(&self, others: usize) -> usize {
        self.budget(others).saturating_sub(self.backlog_bytes)
    }

    /// Takes in what the host has to say; what to write for it.
    pub fn publish(&mut self, outgoing: Outgoing, others: usize, now: Millis) -> Vec<Write> {
        let Outgoing { entries, mut loads, mut epochs, draining } = outgoing;
        self.queue(entries);
        busiest(&mut loads);
        largest(&mut epochs);
        let mut writes = Vec::new();
        let entries = self.next_entries(others);
        if !entries.is_empty() {
            self.tally.entries += entries.len() as u64;
            self.write_segment(entries, now, &mut writes);
        }

        let changed =
            self.vitals.loads != loads || self.vitals.epochs != epochs || self.vitals.draining != draining;
        let floor = self.floor(now);
        let gone_stale = writes.is_empty() && floor > self.seq && self.vitals.floor < floor;
        if changed || gone_stale {
            self.vitals = Vitals { loads, epochs, draining, ..std::mem::take(&mut self.vitals) };
            self.write_vitals(floor, &mut writes);
        }
        writes
    }

    /// The last word: this router goes away and has nothing in flight.
    pub fn farewell(&mut self, others: usize, now: Millis) -> Vec<Write> {
        let epochs = self.vitals.epochs.clone();
        self.publish(Outgoing { entries: Vec::new(), loads: Vec::new(), epochs, draining: true }, others, now)
    }

    fn budget(&self, others: usize) -> usize {
        carrier::tick_budget(others).saturating_sub(SEGMENT_OVERHEAD + self.vitals_len)
    }

    fn queue(&mut self, entries: Vec<DeltaEntry>) {
        for entry in entries {
            if !codec::is_valid(&entry) {
                self.tally.invalid += 1;
            } else if self.backlog.len() >= MAX_BACKLOG {
                self.tally.dropped += 1;
            } else {
                self.backlog_bytes += codec::entry_len(&entry);
                self.backlog.push_back(entry);
            }
        }
    }

    /// Oldest first: a count that waited must not overwrite the newer one behind it.
    fn next_entries(&mut self, others: usize) -> Vec<DeltaEntry> {
        let mut left = self.budget(others);
        let mut entries = Vec::new();
        while let Some(entry) = self.backlog.front() {
            let len = codec::entry_len(entry);
            // One entry always goes: a budget eaten up by vitals must not stop the stream.
            if len > left && !entries.is_empty() {
                break;
            }
            left = left.saturating_sub(len);
            self.backlog_bytes -= len;
            entries.extend(self.backlog.pop_front());
        }
        self.tally.deferred += self.backlog.len() as u64;
        entries
    }

    fn write_segment(&mut self, entries: Vec<DeltaEntry>, at: Millis, writes: &mut Vec<Write>) {
        self.seq += 1;
        push_bounded(&mut self.ring, (self.seq, at), SLOTS as usize);
        let segment = Segment { generation: self.generation, seq: self.seq, sent_ms: at, entries };
        self.write(carrier::slot_key(self.seq), &codec::encode_segment(&segment), writes);
        push_bounded(&mut self.recent, segment, REPEATED);
    }

    fn write_vitals(&mut self, floor: u64, writes: &mut Vec<Write>) {
        self.vitals.generation = self.generation;
        self.vitals.boot = self.boot;
        self.vitals.seq += 1;
        self.vitals.floor = floor;
        let bytes = codec::encode_vitals(&self.vitals);
        self.vitals_len = bytes.len();
        self.write(VITALS_KEY.to_owned(), &bytes, writes);
    }

    fn write(&mut self, key: String, bytes: &[u8], writes: &mut Vec<Write>) {
        self.tally.value_bytes += bytes.len() as u64;
        writes.push((key, carrier::to_text(bytes)));
    }

    /// Number of the first segment younger than the ring's span; the next one if there is none.
    fn floor(&self, now: Millis) -> u64 {
        let young = |&&(_, at): &&(u64, Millis)| now.saturating_sub(at) < self.span_ms;
        self.ring.iter().find(young).map_or(self.seq + 1, |&(seq, _)| seq)
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
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

#[cfg(test)]
mod tests;
