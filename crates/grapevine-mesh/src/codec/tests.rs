use grapevine_tree::{ReplicaHistory, RouterId, SnapshotCredit, SnapshotNode, SnapshotPage};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::{LoadReport, ReplicaEpoch};

const MAX_INFLIGHT: u32 = super::vitals::MAX_INFLIGHT;

fn mark((index, hash): (u8, u64)) -> Mark {
    Mark { index, hash: hash & !0xff }
}

fn entry() -> impl Strategy<Value = DeltaEntry> {
    let marks = btree_map(0..MAX_BOUNDARIES as u8, any::<u64>(), 1..=MAX_MARKS);
    (any::<u32>(), any::<u8>(), any::<u32>(), marks).prop_map(|(replica, step, epoch, marks)| DeltaEntry {
        replica: ReplicaId(replica),
        count: dequantise(step),
        epoch,
        marks: marks.into_iter().map(mark).collect(),
    })
}

fn segment() -> impl Strategy<Value = Segment> {
    (any::<u64>(), any::<u64>(), any::<u64>(), vec(entry(), 0..40))
        .prop_map(|(generation, seq, sent_ms, entries)| Segment { generation, seq, sent_ms, entries })
}

fn vitals() -> impl Strategy<Value = Vitals> {
    let load = (any::<u32>(), 0..=MAX_INFLIGHT, any::<u32>(), any::<u64>()).prop_map(
        |(replica, inflight, queued_tokens, new_tokens)| LoadReport {
            replica: ReplicaId(replica),
            inflight,
            queued_tokens,
            new_tokens,
        },
    );
    let epoch = (any::<u32>(), any::<u32>())
        .prop_map(|(replica, epoch)| ReplicaEpoch { replica: ReplicaId(replica), epoch });
    (any::<[u64; 4]>(), vec(load, 0..20), vec(epoch, 0..20), any::<bool>()).prop_map(
        |([generation, seq, boot, floor], loads, epochs, draining)| Vitals {
            generation,
            seq,
            boot,
            floor,
            loads,
            epochs,
            draining,
        },
    )
}

fn seen_origin() -> impl Strategy<Value = SeenOrigin> {
    (any::<u32>(), any::<[u64; 3]>()).prop_map(|(origin, [generation, settled, lost])| SeenOrigin {
        origin: RouterId(origin),
        generation,
        settled,
        lost,
    })
}

fn page() -> impl Strategy<Value = SnapshotPage> {
    let marks = btree_map(0..MAX_BOUNDARIES as u8, any::<u64>(), 1..=MAX_BOUNDARIES);
    let credit = (any::<[u32; 3]>(), any::<u8>()).prop_map(|([replica, date, idle_ms], step)| {
        let replica = ReplicaId(replica);
        SnapshotCredit { replica, count: dequantise(step), date, idle_ms }
    });
    let node = (marks, vec(credit, 1..5)).prop_map(|(marks, credits)| SnapshotNode {
        marks: marks.into_iter().map(mark).collect(),
        credits: credits.into(),
    });
    (vec(node, 0..9), any::<Option<u64>>()).prop_map(|(nodes, next)| SnapshotPage { nodes, next })
}

fn head() -> impl Strategy<Value = SnapshotHead> {
    let history = (any::<[u32; 3]>(), any::<Option<u64>>(), vec(any::<(u32, u64)>(), 0..20)).prop_map(
        |([replica, epoch, now], capacity_tokens, runs)| ReplicaHistory {
            replica: ReplicaId(replica),
            epoch,
            capacity_tokens,
            now,
            runs,
        },
    );
    let epoch =
        any::<[u32; 2]>().prop_map(|[replica, epoch]| ReplicaEpoch { replica: ReplicaId(replica), epoch });
    (vec(seen_origin(), 0..9), vec(epoch, 0..9), vec(history, 0..9))
        .prop_map(|(origins, epochs, histories)| SnapshotHead { origins, epochs, histories })
}

