//! What this router publishes: it turns what the host has to say into chitchat writes.
//!
//! Pure: time is an argument. An idle router writes nothing: a segment is written when there are
//! entries, the vitals when they changed (`voice`). One exception: when the last segment has grown older
//! than the ring's span, the vitals are written once more to tell newcomers not to take it.
//!
//! When more is due than fits a tick, or gossip is strained, the ring holds a [`Pointer`] instead of a
//! segment, and peers ask for it. That takes the bytes out of gossip: where datagrams get lost, big
//! ones get lost more, which makes the next ones bigger.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::{DeltaEntry, Millis, RouterId};

use crate::carrier::{self, SLOTS, VITALS_KEY};
use crate::codec::{self, Pointer, SEGMENT_OVERHEAD, Segment, Word};
use crate::log::Log;
use crate::{LoadReport, Outgoing, ReplicaEpoch};

mod voice;

pub use voice::{MAX_EPOCHS, MAX_LOADS};
use voice::{Moment, Own, Voice};

/// Entries that wait for a later tick, at most: about ten full ticks of a small fleet. They are
/// absolute counts, so what is dropped is told again when the prefix is next used.
pub const MAX_BACKLOG: usize = 4096;

/// Segments that a new generation says again: what the one before it said in its last 2 s may not
/// have reached anyone. Said twice does no harm.
const REPEATED: usize = 8;

/// Longest segment in a strained ring, in bytes: a few entries. 64 of them fit two datagrams on the wire.
const STRAINED_BYTES: usize = 256;

/// How much may be said, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Routers besides this one.
    pub others: usize,
    /// Peers can ask this router for what it points to.
    pub pointers: bool,
    /// Gossip is behind: nothing big may go into it.
    pub strained: bool,
    /// Peers are told of load directly.
    pub direct: bool,
}

/// A key and the value to set it to.
pub type Write = (String, String);

/// Counts of what went out and what did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Entries published.
    pub entries: u64,
    /// Bytes of values published, before chitchat compresses and repeats them, and of what is told directly, to
    /// one peer.
    pub value_bytes: u64,
    /// Segments that peers were pointed to.
    pub pointed: u64,
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
    id: RouterId,
    generation: u64,
    span_ms: Millis,
    seq: u64,
    voice: Voice,
    backlog: VecDeque<DeltaEntry>,
    backlog_bytes: usize,
    /// The ring, oldest first.
    ring: VecDeque<Slot>,
    /// The newest of them.
    recent: VecDeque<Segment>,
    /// What the last tick brought, until it is told directly.
    news: Option<Arc<[u8]>>,
    tally: Tally,
}

/// Bytes of entries that may go out in a tick.
#[derive(Clone, Copy)]
struct Room {
    /// As they are in the ring; all above are pointed to.
    ring: usize,
    /// The same for what peers are told directly: strained gossip does not hinder that.
    news: usize,
}

/// What is known of a segment in the ring.
#[derive(Clone, Copy, Debug)]
struct Slot {
    seq: u64,
    at: Millis,
    /// Bytes of the segment, while it is itself in the ring.
    inline: Option<usize>,
    /// Peers are told the segment itself, where they are told directly.
    told: bool,
}

impl Outbox {
    /// The outbox of the router `id`, whose process started as `generation` and publishes every
    /// `interval`.
    pub fn new(id: RouterId, generation: u64, interval: Duration) -> Self {
        let span_ms = SLOTS.saturating_mul(interval.as_millis() as Millis);
        Self {
            id,
            generation,
            span_ms,
            seq: 0,
            voice: Voice::new(generation),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            ring: VecDeque::new(),
            recent: VecDeque::new(),
            news: None,
            tally: Tally::default(),
        }
    }

    /// Gossip starts, or starts again, under `generation` with an empty state. The first writes.
    pub fn begin(&mut self, generation: u64, log: &mut Log, now: Millis) -> Vec<Write> {
        self.generation = generation;
        self.seq = 0;
        self.ring.clear();
        let mut writes = Vec::new();
        let first = self.voice.begin(generation, now);
        self.write(VITALS_KEY.to_owned(), &first, &mut writes);
        for segment in std::mem::take(&mut self.recent) {
            let most = carrier::tick_budget(1);
            self.write_segment(segment, Room { ring: most, news: most }, log, now, &mut writes);
        }
        self.news = None;
        writes
    }

    /// What was counted so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Entries that wait for a later tick.
    pub fn backlog(&self) -> usize {
        self.backlog.len()
    }

    /// Number of the newest segment.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The cache epochs that were last told.
    pub fn epochs(&self) -> &[ReplicaEpoch] {
        self.voice.epochs()
    }

    /// Between two ticks: the load now.
    pub fn note_loads(&mut self, loads: Vec<LoadReport>) {
        self.voice.note_loads(loads);
    }

    /// What is to be told straight to every peer, once: what the last tick brought and, where there may be
    /// `load` as well, that. The message, and how many bytes of it are load.
    pub fn take_word(&mut self, load: bool) -> Option<(Vec<u8>, usize)> {
        let news = self.news.take().map(|value| value.to_vec());
        let vitals = if load { self.voice.take_untold() } else { None };
        if news.is_none() && vitals.is_none() {
            return None;
        }
        let (news_len, has_load) = (news.as_ref().map_or(0, Vec::len), vitals.is_some());
        let message = codec::encode_word(&Word { origin: self.id, head: self.seq, vitals, news });
        self.tally.value_bytes += message.len() as u64;
        let load_len = if has_load { message.len() - news_len } else { 0 };
        Some((message, load_len))
    }

