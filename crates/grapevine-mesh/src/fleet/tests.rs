use grapevine_tree::{DeltaEntry, Mark, ReplicaId};
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;

const SPAN: u64 = 64;

fn segment(generation: u64, seq: u64) -> Segment {
    let marks = smallvec![Mark { index: 0, hash: seq }];
    let entry = DeltaEntry { replica: ReplicaId(1), count: 1.0, age_tokens: 0, marks };
    Segment { generation, seq, sent_ms: seq * 250, entries: vec![entry] }
}

fn vitals(generation: u64, seq: u64) -> Vitals {
    Vitals { generation, seq, boot: generation, ..Vitals::default() }
}

fn news(generation: u64, vitals: Option<Vitals>, seqs: impl IntoIterator<Item = u64>) -> News {
    let segments = seqs.into_iter().map(|seq| segment(generation, seq)).collect();
    News { name: "a".into(), generation, vitals, segments }
}

fn hashes(incoming: &[Incoming]) -> Vec<u64> {
    incoming.iter().flat_map(|it| &it.entries).map(|entry| entry.marks[0].hash).collect()
}

#[test]
fn segments_come_once_and_in_order() {
    let mut fleet = Fleet::new(SPAN);
    let first = fleet.hear(news(5, Some(vitals(5, 1)), [3, 1, 2, 2]), 0);
    assert_eq!(hashes(&first), [1, 2, 3]);
    assert_eq!(first.iter().filter(|it| it.loads.is_some()).count(), 1, "vitals come once");
    assert_eq!(first[0].origin, RouterId::of_name("a"));
    assert!(hashes(&fleet.hear(news(5, None, [1, 2, 3]), 0)).is_empty());
    assert_eq!(hashes(&fleet.hear(news(5, None, [5]), 0)), [5], "a hole does not hold up the rest");
    assert_eq!(fleet.router("a").unwrap().open(), 1);
    assert_eq!(hashes(&fleet.hear(news(5, None, [4]), 0)), [4]);
    assert_eq!((fleet.router("a").unwrap().open(), fleet.router("a").unwrap().missed()), (0, 0));
}

#[test]
fn a_newer_generation_silences_the_older_and_is_told_once() {
    let mut fleet = Fleet::new(SPAN);
    let met = fleet.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    assert!(!met[0].restarted, "who is new has not restarted");
    assert_eq!(fleet.standing("a", 6), Standing::Current);

    let reborn = fleet.hear(news(6, Some(vitals(6, 1)), [1, 2]), 0);
    assert_eq!(reborn.iter().map(|it| it.restarted).collect::<Vec<_>>(), [true, false]);
    assert_eq!(hashes(&reborn), [1, 2]);
    assert_eq!(fleet.standing("a", 5), Standing::Old);
    assert!(fleet.hear(news(5, Some(vitals(5, 9)), [2, 3]), 0).is_empty());
    assert!(!fleet.hear(news(6, Some(vitals(6, 2)), []), 0)[0].restarted);
    assert_eq!(fleet.routers().count(), 1);
}

#[test]
fn gossip_that_starts_again_within_one_process_is_no_restart() {
    let mut fleet = Fleet::new(SPAN);
    fleet.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    let again = Vitals { boot: 5, ..vitals(6, 1) };
    assert!(!fleet.hear(news(6, Some(again), [1]), 0)[0].restarted);
    let reboot = Vitals { boot: 7, ..vitals(7, 1) };
    assert!(fleet.hear(news(7, Some(reboot), []), 0)[0].restarted);
}

#[test]
fn a_generation_is_heard_from_its_first_vitals_on() {
    let mut fleet = Fleet::new(SPAN);
    assert!(fleet.hear(news(5, None, [1, 2]), 0).is_empty());
    assert_eq!(fleet.routers().count(), 0);
    assert_eq!(hashes(&fleet.hear(news(5, Some(vitals(5, 1)), [1, 2]), 0)), [1, 2]);
}

