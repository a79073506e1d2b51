use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;

fn entry() -> impl Strategy<Value = DeltaEntry> {
    let marks = btree_map(0..MAX_BOUNDARIES as u8, any::<u64>(), 1..=MAX_MARKS);
    (any::<u32>(), any::<u8>(), any::<u32>(), marks).prop_map(|(replica, step, age_tokens, marks)| {
        DeltaEntry {
            replica: ReplicaId(replica),
            count: dequantise(step),
            age_tokens,
            marks: marks.into_iter().map(|(index, hash)| Mark { index, hash }).collect(),
        }
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
    fn arbitrary_bytes_never_panic(bytes in vec(any::<u8>(), 0..2048)) {
        let _ = decode_segment(&bytes);
        let _ = decode_vitals(&bytes);
    }

    /// Behind a right header, where the interesting code is.
    #[test]
    fn arbitrary_bodies_never_panic_and_what_is_taken_is_valid(body in vec(any::<u8>(), 0..2048), kind in 0u8..2) {
        let mut bytes = vec![WIRE_VERSION, kind, SCHEME as u8, (SCHEME >> 8) as u8];
        bytes.extend(body);
        if let Ok(segment) = decode_segment(&bytes) {
            prop_assert!(segment.entries.iter().all(is_valid));
        }
        let _ = decode_vitals(&bytes);
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
            age_tokens: 0,
            marks: smallvec![Mark { index: 3, hash: 0x1122_3344_5566_7788 }, Mark { index: 79, hash: 1 }],
        }],
    }
}

/// Bytes that routers of wire version 1 exchange. If this fails, [`WIRE_VERSION`] must grow.
#[test]
fn golden_bytes_of_version_1() {
    let segment = [
        "01000100",           // version, kind, scheme
        "fd0068e5cf8b010000", // generation
        "fb2c01",             // seq
        "fcf8240100",         // sent_ms
        "01",                 // entries
        "04030201",           // replica
        "40",                 // count 1.0
        "00",                 // age
        "02",                 // marks
        "038877665544332211",
        "4f0100000000000000",
    ];
    assert_eq!(hex(&encode_segment(&sample())), segment.concat());

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
        "01010100",
        "fd0068e5cf8b010000",
        "02",
        "07",
        "fbfb00",
        "01", // head, draining
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
    let marks = marks.into_iter().map(|(index, hash)| WireMark { index, hash: hash.to_le_bytes() }).collect();
    let entry = WireEntry { replica: [0; 4], count: 64, age_tokens: 0, marks };
    encode(KIND_SEGMENT, WireSegment { generation: 1, seq: 1, sent_ms: 0, entries: vec![entry] })
}

#[test]
fn what_cannot_be_is_refused() {
    let nine = (0..9).map(|index| (index, 1)).collect();
    for marks in [vec![], nine, vec![(MAX_BOUNDARIES as u8, 1)], vec![(4, 1), (4, 2)], vec![(5, 1), (4, 2)]] {
        assert_eq!(decode_segment(&forge(marks.clone())), Err(CodecError::OutOfRange), "{marks:?}");
    }
    let load = WireLoad { replica: [0; 4], inflight: MAX_INFLIGHT + 1, queued_tokens: 0, new_tokens: 0 };
    let wire = WireVitals {
        generation: 1,
        seq: 1,
        boot: 1,
        floor: 0,
        draining: false,
        loads: vec![load],
        epochs: vec![],
    };
    assert_eq!(decode_vitals(&encode(KIND_VITALS, wire)), Err(CodecError::OutOfRange));
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
    assert_eq!(decode_segment(&vec![0; MAX_VALUE_BYTES + 1]), Err(CodecError::TooLong(MAX_VALUE_BYTES + 1)));
}

#[test]
fn the_largest_honest_values_fit_the_limits() {
    let thin = DeltaEntry { marks: smallvec![Mark { index: 0, hash: 0 }], ..sample().entries[0].clone() };
    let fits = (MAX_VALUE_BYTES - SEGMENT_OVERHEAD) / entry_len(&thin);
    let segment = Segment { entries: vec![thin; fits], ..sample() };
    assert_eq!(decode_segment(&encode_segment(&segment)).unwrap().entries.len(), fits);

    let load = LoadReport { replica: ReplicaId(0), inflight: 0, queued_tokens: 0, new_tokens: 0 };
    let vitals = Vitals { loads: vec![load; 2000], ..Vitals::default() };
    assert_eq!(decode_vitals(&encode_vitals(&vitals)), Ok(vitals));
}
