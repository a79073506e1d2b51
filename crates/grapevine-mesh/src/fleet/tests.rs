use grapevine_tree::{DeltaEntry, Mark, ReplicaId};
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::codec::{decode_segment, encode_segment};
use crate::{LoadReport, ReplicaEpoch};

/// A fleet with its log.
#[derive(Default)]
struct Desk {
    fleet: Fleet,
    log: Log,
}

impl Desk {
    fn hear(&mut self, news: News, now: Millis) -> Vec<Incoming> {
        self.fleet.hear(news, &mut self.log, now)
    }

    fn take(&mut self, generation: u64, seqs: impl IntoIterator<Item = u64>) -> Vec<Incoming> {
        let segments = seqs.into_iter().map(|seq| segment(generation, seq)).collect();
        self.fleet.take(RouterId::of_name("a"), segments, &mut self.log, 0)
    }

    /// What `a` tells directly.
    fn told(&mut self, generation: u64, seqs: impl IntoIterator<Item = u64>) -> Vec<Incoming> {
        self.hear(news(generation, None, seqs), 0)
    }

    fn a(&self) -> &Router {
        self.fleet.router("a").unwrap()
    }

    fn holes(&self) -> Vec<(u64, u64)> {
        self.fleet.wants().into_iter().flat_map(|want| want.holes).collect()
    }
}

fn segment(generation: u64, seq: u64) -> Heard {
    let marks = smallvec![Mark { index: 0, hash: seq << 8 }];
    let entry = DeltaEntry { replica: ReplicaId(1), count: 1.0, epoch: 0, marks };
    let segment = Segment { generation, seq, sent_ms: seq * 250, entries: vec![entry] };
    let bytes = encode_segment(&segment).into();
    Heard { segment, bytes }
}

fn seen(generation: u64, settled: u64) -> SeenOrigin {
    SeenOrigin { origin: RouterId::of_name("a"), generation, settled, lost: 0 }
}

fn vitals(generation: u64, seq: u64) -> Vitals {
    Vitals { generation, seq, boot: generation, ..Vitals::default() }
}

fn news(generation: u64, vitals: Option<Vitals>, seqs: impl IntoIterator<Item = u64>) -> News {
    let segments = seqs.into_iter().map(|seq| segment(generation, seq)).collect();
    News { name: "a".into(), generation, vitals, segments, pointers: Vec::new() }
}

fn hashes(incoming: &[Incoming]) -> Vec<u64> {
    incoming.iter().flat_map(|it| &it.entries).map(|entry| entry.marks[0].hash >> 8).collect()
}

#[test]
fn segments_come_once_and_in_order() {
    let mut desk = Desk::default();
    let first = desk.hear(news(5, Some(vitals(5, 1)), [3, 1, 2, 2]), 0);
    assert_eq!(hashes(&first), [1, 2, 3]);
    assert_eq!(first.iter().filter(|it| it.loads.is_some()).count(), 1, "vitals come once");
    assert_eq!(first[0].origin, RouterId::of_name("a"));
    assert!(hashes(&desk.hear(news(5, None, [1, 2, 3]), 0)).is_empty());
    assert_eq!(hashes(&desk.hear(news(5, None, [5]), 0)), [5], "a hole does not hold up the rest");
    assert_eq!(desk.a().open(), 1);
    assert_eq!(hashes(&desk.hear(news(5, None, [4]), 0)), [4]);
    assert_eq!((desk.a().open(), desk.a().missed()), (0, 0));
}

#[test]
fn of_what_is_told_directly_and_by_gossip_the_later_counts() {
    let mut desk = Desk::default();
    let a = RouterId::of_name("a");
    assert!(desk.fleet.hear_direct(a, vitals(5, 2), 0, 0).is_empty(), "not met yet");
    desk.hear(news(5, Some(vitals(5, 1)), []), 0);
    assert!(desk.fleet.hear_direct(a, vitals(5, 4), 0, 0)[0].loads.is_some());
    for late in [vitals(5, 4), vitals(5, 3), vitals(4, 9), vitals(6, 9)] {
        assert!(desk.fleet.hear_direct(a, late, 9, 0).is_empty(), "twice, late, or of another generation");
    }
    assert!(desk.hear(news(5, Some(vitals(5, 3)), []), 0).is_empty(), "gossip is late");
    assert_eq!(desk.hear(news(5, Some(vitals(5, 5)), []), 0).len(), 1);
}