fn ask() -> impl Strategy<Value = Ask> {
    let ranges = vec((any::<u64>(), any::<u64>()).prop_map(|(a, b)| (a.min(b), a.max(b))), 0..=MAX_RANGES);
    (any::<[u32; 2]>(), any::<u64>(), ranges, 0..3).prop_map(|([to, origin], number, wanted, kind)| {
        let (to, origin) = (RouterId(to), RouterId(origin));
        match kind {
            0 => Ask::Segments { to, origin, generation: number, wanted },
            1 => Ask::Head { to },
            _ => Ask::Page { to, cursor: number },
        }
    })
}

fn decode_all(bytes: &[u8]) {
    let _ = decode_segment(bytes);
    let _ = decode_vitals(bytes);
    let _ = decode_word(bytes);
    let _ = decode_pointer(bytes);
    let _ = decode_seen(bytes);
    let _ = decode_ask(bytes);
    let _ = decode_segments(bytes);
    let _ = decode_head(bytes);
    let _ = decode_page(bytes);
}

proptest! {
    #[test]
    fn segments_survive_the_trip(segment in segment()) {
        let bytes = encode_segment(&segment);
        prop_assert!(bytes.len() <= SEGMENT_OVERHEAD + segment.entries.iter().map(entry_len).sum::<usize>());
        prop_assert_eq!(decode_segment(&bytes), Ok(segment));
    }

    #[test]
    fn vitals_survive_the_trip(vitals in vitals()) {
        prop_assert_eq!(decode_vitals(&encode_vitals(&vitals)), Ok(vitals));
    }

    #[test]
    fn snapshots_survive_the_trip(page in page(), head in head()) {
        prop_assert_eq!(decode_page(&encode_page(&page)), Ok(page));
        prop_assert_eq!(decode_head(&encode_head(&head)), Ok(head));
    }

    #[test]
    fn questions_and_answers_survive_the_trip(ask in ask(), segments in vec(vec(any::<u8>(), 0..90), 0..9), more in any::<bool>()) {
        prop_assert!(encode_ask(&ask).len() < 900);
        prop_assert_eq!(decode_ask(&encode_ask(&ask)), Ok(ask));
        let answer = Segments { segments, more };
        prop_assert_eq!(decode_segments(&encode_segments(&answer)), Ok(answer));
    }

    #[test]
    fn vectors_and_pointers_survive_the_trip(generation in any::<u64>(), origins in vec(seen_origin(), 0..20)) {
        let seen = Seen { generation, origins };
        prop_assert_eq!(decode_seen(&encode_seen(&seen)), Ok(seen));
        let pointer = Pointer { generation, seq: !generation, sent_ms: 7, len: 9 };
        prop_assert!(is_pointer(&encode_pointer(&pointer)));
        prop_assert_eq!(decode_pointer(&encode_pointer(&pointer)), Ok(pointer));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..2048)) {
        decode_all(&bytes);
    }

    /// Behind a right header, where the interesting code is.
    #[test]
    fn arbitrary_bodies_never_panic_and_what_is_taken_is_valid(body in vec(any::<u8>(), 0..2048), kind in 0u8..10) {
        let mut bytes = vec![WIRE_VERSION, kind, SCHEME as u8, (SCHEME >> 8) as u8];
        bytes.extend(body);
        if let Ok(segment) = decode_segment(&bytes) {
            prop_assert_eq!(number_of(&bytes), Some((segment.generation, segment.seq)));
            prop_assert!(segment.entries.iter().all(is_valid));
        }
        if let Ok(page) = decode_page(&bytes) {
            prop_assert!(page.nodes.iter().all(|node| are_valid(&node.marks) && !node.credits.is_empty()));
        }
        decode_all(&bytes);
    }

    #[test]
    fn a_cut_or_lengthened_value_is_refused(segment in segment(), cut in any::<prop::sample::Index>()) {
        let bytes = encode_segment(&segment);
        prop_assert!(decode_segment(&bytes[..cut.index(bytes.len())]).is_err());
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert_eq!(decode_segment(&longer), Err(CodecError::Malformed));
    }

    #[test]
    fn counts_lose_at_most_four_and_a_half_percent(exponent in -8.0f32..23.8) {
        let count = exponent.exp2();
        let error = (dequantise(quantise(count)) / count - 1.0).abs();
        prop_assert!(error < 0.045, "{} became {}", count, dequantise(quantise(count)));
    }
}

