//! The bytes of what one router publishes. The only file that knows bincode.
//!
//! Every value starts with four plain bytes that any version can read: wire version, kind, and the
//! hash scheme (u16, little endian). What follows is bincode 2 (`standard`: little endian, varints)
//! of one of two bodies, a [`Segment`] or [`Vitals`]. A decoder checks everything it hands out:
//! input length, memory claimed, trailing bytes, boundaries in range and ascending. So a peer of
//! another version is told apart and counted, and a damaged or hostile value costs an error.
//!
//! Prefix counts travel as one byte on a log scale ([`quantise`]): zero, negative, infinite and NaN
//! counts cannot be expressed.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};
use grapevine_tree::boundary::{MAX_BOUNDARIES, SCHEME};
use grapevine_tree::delta::MAX_MARKS;
use grapevine_tree::{DeltaEntry, Mark, ReplicaId};

use crate::{LoadReport, ReplicaEpoch};

/// Version of the layout below. Another number means another layout: never guess.
pub const WIRE_VERSION: u8 = 1;

/// Longest value that is decoded, in bytes. A publisher stays below it ([`crate::carrier`]).
pub const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Memory a decode may claim, in bytes. The densest honest value of [`MAX_VALUE_BYTES`] claims 56 KiB.
const MAX_CLAIM_BYTES: usize = 64 * 1024;

/// Version, kind, scheme.
const HEADER_BYTES: usize = 4;

const KIND_SEGMENT: u8 = 0;
const KIND_VITALS: u8 = 1;

/// Most of its own requests a router can claim to have on one replica. Far above any engine's
/// queue; keeps sums over a fleet far from overflow.
const MAX_INFLIGHT: u32 = 1 << 20;

/// Steps of the count scale per doubling: neighbours differ by 9 %, so rounding costs at most 4.5 %.
const COUNT_STEPS: f32 = 8.0;

/// Exponent of the smallest count, 2^-8. The largest is 2^(255/8 - 8), about 15 million.
const COUNT_MIN_EXPONENT: f32 = -8.0;

const CONFIG: Configuration<LittleEndian, Varint, Limit<MAX_CLAIM_BYTES>> =
    bincode::config::standard().with_limit::<MAX_CLAIM_BYTES>();

/// What a router learnt about prefixes in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The publisher's generation: grows each time its gossip starts.
    pub generation: u64,
    /// Number within the generation, from 1, without holes.
    pub seq: u64,
    /// Milliseconds since the publisher started. Compared only with its own other segments.
    pub sent_ms: u64,
    /// Changed prefixes.
    pub entries: Vec<DeltaEntry>,
}

/// What a router says of itself; each replaces the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// The publisher's generation.
    pub generation: u64,
    /// Number within the generation, from 1.
    pub seq: u64,
    /// Generation at which the publisher's process started: its counters run since then.
    pub boot: u64,
    /// A newcomer leaves out segments numbered below this: they are older than the ring's span.
    pub floor: u64,
    /// Load on each replica.
    pub loads: Vec<LoadReport>,
    /// Cache epochs of replicas.
    pub epochs: Vec<ReplicaEpoch>,
    /// The publisher is going away.
    pub draining: bool,
}

/// Why a value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than [`MAX_VALUE_BYTES`].
    #[error("value of {0} bytes is too long")]
    TooLong(usize),
    /// Of another wire version.
    #[error("unknown wire version {0}")]
    Version(u8),
    /// Hashes of another scheme.
    #[error("unknown hash scheme {0}")]
    Scheme(u16),
    /// Cut short, overlong, or not what its header says.
    #[error("malformed value")]
    Malformed,
    /// Well formed, but says what cannot be.
    #[error("value out of range")]
    OutOfRange,
}

#[derive(Encode, Decode)]
struct WireSegment {
    generation: u64,
    seq: u64,
    sent_ms: u64,
    entries: Vec<WireEntry>,
}

#[derive(Encode, Decode)]
struct WireEntry {
    replica: [u8; 4],
    count: u8,
    age_tokens: u32,
    marks: Vec<WireMark>,
}

/// The hash as bytes: a varint would take nine for a random number.
#[derive(Encode, Decode)]
struct WireMark {
    index: u8,
    hash: [u8; 8],
}

#[derive(Encode, Decode)]
struct WireVitals {
    generation: u64,
    seq: u64,
    boot: u64,
    floor: u64,
    draining: bool,
    loads: Vec<WireLoad>,
    epochs: Vec<WireEpoch>,
}

#[derive(Encode, Decode)]
struct WireLoad {
    replica: [u8; 4],
    inflight: u32,
    queued_tokens: u32,
    new_tokens: u64,
}

#[derive(Encode, Decode)]
struct WireEpoch {
    replica: [u8; 4],
    epoch: u32,
}

/// Bytes of a segment without entries, at most: header and four varints.
pub const SEGMENT_OVERHEAD: usize = HEADER_BYTES + 9 + 9 + 9 + 3;

/// Bytes that `entry` takes in a segment.
pub fn entry_len(entry: &DeltaEntry) -> usize {
    4 + 1 + varint_len(u64::from(entry.age_tokens)) + 1 + 9 * entry.marks.len()
}

/// Whether `entry` can be told: [`decode_segment`] takes exactly these.
pub fn is_valid(entry: &DeltaEntry) -> bool {
    let ascending = entry.marks.windows(2).all(|pair| matches!(pair, [a, b] if a.index < b.index));
    let in_range = entry.marks.iter().all(|mark| usize::from(mark.index) < MAX_BOUNDARIES);
    let sized = (1..=MAX_MARKS).contains(&entry.marks.len());
    ascending && in_range && sized && entry.count.is_finite() && entry.count > 0.0
}