#[test]
fn a_segment_counts_once_whether_told_directly_or_by_gossip() {
    let mut desk = Desk::default();
    assert!(desk.told(5, [1]).is_empty(), "not met yet");
    desk.hear(news(5, Some(vitals(5, 1)), []), 0);
    assert_eq!(desk.fleet.name_of(RouterId::of_name("a")).map(|it| &**it), Some("a"));
    assert_eq!(hashes(&desk.told(5, [1, 2])), [1, 2]);
    assert_eq!(hashes(&desk.hear(news(5, Some(vitals(5, 2)), [1, 2, 3]), 0)), [3]);
    assert!(!desk.a().has_new_hole(0, 0));
    assert_eq!(hashes(&desk.told(5, [3, 5])), [5]);
    assert!(desk.a().has_new_hole(0, 0) && desk.a().has(5) && !desk.a().has(4));
    assert!(desk.told(6, [4]).is_empty(), "of a generation that was not met");
    assert_eq!(hashes(&desk.hear(news(5, None, [4, 5]), 0)), [4]);
    assert!(!desk.a().has_new_hole(0, 0));
    desk.hear(
        News { pointers: vec![Pointer { generation: 5, seq: 6, sent_ms: 0, len: 9 }], ..news(5, None, []) },
        0,
    );
    assert!(!desk.a().has_new_hole(0, 0), "that one is to be pulled");
}

#[test]
fn a_hole_is_left_to_gossip_while_it_is_new_and_in_the_ring() {
    let mut desk = Desk::default();
    desk.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    let a = RouterId::of_name("a");
    desk.fleet.hear_direct(a, vitals(5, 2), 2, 10);
    assert!(desk.a().has_new_hole(1_010, 1_000) && !desk.a().has_new_hole(1_011, 1_000));
    desk.fleet.hear_direct(a, vitals(5, 3), 2 + SLOTS - 1, 20);
    assert!(desk.a().has_new_hole(20, 1_000));
    desk.fleet.hear_direct(a, vitals(5, 4), 2 + SLOTS, 30);
    assert!(!desk.a().has_new_hole(30, 1_000), "its slot has another by now");
}

#[test]
fn a_newer_generation_silences_the_older_and_is_told_once() {
    let mut desk = Desk::default();
    let met = desk.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    assert!(!met[0].restarted, "who is new has not restarted");
    assert_eq!(desk.fleet.standing("a", 6), Standing::Current);

    let reborn = desk.hear(news(6, Some(vitals(6, 1)), [1, 2]), 0);
    assert_eq!(reborn.iter().map(|it| it.restarted).collect::<Vec<_>>(), [true, false]);
    assert_eq!(hashes(&reborn), [1, 2]);
    assert_eq!(desk.fleet.standing("a", 5), Standing::Old);
    assert!(desk.hear(news(5, Some(vitals(5, 9)), [2, 3]), 0).is_empty());
    assert!(!desk.hear(news(6, Some(vitals(6, 2)), []), 0)[0].restarted);
    assert_eq!(desk.fleet.routers().count(), 1);
}

#[test]
fn gossip_that_starts_again_within_one_process_is_no_restart() {
    let mut desk = Desk::default();
    desk.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    let again = Vitals { boot: 5, ..vitals(6, 1) };
    assert!(!desk.hear(news(6, Some(again), [1]), 0)[0].restarted);
    let reboot = Vitals { boot: 7, ..vitals(7, 1) };
    assert!(desk.hear(news(7, Some(reboot), []), 0)[0].restarted);
}

#[test]
fn a_generation_is_heard_from_its_first_vitals_on() {
    let mut desk = Desk::default();
    assert!(desk.hear(news(5, None, [1, 2]), 0).is_empty());
    assert_eq!(desk.fleet.routers().count(), 0);
    assert_eq!(hashes(&desk.hear(news(5, Some(vitals(5, 1)), [1, 2]), 0)), [1, 2]);
}

#[test]
fn a_newcomer_leaves_out_what_is_stale() {
    let mut desk = Desk::default();
    let floor = Vitals { floor: 98, ..vitals(5, 1) };
    assert_eq!(hashes(&desk.hear(news(5, Some(floor), 60..=100), 0)), [98, 99, 100]);
    assert_eq!(desk.a().missed(), 0);
    let mut other = Desk::default();
    assert_eq!(hashes(&other.hear(news(5, Some(vitals(5, 1)), 937..=1000), 0)).len(), 64);
    assert_eq!(other.a().missed(), 0, "what was before us was not missed");
}

