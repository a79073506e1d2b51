use grapevine_tree::{Mark, ReplicaId};

use super::*;
use crate::LoadReport;
use crate::carrier::from_text;
use crate::codec::{Vitals, decode_pointer, decode_segment, decode_vitals, decode_word, is_pointer};

const TICK: Duration = Duration::from_millis(250);

const ID: RouterId = RouterId(1);
const QUIET: Pace = Pace { others: 2, pointers: false, strained: false, direct: false };
const POINTING: Pace = Pace { pointers: true, ..QUIET };

/// Tells entries apart by `n`.
fn entry(n: u64) -> DeltaEntry {
    let marks = (0..8).map(|index| Mark { index, hash: n << 8 }).collect();
    DeltaEntry { replica: ReplicaId(1), count: 1.0, epoch: 0, marks }
}

fn outgoing(hashes: impl IntoIterator<Item = u64>) -> Outgoing {
    Outgoing { entries: hashes.into_iter().map(entry).collect(), ..Outgoing::default() }
}

fn load(replica: u32, inflight: u32) -> LoadReport {
    LoadReport { replica: ReplicaId(replica), inflight, queued_tokens: 0, new_tokens: 0 }
}

/// An outbox with its log.
struct Desk {
    outbox: Outbox,
    log: Log,
}

impl Desk {
    fn publish(&mut self, outgoing: Outgoing, pace: Pace, now: Millis) -> Vec<Write> {
        self.outbox.publish(outgoing, pace, &mut self.log, now)
    }
}

fn begun() -> Desk {
    let (mut outbox, mut log) = (Outbox::new(ID, 9, TICK), Log::default());
    assert_eq!(outbox.begin(9, &mut log, 0).len(), 1, "a generation starts with its vitals");
    Desk { outbox, log }
}

fn number(entry: &DeltaEntry) -> u64 {
    entry.marks[0].hash >> 8
}

fn segment_of(writes: &[Write]) -> Segment {
    let (_, text) = writes.iter().find(|(key, _)| key.starts_with("d/")).unwrap();
    decode_segment(&from_text(text).unwrap()).unwrap()
}

fn vitals_of(writes: &[Write]) -> Vitals {
    let (_, text) = writes.iter().find(|(key, _)| key == VITALS_KEY).unwrap();
    decode_vitals(&from_text(text).unwrap()).unwrap()
}

#[test]
fn an_idle_router_writes_nothing() {
    let mut desk = begun();
    for tick in 0..1000 {
        assert_eq!(desk.publish(Outgoing::default(), QUIET, tick * 250), []);
    }
}

#[test]
fn vitals_are_written_when_they_change() {
    let mut desk = begun();
    let busy = || Outgoing { loads: vec![load(2, 1), load(1, 3)], ..Outgoing::default() };
    assert_eq!(vitals_of(&desk.publish(busy(), QUIET, 0)).loads, [load(1, 3), load(2, 1)]);
    let reordered = Outgoing { loads: vec![load(1, 3), load(2, 1)], ..Outgoing::default() };
    assert_eq!(desk.publish(reordered, QUIET, 250), [], "the same load in another order");
    let farewell = vitals_of(&desk.outbox.farewell(2, &mut desk.log, 500));
    assert!(farewell.draining && farewell.loads.is_empty() && farewell.seq == 3);
}

#[test]
fn load_is_told_directly_each_tick_and_written_once_a_second() {
    let mut desk = begun();
    let direct = Pace { direct: true, ..QUIET };
    let (mut written, mut told) = (Vec::new(), Vec::new());
    for tick in 1..=40 {
        // It moves, stays and ends.
        let loads = match tick {
            1..=10 => vec![load(1, tick as u32)],
            11..=20 => vec![load(1, 10)],
            _ => Vec::new(),
        };
        let writes = desk.publish(Outgoing { loads, ..Outgoing::default() }, direct, tick * 250);
        written.extend((!writes.is_empty()).then(|| (tick, vitals_of(&writes))));
        let word = desk.outbox.take_word(true).map(|(bytes, _)| decode_word(&bytes).unwrap());
        told.extend(word.map(|word| (tick, (word.origin, word.vitals.unwrap()))));
    }
    assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), (1..=21).collect::<Vec<_>>());
    assert!(told.iter().all(|(_, (origin, vitals))| *origin == ID && vitals.generation == 9));
    assert_eq!(written.iter().map(|it| it.0).collect::<Vec<_>>(), [4, 8, 12, 21], "and the end of it");
    let (last_told, last_written) = (&told[20].1.1, &written[3].1);
    assert_eq!((last_told, last_written.loads.as_slice()), (last_written, [].as_slice()));
    let epochs = vec![ReplicaEpoch { replica: ReplicaId(1), epoch: 1 }];
    let writes = desk.publish(Outgoing { epochs: epochs.clone(), ..Outgoing::default() }, direct, 10_250);
    assert_eq!(vitals_of(&writes).epochs, epochs, "what is no load is written at once");
}