#[test]
fn powers_of_two_are_exact_and_the_ends_clamp() {
    for count in [1.0, 2.0, 4.0, 1024.0, 0.5] {
        assert_eq!(dequantise(quantise(count)), count);
    }
    assert_eq!(quantise(f32::INFINITY), 255);
    assert_eq!(quantise(f32::MAX), 255);
    for count in [0.0, -3.0, f32::NAN, 1e-30] {
        assert_eq!(quantise(count), 0);
    }
}

fn sample() -> Segment {
    Segment {
        generation: 1_700_000_000_000,
        seq: 300,
        sent_ms: 75_000,
        entries: vec![DeltaEntry {
            replica: ReplicaId(0x0102_0304),
            count: 1.0,
            epoch: 9,
            marks: smallvec![Mark { index: 3, hash: 0x1122_3344_5566_7700 }, Mark { index: 79, hash: 256 }],
        }],
    }
}

/// Bytes that routers of wire version 1 exchange. If this fails, [`WIRE_VERSION`] must grow.
#[test]
fn golden_bytes_of_version_1() {
    let segment = [
        "01000200",           // version, kind, scheme
        "fd0068e5cf8b010000", // generation
        "fb2c01",             // seq
        "fcf8240100",         // sent_ms
        "01",                 // entries
        "04030201",           // replica
        "40",                 // count 1.0
        "09",                 // epoch
        "02",                 // marks
        "0377665544332211",
        "4f01000000000000",
    ];
    assert_eq!(hex(&encode_segment(&sample())), segment.concat());
    assert_eq!(number_of(&encode_segment(&sample())), Some((1_700_000_000_000, 300)));
    assert_eq!((number_of(&encode_vitals(&Vitals::default())), number_of(&[1, 0])), (None, None));

    let vitals = Vitals {
        generation: 1_700_000_000_000,
        seq: 2,
        boot: 7,
        floor: 251,
        loads: vec![LoadReport {
            replica: ReplicaId(1),
            inflight: 3,
            queued_tokens: 70_000,
            new_tokens: 1 << 40,
        }],
        epochs: vec![ReplicaEpoch { replica: ReplicaId(1), epoch: 9 }],
        draining: true,
    };
    let golden = [
        "01010200",
        "fd0068e5cf8b010000",
        "02",
        "07",
        "fbfb00",
        "01", // floor, draining
        "01",
        "01000000",
        "03",
        "fc70110100",
        "fd0000000000010000", // load
        "01",
        "01000000",
        "09", // epoch
    ];
    assert_eq!(hex(&encode_vitals(&vitals)), golden.concat());
    let origin = RouterId(0x0102_0304);
    let (load, news) = (golden[1..].concat(), Some(vec![0xaa, 0xbb]));
    for (vitals, news, body) in [
        (Some(&vitals), None, format!("01{load}00")),
        (None, news.clone(), "000102aabb".to_owned()),
        (Some(&vitals), news, format!("01{load}0102aabb")),
    ] {
        let word = Word { origin, head: 300, vitals: vitals.cloned(), news };
        assert_eq!(hex(&encode_word(&word)), format!("010a020004030201fb2c01{body}"));
        assert_eq!(decode_word(&encode_word(&word)), Ok(word));
    }
}