#[test]
fn what_fell_behind_is_missed() {
    let mut desk = Desk::default();
    desk.hear(news(5, Some(vitals(5, 1)), [1]), 0);
    assert_eq!(hashes(&desk.hear(news(5, None, 837..=900), 0)).len(), 64);
    assert_eq!(desk.a().missed(), 900 - SPAN - 1);
    assert_eq!(desk.holes(), [(900 - SPAN + 1, 836)]);
    desk.hear(news(6, Some(vitals(6, 1)), [1]), 0);
    assert_eq!(desk.a().missed(), 900 - SPAN - 1, "the count outlives the generation");
}

#[test]
fn a_hole_is_wanted_until_its_segment_comes_on_any_way() {
    let mut desk = Desk::default();
    desk.hear(news(5, Some(vitals(5, 1)), [1, 4, 6]), 1_000);
    let want = desk.fleet.wants().remove(0);
    assert_eq!((want.holes.as_slice(), want.since, want.pointed), (&[(2, 3), (5, 5)][..], 1_000, false));
    assert_eq!(hashes(&desk.take(5, [3, 2, 4])), [2, 3], "each once");
    assert!(desk.take(4, [5]).is_empty() && desk.take(6, [5]).is_empty(), "another generation");
    desk.hear(news(5, None, [9]), 2_000);
    assert_eq!(desk.holes(), [(5, 5), (7, 8)]);
    assert_eq!(hashes(&desk.hear(news(5, None, [2, 3, 5]), 2_000)), [5]);
    assert_eq!(desk.fleet.wants().remove(0).since, 2_000);
    let want = desk.fleet.wants().remove(0);
    assert_eq!(desk.fleet.lose(&want, 2_000), 2);
    assert!(desk.fleet.wants().is_empty());
    assert_eq!((desk.a().missed(), desk.a().settled()), (2, 9));
    let kept = desk.log.get(RouterId::of_name("a"), 5, &[(1, 99)], usize::MAX).segments;
    assert_eq!(kept.len(), 7, "what came is kept for others");
}

#[test]
fn a_pointer_is_wanted_at_once() {
    let mut desk = Desk::default();
    let pointer = Pointer { generation: 5, seq: 3, sent_ms: 0, len: 9 };
    let pointers = vec![pointer, Pointer { generation: 4, seq: 9, ..pointer }];
    desk.hear(News { pointers, ..news(5, Some(vitals(5, 1)), [1, 2]) }, 0);
    let want = desk.fleet.wants().remove(0);
    assert_eq!((want.holes.as_slice(), want.pointed), (&[(3, 3)][..], true));
    assert_eq!(hashes(&desk.take(5, [3])), [3]);
    desk.hear(news(5, None, [5]), 0);
    assert!(!desk.fleet.wants().remove(0).pointed);
}

#[test]
fn a_peer_that_is_ahead_shows_what_is_lacking() {
    let mut desk = Desk::default();
    assert_eq!(desk.fleet.compare(&seen(5, 9), 0), Level::Level, "whom we do not know, we do not lack");
    desk.hear(news(5, Some(vitals(5, 1)), [1, 2]), 0);
    assert_eq!(desk.fleet.compare(&seen(5, 2), 0), Level::Level);
    assert_eq!(desk.fleet.compare(&seen(4, 9), 0), Level::Level);
    assert_eq!(desk.fleet.compare(&seen(5, 4), 7), Level::Behind);
    assert_eq!(desk.holes(), [(3, 4)]);
    assert_eq!(desk.fleet.compare(&seen(5, 1_000), 0), Level::FarBehind);
    assert_eq!(desk.holes(), [(3, 4)]);
    assert_eq!(desk.fleet.seen(0), [seen(5, 2)]);
    assert!(desk.fleet.seen(SEEN_MS + 1).is_empty());
}

#[test]
fn a_snapshot_settles_what_it_contains() {
    let mut desk = Desk::default();
    desk.hear(news(5, Some(vitals(5, 1)), 40..=103), 0);
    assert_eq!(desk.fleet.take_skipped().len(), 1);
    assert!(desk.fleet.take_skipped().is_empty());
    desk.fleet.resume(&[seen(4, 900)], 0);
    assert!(desk.holes().is_empty(), "of an older generation");
    let mut late = Desk::default();
    late.fleet.resume(&[seen(5, 20)], 0);
    assert_eq!(hashes(&late.hear(news(5, Some(vitals(5, 1)), 40..=103), 0)).len(), 64);
    assert_eq!(late.holes(), [(21, 39)], "also what the ring no longer has");
    assert!(late.fleet.take_skipped().is_empty());
    late.fleet.resume(&[seen(5, 102)], 0);
    assert_eq!((late.holes(), late.a().missed()), (vec![], 0));
}