/// Segments, or the pointers to them; not what is written again.
#[test]
fn what_a_tick_put_into_the_ring_is_told_directly_once() {
    let mut desk = begun();
    let told = |desk: &mut Desk| {
        let word = decode_word(&desk.outbox.take_word(false)?.0).unwrap();
        let value = word.news.unwrap();
        assert_eq!((word.origin, word.vitals), (ID, None));
        let segment = decode_segment(&value).map(|it| (it.seq, "segment"));
        Some(segment.unwrap_or_else(|_| (decode_pointer(&value).unwrap().seq, "pointer")))
    };
    desk.publish(outgoing(0..100), POINTING, 250);
    assert_eq!((told(&mut desk), told(&mut desk)), (Some((1, "segment")), None));
    desk.publish(outgoing(0..500), POINTING, 500);
    assert_eq!(told(&mut desk), Some((2, "pointer")));
    desk.publish(outgoing(0..3), Pace { strained: true, ..POINTING }, 750);
    assert_eq!(told(&mut desk), Some((3, "segment")), "not the pointer that took the place of the first");
    let writes = desk.publish(outgoing(0..100), Pace { strained: true, ..POINTING }, 800);
    assert!(is_pointer(&from_text(&writes[0].1).unwrap()), "{writes:?}");
    assert_eq!(told(&mut desk), Some((4, "segment")), "strained gossip does not hinder it");
    desk.publish(Outgoing::default(), POINTING, 1_000);
    assert_eq!(told(&mut desk), None);
    desk.publish(outgoing(0..3), POINTING, 1_250);
    desk.outbox.begin(10, &mut desk.log, 1_250);
    assert_eq!(told(&mut desk), None, "of the generation before");
}

#[test]
fn a_ring_that_went_stale_is_disowned_once() {
    let mut desk = begun();
    desk.publish(outgoing([1]), QUIET, 0);
    let mut writes = Vec::new();
    for tick in 1..1000 {
        writes.extend(desk.publish(Outgoing::default(), QUIET, tick * 250));
    }
    assert_eq!(writes.len(), 1);
    assert_eq!(vitals_of(&writes).floor, 2);
}

#[test]
fn a_flood_is_spread_over_ticks_and_nothing_is_lost_below_the_cap() {
    let mut desk = begun();
    let budget = carrier::tick_budget(2);
    let mut told = Vec::new();
    let mut writes = desk.publish(outgoing(0..1000), QUIET, 0);
    for tick in 1..100 {
        if writes.is_empty() {
            break;
        }
        let segment = segment_of(&writes);
        assert!(codec::encode_segment(&segment).len() <= budget);
        assert_eq!(segment.seq, tick);
        told.extend(segment.entries.iter().map(number));
        let outbox = &desk.outbox;
        assert_eq!(outbox.room(QUIET), outbox.most(QUIET).saturating_sub(desk.outbox.backlog_bytes));
        writes = desk.publish(Outgoing::default(), QUIET, tick * 250);
    }
    assert_eq!(told, (0..1000).collect::<Vec<_>>());
    assert_eq!((desk.outbox.tally().entries, desk.outbox.tally().dropped), (1000, 0));
    assert!(desk.outbox.tally().deferred > 0);
    assert_eq!(desk.outbox.backlog_bytes, 0);
}

#[test]
fn beyond_the_cap_the_least_valuable_are_dropped_and_counted() {
    let mut desk = begun();
    desk.publish(outgoing(0..10_000), QUIET, 0);
    assert_eq!(desk.outbox.tally().dropped, 10_000 - MAX_BACKLOG as u64);
    assert_eq!(desk.outbox.room(QUIET), 0, "the host is told to wait");
}

#[test]
fn even_a_budget_eaten_by_vitals_lets_an_entry_through() {
    let mut desk = begun();
    let loads = (0..2000).map(|replica| load(replica, replica)).collect();
    let writes = desk.publish(Outgoing { loads, ..outgoing(0..10) }, Pace { others: 500, ..QUIET }, 0);
    assert_eq!(vitals_of(&writes).loads.len(), MAX_LOADS);
    assert!(vitals_of(&writes).loads.iter().all(|it| it.inflight >= 2000 - MAX_LOADS as u32));
    let loads = vitals_of(&writes).loads;
    assert_eq!(
        segment_of(&desk.publish(Outgoing { loads, ..outgoing([]) }, Pace { others: 500, ..QUIET }, 250))
            .entries
            .len(),
        1
    );
}