#[test]
fn a_newcomer_leaves_out_what_is_stale() {
    let mut fleet = Fleet::new(SPAN);
    let floor = Vitals { floor: 98, ..vitals(5, 1) };
    assert_eq!(hashes(&fleet.hear(news(5, Some(floor), 60..=100), 0)), [98, 99, 100]);
    assert_eq!(fleet.router("a").unwrap().missed(), 0);
    let mut other = Fleet::new(SPAN);
    assert_eq!(hashes(&other.hear(news(5, Some(vitals(5, 1)), 937..=1000), 0)).len(), 64);
    assert_eq!(other.router("a").unwrap().missed(), 0, "what was before us was not missed");
}

#[test]
fn overwritten_segments_are_counted_as_missed() {
    let mut fleet = Fleet::new(SPAN);
    fleet.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    assert_eq!(hashes(&fleet.hear(news(5, None, 137..=200), 0)).len(), 64);
    assert_eq!(fleet.router("a").unwrap().missed(), 135);
    fleet.hear(news(6, Some(vitals(6, 1)), [1]), 0);
    assert_eq!(fleet.router("a").unwrap().missed(), 135, "the count outlives the generation");
}

#[test]
fn the_latest_vitals_win_and_epochs_never_go_back() {
    let mut fleet = Fleet::new(SPAN);
    let said = |seq, inflight, epoch| Vitals {
        loads: vec![LoadReport { replica: ReplicaId(1), inflight, queued_tokens: 0, new_tokens: 0 }],
        epochs: vec![ReplicaEpoch { replica: ReplicaId(1), epoch }],
        ..vitals(5, seq)
    };
    let mut hear = |seq, inflight, epoch| fleet.hear(news(5, Some(said(seq, inflight, epoch)), []), 0);
    let first = hear(2, 7, 3);
    assert_eq!(first[0].loads.as_ref().unwrap()[0].inflight, 7);
    assert_eq!(first[0].epochs[0].epoch, 3);
    assert!(hear(1, 9, 9).is_empty(), "late");
    let second = hear(3, 8, 2);
    assert_eq!(second[0].loads.as_ref().unwrap()[0].inflight, 8);
    assert!(second[0].epochs.is_empty());
    assert!(hear(4, 8, 3)[0].epochs.is_empty());
    assert_eq!(hear(5, 8, 4)[0].epochs[0].epoch, 4);
}

#[test]
fn twenty_restarts_and_a_crowd_of_names_do_not_grow_the_book() {
    let mut fleet = Fleet::new(SPAN);
    for generation in 1..=20 {
        fleet.hear(news(generation, Some(vitals(generation, 1)), [1, 3, 5]), generation);
    }
    assert_eq!(fleet.routers().count(), 1);
    for name in 0..2 * MAX_ROUTERS as u64 {
        let news = News { name: format!("r{name}").into(), ..news(1, Some(vitals(1, 1)), [1]) };
        fleet.hear(news, 1_000 + name);
    }
    assert_eq!(fleet.routers().count(), MAX_ROUTERS);
    assert!(fleet.router("a").is_none() && fleet.router("r2047").is_some());
}

proptest! {
    /// However news is cut, repeated and shuffled, the same segments are handed on, each once, and
    /// the same input gives the same output.
    #[test]
    fn delivery_is_exactly_once_and_repeatable(seqs in proptest::collection::vec((1u64..=64, 4u64..8), 0..200)) {
        let run = || {
            let mut fleet = Fleet::new(SPAN);
            seqs.iter().enumerate().flat_map(|(at, &(seq, generation))| {
                let news = news(generation, Some(vitals(generation, 1 + at as u64)), [seq]);
                fleet.hear(news, at as u64)
            }).collect::<Vec<_>>()
        };
        let mut expected = Vec::new();
        let mut newest = 0;
        let mut of_newest = std::collections::BTreeSet::new();
        for &(seq, generation) in &seqs {
            if generation > newest {
                newest = generation;
                of_newest.clear();
            }
            if generation == newest && of_newest.insert(seq) {
                expected.push(seq);
            }
        }
        prop_assert_eq!(hashes(&run()), expected);
        prop_assert_eq!(run(), run());
    }
}