#[test]
fn the_latest_vitals_win_and_epochs_never_go_back() {
    let mut desk = Desk::default();
    let said = |seq, inflight, epoch| Vitals {
        loads: vec![LoadReport { replica: ReplicaId(1), inflight, queued_tokens: 0, new_tokens: 0 }],
        epochs: vec![ReplicaEpoch { replica: ReplicaId(1), epoch }],
        ..vitals(5, seq)
    };
    let mut hear = |seq, inflight, epoch| desk.hear(news(5, Some(said(seq, inflight, epoch)), []), 0);
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
    let mut desk = Desk::default();
    for generation in 1..=20 {
        desk.hear(news(generation, Some(vitals(generation, 1)), [1, 3, 5]), generation);
    }
    assert_eq!(desk.fleet.routers().count(), 1);
    for name in 0..2 * MAX_ROUTERS as u64 {
        let news = News { name: format!("r{name}").into(), ..news(1, Some(vitals(1, 1)), [1]) };
        desk.hear(news, 1_000 + name);
    }
    assert_eq!(desk.fleet.routers().count(), MAX_ROUTERS);
    assert!(desk.fleet.router("a").is_none() && desk.fleet.router("r2047").is_some());
}

proptest! {
    /// However news is cut, repeated and shuffled, and whichever way it comes, the same segments are
    /// handed on, each once, and the same input gives the same output.
    #[test]
    fn delivery_is_exactly_once_and_repeatable(seqs in proptest::collection::vec((1u64..=64, 4u64..8, any::<bool>()), 0..200)) {
        let run = || {
            let mut desk = Desk::default();
            seqs.iter().enumerate().flat_map(|(at, &(seq, generation, pulled))| {
                if pulled && desk.fleet.standing("a", generation) == Standing::Current
                    && desk.fleet.router("a").is_some_and(|it| it.generation == generation)
                {
                    return desk.take(generation, [seq]);
                }
                let news = news(generation, Some(vitals(generation, 1 + at as u64)), [seq]);
                desk.hear(news, at as u64)
            }).collect::<Vec<_>>()
        };
        let mut expected = Vec::new();
        let mut newest = 0;
        let mut of_newest = std::collections::BTreeSet::new();
        for &(seq, generation, _) in &seqs {
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

    /// Two routers hear different parts of what a third says, in any order and repeatedly, and ask each
    /// other for the rest: both hand on all that either heard, each once; what neither heard stays open.
    #[test]
    fn what_one_lost_is_had_of_another(
        heard in proptest::collection::vec((1u64..=80, 0usize..2), 1..300),
        rounds in 1usize..4,
    ) {
        let mut desks = [Desk::default(), Desk::default()];
        let mut handed_on = [Vec::new(), Vec::new()];
        for desk in &mut desks {
            // Both are there from the start.
            desk.hear(news(5, Some(vitals(5, 1)), []), 0);
        }
        for &(seq, at) in &heard {
            handed_on[at].extend(hashes(&desks[at].hear(news(5, None, [seq]), 0)));
        }
        let name = RouterId::of_name("a");
        for _ in 0..rounds {
            for (me, other) in [(0, 1), (1, 0)] {
                let head = desks[other].a().head();
                desks[me].fleet.compare(&seen(5, head), 0);
                let holes = desks[me].holes();
                let found = desks[other].log.get(name, 5, &holes, usize::MAX).segments;
                let seqs: Vec<u64> = found.iter().map(|it| decode_segment(it).unwrap().seq).collect();
                handed_on[me].extend(hashes(&desks[me].take(5, seqs)));
            }
        }
        let all: std::collections::BTreeSet<u64> = heard.iter().map(|it| it.0).collect();
        for (desk, mut handed_on) in desks.iter().zip(handed_on) {
            handed_on.sort_unstable();
            prop_assert_eq!(handed_on, all.iter().copied().collect::<Vec<_>>());
            let open = desk.a().head() - all.len() as u64;
            prop_assert_eq!((desk.a().open(), desk.a().missed()), (open, 0));
        }
    }
}