/// The bytes of a segment. Entries that are not [`is_valid`] are the caller's mistake and left out.
pub fn encode_segment(segment: &Segment) -> Vec<u8> {
    let entries = segment.entries.iter().filter(|entry| is_valid(entry)).map(to_wire).collect();
    let (generation, seq, sent_ms) = (segment.generation, segment.seq, segment.sent_ms);
    encode(KIND_SEGMENT, WireSegment { generation, seq, sent_ms, entries })
}

/// A segment from its bytes.
pub fn decode_segment(bytes: &[u8]) -> Result<Segment, CodecError> {
    let wire: WireSegment = decode(KIND_SEGMENT, bytes)?;
    let entries = wire.entries.iter().map(from_wire).collect::<Result<_, _>>()?;
    Ok(Segment { generation: wire.generation, seq: wire.seq, sent_ms: wire.sent_ms, entries })
}

/// The bytes of a router's vitals.
pub fn encode_vitals(vitals: &Vitals) -> Vec<u8> {
    let load = |load: &LoadReport| WireLoad {
        replica: load.replica.0.to_le_bytes(),
        inflight: load.inflight.min(MAX_INFLIGHT),
        queued_tokens: load.queued_tokens,
        new_tokens: load.new_tokens,
    };
    let epoch = |it: &ReplicaEpoch| WireEpoch { replica: it.replica.0.to_le_bytes(), epoch: it.epoch };
    let wire = WireVitals {
        generation: vitals.generation,
        seq: vitals.seq,
        boot: vitals.boot,
        floor: vitals.floor,
        draining: vitals.draining,
        loads: vitals.loads.iter().map(load).collect(),
        epochs: vitals.epochs.iter().map(epoch).collect(),
    };
    encode(KIND_VITALS, wire)
}

/// A router's vitals from their bytes.
pub fn decode_vitals(bytes: &[u8]) -> Result<Vitals, CodecError> {
    let wire: WireVitals = decode(KIND_VITALS, bytes)?;
    if wire.loads.iter().any(|load| load.inflight > MAX_INFLIGHT) {
        return Err(CodecError::OutOfRange);
    }
    let load = |load: WireLoad| LoadReport {
        replica: replica(load.replica),
        inflight: load.inflight,
        queued_tokens: load.queued_tokens,
        new_tokens: load.new_tokens,
    };
    let epoch = |it: WireEpoch| ReplicaEpoch { replica: replica(it.replica), epoch: it.epoch };
    Ok(Vitals {
        generation: wire.generation,
        seq: wire.seq,
        boot: wire.boot,
        floor: wire.floor,
        draining: wire.draining,
        loads: wire.loads.into_iter().map(load).collect(),
        epochs: wire.epochs.into_iter().map(epoch).collect(),
    })
}

/// A count as one byte, rounded to the nearest step of the log scale and clamped to its ends.
pub fn quantise(count: f32) -> u8 {
    let step = (count.max(f32::MIN_POSITIVE).log2() - COUNT_MIN_EXPONENT) * COUNT_STEPS;
    // `as` saturates, and takes NaN to 0.
    step.round() as u8
}

/// The count that a byte stands for.
pub fn dequantise(step: u8) -> f32 {
    (f32::from(step) / COUNT_STEPS + COUNT_MIN_EXPONENT).exp2()
}

fn encode<T: Encode>(kind: u8, body: T) -> Vec<u8> {
    let [low, high] = SCHEME.to_le_bytes();
    let mut bytes = vec![WIRE_VERSION, kind, low, high];
    bincode::encode_into_std_write(body, &mut bytes, CONFIG)
        .expect("writing plain structs into a Vec cannot fail");
    bytes
}

fn decode<T: Decode<()>>(kind: u8, bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_VALUE_BYTES {
        return Err(CodecError::TooLong(bytes.len()));
    }
    let (&[version, its_kind, low, high], body) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or(CodecError::Malformed)?;
    if version != WIRE_VERSION {
        return Err(CodecError::Version(version));
    }
    let scheme = u16::from_le_bytes([low, high]);
    if scheme != SCHEME {
        return Err(CodecError::Scheme(scheme));
    }
    if its_kind != kind {
        return Err(CodecError::Malformed);
    }
    let (value, used) = bincode::decode_from_slice(body, CONFIG).map_err(|_| CodecError::Malformed)?;
    if used != body.len() {
        return Err(CodecError::Malformed);
    }
    Ok(value)
}

fn to_wire(entry: &DeltaEntry) -> WireEntry {
    let mark = |mark: &Mark| WireMark { index: mark.index, hash: mark.hash.to_le_bytes() };
    WireEntry {
        replica: entry.replica.0.to_le_bytes(),
        count: quantise(entry.count),
        age_tokens: entry.age_tokens,
        marks: entry.marks.iter().map(mark).collect(),
    }
}

fn from_wire(wire: &WireEntry) -> Result<DeltaEntry, CodecError> {
    let mark = |mark: &WireMark| Mark { index: mark.index, hash: u64::from_le_bytes(mark.hash) };
    let entry = DeltaEntry {
        replica: replica(wire.replica),
        count: dequantise(wire.count),
        age_tokens: wire.age_tokens,
        marks: wire.marks.iter().map(mark).collect(),
    };
    if is_valid(&entry) { Ok(entry) } else { Err(CodecError::OutOfRange) }
}

fn replica(bytes: [u8; 4]) -> ReplicaId {
    ReplicaId(u32::from_le_bytes(bytes))
}

/// Bytes of bincode's varint.
const fn varint_len(value: u64) -> usize {
    match value {
        0..=250 => 1,
        251..=0xffff => 3,
        0x1_0000..=0xffff_ffff => 5,
        _ => 9,
    }
}

#[cfg(test)]
mod tests;