#[test]
fn invalid_entries_are_counted_and_left_out() {
    let mut desk = begun();
    let bad = DeltaEntry { count: f32::NAN, ..entry(1) };
    let writes = desk.publish(Outgoing { entries: vec![bad, entry(2)], ..Outgoing::default() }, QUIET, 0);
    assert_eq!(segment_of(&writes).entries.len(), 1);
    assert_eq!(desk.outbox.tally().invalid, 1);
}

#[test]
fn a_new_generation_starts_over_and_repeats_its_last_words() {
    let mut desk = begun();
    for tick in 0..20 {
        desk.publish(Outgoing { loads: vec![load(1, 1)], ..outgoing([tick]) }, QUIET, tick * 250);
    }
    desk.outbox.queue(vec![entry(20)]);
    let writes = desk.outbox.begin(12, &mut desk.log, 5_000);
    let vitals = vitals_of(&writes);
    assert_eq!((vitals.generation, vitals.boot, vitals.seq, vitals.floor), (12, 9, 1, 1));
    assert_eq!(vitals.loads, [load(1, 1)]);
    let repeated: Vec<_> = (1..writes.len()).map(|at| segment_of(&writes[at..])).collect();
    assert_eq!(repeated.iter().map(|it| it.seq).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert_eq!(
        repeated.iter().map(|it| number(&it.entries[0])).collect::<Vec<_>>(),
        (12..20).collect::<Vec<_>>()
    );
    let next = segment_of(&desk.publish(Outgoing::default(), QUIET, 5_000));
    assert_eq!((next.generation, next.seq, number(&next.entries[0])), (12, 9, 20));
    assert_eq!(desk.outbox.tally().entries, 21, "what is repeated is not counted again");
}

fn pointers_of(writes: &[Write]) -> Vec<Pointer> {
    let bytes =
        writes.iter().filter(|(key, _)| key.starts_with("d/")).map(|(_, text)| from_text(text).unwrap());
    bytes.filter_map(|bytes| decode_pointer(&bytes).ok()).collect()
}

#[test]
fn more_than_fits_is_pointed_to_and_lies_in_the_log() {
    let mut desk = begun();
    assert!(desk.outbox.room(POINTING) > 5 * desk.outbox.room(QUIET));
    let writes = desk.publish(outgoing(0..500), POINTING, 250);
    let [pointer] = pointers_of(&writes)[..] else { panic!("{writes:?}") };
    assert_eq!((pointer.generation, pointer.seq, pointer.sent_ms), (9, 1, 250));
    let bytes = desk.log.find(ID, 9, 1).unwrap();
    assert_eq!(bytes.len(), pointer.len as usize);
    assert_eq!(decode_segment(bytes).unwrap().entries.len(), 500);
    assert_eq!((desk.outbox.tally().pointed, desk.outbox.tally().deferred), (1, 0));
    assert_eq!(desk.outbox.pointed_before(250), None);
    assert_eq!(desk.outbox.pointed_before(251), Some((1, false)));

    assert_eq!(segment_of(&desk.publish(outgoing(0..9), POINTING, 500)).entries.len(), 9, "fits");
    assert!(desk.log.find(ID, 9, 2).is_some());
    desk.publish(outgoing(0..2_000), POINTING, 750);
    assert!(desk.outbox.tally().deferred > 0, "only past 64 KiB");
}

#[test]
fn strain_takes_what_is_big_out_of_the_ring() {
    let mut desk = begun();
    for tick in 1..=10 {
        desk.publish(outgoing(0..100), POINTING, tick * 250);
    }
    let strained = Pace { strained: true, ..POINTING };
    let writes = desk.publish(outgoing(0..50), strained, 2_750);
    let mut seqs: Vec<u64> = pointers_of(&writes).iter().map(|it| it.seq).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, (1..=11).collect::<Vec<_>>());
    assert!(writes.iter().all(|(_, text)| text.len() < 60));
    let next = desk.publish(outgoing(0..3), strained, 3_000);
    assert_eq!((next.len(), segment_of(&next).entries.len()), (1, 3), "a few entries stay in the ring");
    let alone = desk.publish(outgoing(0..50), Pace { strained: true, ..QUIET }, 3_250);
    assert_eq!(segment_of(&alone).entries.len(), 50, "nobody could ask for it");
}