/// The same for what is asked and answered.
#[test]
fn golden_bytes_of_the_exchange_of_version_1() {
    let id = RouterId(0x0102_0304);
    let pointer = Pointer { generation: 5, seq: 300, sent_ms: 1, len: 70_000 };
    assert_eq!(hex(&encode_pointer(&pointer)), "0102020005fb2c0101fc70110100");
    let origin = SeenOrigin { origin: id, generation: 5, settled: 300, lost: 2 };
    let seen = Seen { generation: 7, origins: vec![origin] };
    assert_eq!(hex(&encode_seen(&seen)), "01030200070104030201".to_owned() + "05fb2c0102");
    let ask = Ask::Segments { to: id, origin: RouterId(1), generation: 5, wanted: vec![(3, 300)] };
    assert_eq!(hex(&encode_ask(&ask)), "0104020000".to_owned() + "0403020101000000" + "050103fb2c01");
    assert_eq!(hex(&encode_ask(&Ask::Head { to: id })), "010402000104030201");
    assert_eq!(hex(&encode_ask(&Ask::Page { to: id, cursor: 9 })), "01040200020403020109");
    let answer = Segments { segments: vec![vec![0xaa, 0xbb]], more: true };
    assert_eq!(hex(&encode_segments(&answer)), "010502000102aabb01");
    let history = ReplicaHistory {
        replica: ReplicaId(0x0102_0304),
        epoch: 3,
        capacity_tokens: Some(500),
        now: 9,
        runs: vec![(7, 300)],
    };
    let epoch = ReplicaEpoch { replica: ReplicaId(1), epoch: 3 };
    let head = SnapshotHead { origins: vec![origin], epochs: vec![epoch], histories: vec![history] };
    let golden = ["01060200", "010403020105fb2c0102", "010100000003", "01040302010301fbf401", "090107fb2c01"];
    assert_eq!(hex(&encode_head(&head)), golden.concat());
    let credit = SnapshotCredit { replica: ReplicaId(2), count: 1.0, date: 300, idle_ms: 4 };
    let node = SnapshotNode {
        marks: smallvec![Mark { index: 3, hash: 0x1122_3344_5566_7700 }],
        credits: smallvec![credit],
    };
    let page = SnapshotPage { nodes: vec![node], next: Some(9) };
    let golden = ["01070200", "0109", "01", "010377665544332211", "010200000040fb2c0104"];
    assert_eq!(hex(&encode_page(&page)), golden.concat());
}

#[test]
fn what_cannot_be_asked_or_taught_is_refused() {
    let to = RouterId(1);
    let backwards = Ask::Segments { to, origin: to, generation: 1, wanted: vec![(3, 2)] };
    assert_eq!(decode_ask(&encode_ask(&backwards)), Err(CodecError::OutOfRange));
    let credit = SnapshotCredit { replica: ReplicaId(2), count: 1.0, date: 300, idle_ms: 4 };
    for (marks, credits) in [
        (vec![], smallvec![credit]),
        (vec![(1, 0)], smallvec![]),
        (vec![(2, 0), (1, 0)], smallvec![credit]),
        (vec![(MAX_BOUNDARIES as u8, 0)], smallvec![credit]),
    ] {
        let node = SnapshotNode { marks: marks.into_iter().map(mark).collect(), credits };
        let page = SnapshotPage { nodes: vec![node], next: None };
        assert_eq!(decode_page(&encode_page(&page)), Err(CodecError::OutOfRange));
    }
}