    /// Number of the newest segment older than `time` that the ring points to, and whether it was told directly.
    pub fn pointed_before(&self, time: Millis) -> Option<(u64, bool)> {
        let old = self.ring.iter().rev().filter(|slot| slot.at < time);
        old.filter(|slot| slot.inline.is_none()).map(|slot| (slot.seq, slot.told)).next()
    }

    /// Bytes of new entries that fit this tick.
    pub fn room(&self, pace: Pace) -> usize {
        self.most(pace).saturating_sub(self.backlog_bytes)
    }

    /// Takes in what the host has to say; what to write for it. Segments also go into the log.
    pub fn publish(&mut self, outgoing: Outgoing, pace: Pace, log: &mut Log, now: Millis) -> Vec<Write> {
        let Outgoing { entries, loads, epochs, draining } = outgoing;
        self.queue(entries);
        let mut writes = Vec::new();
        let entries = self.next_entries(pace);
        if !entries.is_empty() {
            self.tally.entries += entries.len() as u64;
            let segment = Segment { generation: 0, seq: 0, sent_ms: now, entries };
            self.write_segment(segment, self.room_for(pace), log, now, &mut writes);
        }
        if pace.strained && pace.pointers {
            self.shrink(log, &mut writes);
        }

        let floor = self.floor(now);
        let must_write = writes.is_empty() && floor > self.seq && self.voice.written_floor() < floor;
        let moment = Moment { floor, must_write, direct: pace.direct, now };
        if let Some(bytes) = self.voice.say(Own { loads, epochs, draining }, moment) {
            self.write(VITALS_KEY.to_owned(), &bytes, &mut writes);
        }
        writes
    }

    /// The last word: this router goes away and has nothing in flight. Nobody could ask for more.
    pub fn farewell(&mut self, others: usize, log: &mut Log, now: Millis) -> Vec<Write> {
        let epochs = self.voice.epochs().to_vec();
        let last = Outgoing { entries: Vec::new(), loads: Vec::new(), epochs, draining: true };
        self.publish(last, Pace { others, pointers: false, strained: false, direct: true }, log, now)
    }

    fn room_for(&self, pace: Pace) -> Room {
        let news = carrier::tick_budget(pace.others).saturating_sub(SEGMENT_OVERHEAD + self.voice.len());
        let ring = if pace.strained && pace.pointers { news.min(STRAINED_BYTES) } else { news };
        Room { ring, news }
    }

    /// Bytes of entries that may be published this tick.
    fn most(&self, pace: Pace) -> usize {
        match pace.pointers {
            true => carrier::pointed_budget(pace.others).saturating_sub(SEGMENT_OVERHEAD),
            false => self.room_for(pace).ring,
        }
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
    fn next_entries(&mut self, pace: Pace) -> Vec<DeltaEntry> {
        let mut left = self.most(pace);
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

    /// Publishes `segment` as the next one: itself where there is room, else a pointer to it.
    fn write_segment(
        &mut self,
        segment: Segment,
        room: Room,
        log: &mut Log,
        now: Millis,
        writes: &mut Vec<Write>,
    ) {
        self.seq += 1;
        let segment = Segment { generation: self.generation, seq: self.seq, ..segment };
        let bytes: Arc<[u8]> = codec::encode_segment(&segment).into();
        log.keep(self.id, self.generation, self.seq, bytes.clone(), now);
        // The one entry that always goes is far below the longest value.
        let fits = |room| bytes.len() <= room + SEGMENT_OVERHEAD || segment.entries.len() == 1;
        let (is_inline, is_told) = (fits(room.ring), fits(room.news));
        let slot = Slot {
            seq: self.seq,
            at: segment.sent_ms,
            inline: is_inline.then_some(bytes.len()),
            told: is_told,
        };
        push_bounded(&mut self.ring, slot, SLOTS as usize);
        let value = if is_inline { bytes.clone() } else { self.pointer(slot, bytes.len()) };
        self.write(carrier::slot_key(self.seq), &value, writes);
        self.news = Some(if is_told { bytes } else { value });
        push_bounded(&mut self.recent, segment, REPEATED);
    }

    fn pointer(&mut self, slot: Slot, len: usize) -> Arc<[u8]> {
        self.tally.pointed += 1;
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let pointer = Pointer { generation: self.generation, seq: slot.seq, sent_ms: slot.at, len };
        codec::encode_pointer(&pointer).into()
    }

    /// Takes what is big out of the ring, as long as it can still be asked for.
    fn shrink(&mut self, log: &Log, writes: &mut Vec<Write>) {
        let (id, generation) = (self.id, self.generation);
        let is_big = |slot: &&mut Slot| {
            slot.inline.is_some_and(|len| len > STRAINED_BYTES + SEGMENT_OVERHEAD)
                && log.find(id, generation, slot.seq).is_some()
        };
        let big: Vec<(Slot, usize)> = self
            .ring
            .iter_mut()
            .filter(is_big)
            .filter_map(|slot| slot.inline.take().map(|len| (*slot, len)))
            .collect();
        for (slot, len) in big {
            let pointer = self.pointer(slot, len);
            self.write(carrier::slot_key(slot.seq), &pointer, writes);
        }
    }

    fn write(&mut self, key: String, bytes: &[u8], writes: &mut Vec<Write>) {
        self.tally.value_bytes += bytes.len() as u64;
        writes.push((key, carrier::to_text(bytes)));
    }

    /// Number of the first segment younger than the ring's span; the next one if there is none.
    fn floor(&self, now: Millis) -> u64 {
        let young = |slot: &&Slot| now.saturating_sub(slot.at) < self.span_ms;
        self.ring.iter().find(young).map_or(self.seq + 1, |slot| slot.seq)
    }
}

fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests;
