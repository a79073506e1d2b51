use grapevine_tree::{Mark, ReplicaId};

use super::*;
use crate::carrier::from_text;
use crate::codec::{decode_segment, decode_vitals};

const TICK: Duration = Duration::from_millis(250);

fn entry(hash: u64) -> DeltaEntry {
    let marks = (0..8).map(|index| Mark { index, hash }).collect();
    DeltaEntry { replica: ReplicaId(1), count: 1.0, age_tokens: 0, marks }
}

fn outgoing(hashes: impl IntoIterator<Item = u64>) -> Outgoing {
    Outgoing { entries: hashes.into_iter().map(entry).collect(), ..Outgoing::default() }
}

fn load(replica: u32, inflight: u32) -> LoadReport {
    LoadReport { replica: ReplicaId(replica), inflight, queued_tokens: 0, new_tokens: 0 }
}

fn begun() -> Outbox {
    let mut outbox = Outbox::new(9, TICK);
    assert_eq!(outbox.begin(9).len(), 1, "a generation starts with its vitals");
    outbox
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
    let mut outbox = begun();
    for tick in 0..1000 {
        assert_eq!(outbox.publish(Outgoing::default(), 2, tick * 250), []);
    }
}

#[test]
fn vitals_are_written_when_they_change() {
    let mut outbox = begun();
    let busy = || Outgoing { loads: vec![load(2, 1), load(1, 3)], ..Outgoing::default() };
    assert_eq!(vitals_of(&outbox.publish(busy(), 2, 0)).loads, [load(1, 3), load(2, 1)]);
    let reordered = Outgoing { loads: vec![load(1, 3), load(2, 1)], ..Outgoing::default() };
    assert_eq!(outbox.publish(reordered, 2, 250), [], "the same load in another order");
    let farewell = vitals_of(&outbox.farewell(2, 500));
    assert!(farewell.draining && farewell.loads.is_empty() && farewell.seq == 3);
}

#[test]
fn a_ring_that_went_stale_is_disowned_once() {
    let mut outbox = begun();
    outbox.publish(outgoing([1]), 2, 0);
    let mut writes = Vec::new();
    for tick in 1..1000 {
        writes.extend(outbox.publish(Outgoing::default(), 2, tick * 250));
    }
    assert_eq!(writes.len(), 1);
    assert_eq!(vitals_of(&writes).floor, 2);
}

#[test]
fn a_flood_is_spread_over_ticks_and_nothing_is_lost_below_the_cap() {
    let mut outbox = begun();
    let budget = carrier::tick_budget(2);
    let mut told = Vec::new();
    let mut writes = outbox.publish(outgoing(0..1000), 2, 0);
    for tick in 1..100 {
        if writes.is_empty() {
            break;
        }
        let segment = segment_of(&writes);
        assert!(codec::encode_segment(&segment).len() <= budget);
        assert_eq!(segment.seq, tick);
        told.extend(segment.entries.iter().map(|it| it.marks[0].hash));
        assert_eq!(outbox.room(2), outbox.budget(2).saturating_sub(outbox.backlog_bytes));
        writes = outbox.publish(Outgoing::default(), 2, tick * 250);
    }
    assert_eq!(told, (0..1000).collect::<Vec<_>>());
    assert_eq!((outbox.tally().entries, outbox.tally().dropped), (1000, 0));
    assert!(outbox.tally().deferred > 0);
    assert_eq!(outbox.backlog_bytes, 0);
}

#[test]
fn beyond_the_cap_the_least_valuable_are_dropped_and_counted() {
    let mut outbox = begun();
    outbox.publish(outgoing(0..10_000), 2, 0);
    assert_eq!(outbox.tally().dropped, 10_000 - MAX_BACKLOG as u64);
    assert_eq!(outbox.room(2), 0, "the host is told to wait");
}

#[test]
fn even_a_budget_eaten_by_vitals_lets_an_entry_through() {
    let mut outbox = begun();
    let loads = (0..2000).map(|replica| load(replica, replica)).collect();
    let writes = outbox.publish(Outgoing { loads, ..outgoing(0..10) }, 500, 0);
    assert_eq!(vitals_of(&writes).loads.len(), MAX_LOADS);
    assert!(vitals_of(&writes).loads.iter().all(|it| it.inflight >= 2000 - MAX_LOADS as u32));
    let loads = vitals_of(&writes).loads;
    assert_eq!(segment_of(&outbox.publish(Outgoing { loads, ..outgoing([]) }, 500, 250)).entries.len(), 1);
}

#[test]
fn invalid_entries_are_counted_and_left_out() {
    let mut outbox = begun();
    let bad = DeltaEntry { count: f32::NAN, ..entry(1) };
    let writes = outbox.publish(Outgoing { entries: vec![bad, entry(2)], ..Outgoing::default() }, 2, 0);
    assert_eq!(segment_of(&writes).entries.len(), 1);
    assert_eq!(outbox.tally().invalid, 1);
}

#[test]
fn a_new_generation_starts_over_and_repeats_its_last_words() {
    let mut outbox = begun();
    for tick in 0..20 {
        outbox.publish(Outgoing { loads: vec![load(1, 1)], ..outgoing([tick]) }, 2, tick * 250);
    }
    outbox.queue(vec![entry(20)]);
    let writes = outbox.begin(12);
    let vitals = vitals_of(&writes);
    assert_eq!((vitals.generation, vitals.boot, vitals.seq, vitals.floor), (12, 9, 1, 1));
    assert_eq!(vitals.loads, [load(1, 1)]);
    let repeated: Vec<_> = (1..writes.len()).map(|at| segment_of(&writes[at..])).collect();
    assert_eq!(repeated.iter().map(|it| it.seq).collect::<Vec<_>>(), (1..=8).collect::<Vec<_>>());
    assert_eq!(
        repeated.iter().map(|it| it.entries[0].marks[0].hash).collect::<Vec<_>>(),
        (12..20).collect::<Vec<_>>()
    );
    let next = segment_of(&outbox.publish(Outgoing::default(), 2, 5_000));
    assert_eq!((next.generation, next.seq, next.entries[0].marks[0].hash), (12, 9, 20));
    assert_eq!(outbox.tally().entries, 21, "what is repeated is not counted again");
}