/// A page of any kind of nodes that its maker took for full is below what its reader takes.
#[test]
fn the_densest_pages_fit_the_limits() {
    let credit = SnapshotCredit { replica: ReplicaId(2), count: 1.0, date: u32::MAX, idle_ms: u32::MAX };
    for (marks, credits) in [(1, 1), (1, 400), (MAX_BOUNDARIES, 1)] {
        let node = SnapshotNode {
            marks: (0..marks as u8).map(|index| mark((index, !0))).collect(),
            credits: smallvec![credit; credits],
        };
        let one = encode_page(&SnapshotPage { nodes: vec![node.clone()], next: None }).len();
        let nodes = vec![node; 512 * 1024 / one];
        let page = SnapshotPage { nodes, next: None };
        assert!(decode_page(&encode_page(&page)).is_ok(), "{marks} marks, {credits} credits");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn other_versions_and_schemes_are_told_apart() {
    let mut bytes = encode_segment(&sample());
    bytes[0] = 2;
    assert_eq!(decode_segment(&bytes), Err(CodecError::Version(2)));
    bytes[0] = WIRE_VERSION;
    bytes[2] = 9;
    assert_eq!(decode_segment(&bytes), Err(CodecError::Scheme(9)));
    assert_eq!(decode_vitals(&encode_segment(&sample())), Err(CodecError::Malformed));
    assert_eq!(decode_segment(&[]), Err(CodecError::Malformed));
}

/// Writes entries without the checks of the encoder, as a broken peer would.
fn forge(marks: Vec<(u8, u64)>) -> Vec<u8> {
    let marks = marks.into_iter().map(|it| pack(&mark(it))).collect();
    let entry = WireEntry { replica: [0; 4], count: 64, epoch: 0, marks };
    encode(KIND_SEGMENT, WireSegment { generation: 1, seq: 1, sent_ms: 0, entries: vec![entry] })
}

#[test]
fn what_cannot_be_is_refused() {
    let nine = (0..9).map(|index| (index, 1)).collect();
    for marks in [vec![], nine, vec![(MAX_BOUNDARIES as u8, 1)], vec![(4, 1), (4, 2)], vec![(5, 1), (4, 2)]] {
        assert_eq!(decode_segment(&forge(marks.clone())), Err(CodecError::OutOfRange), "{marks:?}");
    }
    assert_eq!(decode_vitals(&vitals::forge::overloaded()), Err(CodecError::OutOfRange));
}

#[test]
fn the_encoder_never_says_what_a_decoder_refuses() {
    let mut segment = sample();
    let good = segment.entries[0].clone();
    for count in [f32::NAN, -1.0, 0.0, f32::INFINITY] {
        segment.entries.push(DeltaEntry { count, ..good.clone() });
    }
    segment.entries.push(DeltaEntry { marks: smallvec![], ..good });
    assert_eq!(decode_segment(&encode_segment(&segment)), Ok(sample()));
}

#[test]
fn a_huge_claim_costs_an_error_and_not_memory() {
    // A vector of 2^60 entries in nine bytes.
    let mut bytes = vec![WIRE_VERSION, KIND_SEGMENT, SCHEME as u8, (SCHEME >> 8) as u8, 1, 1, 1];
    bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0x10]);
    assert_eq!(decode_segment(&bytes), Err(CodecError::Malformed));
    let longest = [(MAX_SEGMENT_BYTES, decode_segment(&vec![0; MAX_SEGMENT_BYTES + 1]).err())];
    for (longest, error) in longest {
        assert_eq!(error, Some(CodecError::TooLong(longest + 1)));
    }
    assert_eq!(decode_vitals(&vec![0; MAX_VALUE_BYTES + 1]), Err(CodecError::TooLong(MAX_VALUE_BYTES + 1)));
}

#[test]
fn the_largest_honest_values_fit_the_limits() {
    let thin = DeltaEntry { marks: smallvec![Mark { index: 0, hash: 0 }], ..sample().entries[0].clone() };
    let fits = (MAX_SEGMENT_BYTES - SEGMENT_OVERHEAD) / entry_len(&thin);
    let segment = Segment { entries: vec![thin; fits], ..sample() };
    assert_eq!(decode_segment(&encode_segment(&segment)).unwrap().entries.len(), fits);

    let load = LoadReport { replica: ReplicaId(0), inflight: 0, queued_tokens: 0, new_tokens: 0 };
    let vitals = Vitals { loads: vec![load; 2000], ..Vitals::default() };
    assert_eq!(decode_vitals(&encode_vitals(&vitals)), Ok(vitals));
}
