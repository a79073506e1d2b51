//! The bytes of what one router publishes and what it is asked. The only file that knows bincode.
//!
//! Every value starts with four plain bytes that any version can read: wire version, kind, and the
//! hash scheme (u16, little endian). What follows is bincode 2 (`standard`: little endian, varints)
//! of one body: a [`Segment`] or a [`Pointer`] to one, [`Vitals`], [`Seen`], a [`Word`], or a message of the
//! exchange ([`Ask`], [`SnapshotHead`], [`encode_page`]). A decoder checks everything it hands out: input length, memory
//! claimed, trailing bytes, boundaries in range and ascending. So a peer of another version is told
//! apart and counted, and a damaged or hostile value costs an error.
//!
//! Prefix counts travel as one byte on a log scale ([`quantise`]): zero, negative, infinite and NaN
//! counts cannot be expressed. A boundary is 8 bytes: its hash, with the index in the low byte, which
//! is no part of a hash.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::{Decode, Encode};
use grapevine_tree::boundary::{MAX_BOUNDARIES, SCHEME};
use grapevine_tree::delta::MAX_MARKS;
use grapevine_tree::{DeltaEntry, Mark, ReplicaId};

mod exchange;
mod snapshot;
mod vitals;
mod word;

pub use exchange::{Ask, MAX_RANGES, Segments, decode_ask, decode_segments, encode_ask, encode_segments};
pub use snapshot::{SnapshotHead, decode_head, decode_page, encode_head, encode_page};
pub use vitals::{
    MAX_SEEN, Seen, SeenOrigin, Vitals, decode_seen, decode_vitals, encode_seen, encode_vitals,
};
pub use word::{MAX_WORD_BYTES, Word, decode_word, encode_word};

/// Version of the layout below. Another number means another layout: never guess.
pub const WIRE_VERSION: u8 = 1;

/// Longest value that is read from chitchat, in bytes. A publisher stays below it ([`crate::carrier`]).
pub const MAX_VALUE_BYTES: usize = 16 * 1024;

/// Longest segment that is decoded, in bytes: one that a [`Pointer`] stands for.
pub const MAX_SEGMENT_BYTES: usize = 65 * 1024;

/// Longest message of the exchange that is decoded, in bytes.
pub const MAX_EXCHANGE_BYTES: usize = 600 * 1024;

/// Longest head of a snapshot that is decoded, in bytes: 800 replicas with all the dates they can have.
pub const MAX_HEAD_BYTES: usize = 4 << 20;

/// Memory that decoding a segment may claim, in bytes. The densest honest one claims 3.5 times its length.
const MAX_CLAIM_BYTES: usize = 256 * 1024;

/// Memory that decoding a message of the exchange may claim, in bytes: four times the longest one.
const MAX_EXCHANGE_CLAIM_BYTES: usize = 4 * MAX_HEAD_BYTES;

/// Version, kind, scheme.
const HEADER_BYTES: usize = 4;

const KIND_SEGMENT: u8 = 0;
const KIND_VITALS: u8 = 1;
const KIND_POINTER: u8 = 2;
const KIND_SEEN: u8 = 3;
const KIND_ASK: u8 = 4;
const KIND_SEGMENTS: u8 = 5;
const KIND_HEAD: u8 = 6;
const KIND_PAGE: u8 = 7;
// 8 and 9 were load and news, each in a message of its own.
const KIND_WORD: u8 = 10;

/// Steps of the count scale per doubling: neighbours differ by 9 %, so rounding costs at most 4.5 %.
const COUNT_STEPS: f32 = 8.0;

/// Exponent of the smallest count, 2^-8. The largest is 2^(255/8 - 8), about 15 million.
const COUNT_MIN_EXPONENT: f32 = -8.0;

type Bounded<const BYTES: usize> = Configuration<LittleEndian, Varint, Limit<BYTES>>;

const CONFIG: Bounded<MAX_CLAIM_BYTES> = bincode::config::standard().with_limit::<MAX_CLAIM_BYTES>();

const EXCHANGE_CONFIG: Bounded<MAX_EXCHANGE_CLAIM_BYTES> =
    bincode::config::standard().with_limit::<MAX_EXCHANGE_CLAIM_BYTES>();

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

/// Stands in the ring for a segment that is to be asked for: too long for gossip, or gossip is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// As in the segment.
    pub generation: u64,
    /// As in the segment.
    pub seq: u64,
    /// As in the segment.
    pub sent_ms: u64,
    /// Bytes of the segment.
    pub len: u32,
}

/// Why a value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than values of its kind may be.
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
    epoch: u32,
    marks: Vec<WireMark>,
}

/// Hash and index, as bytes: a varint would take nine for a random number.
type WireMark = [u8; 8];

#[derive(Encode, Decode)]
struct WirePointer {
    generation: u64,
    seq: u64,
    sent_ms: u64,
    len: u32,
}

/// Bytes of a segment without entries, at most: header and four varints.
pub const SEGMENT_OVERHEAD: usize = HEADER_BYTES + 9 + 9 + 9 + 3;

/// Bytes that `entry` takes in a segment.
pub fn entry_len(entry: &DeltaEntry) -> usize {
    4 + 1 + varint_len(u64::from(entry.epoch)) + 1 + 8 * entry.marks.len()
}

/// Whether `entry` can be told: [`decode_segment`] takes exactly these.
pub fn is_valid(entry: &DeltaEntry) -> bool {
    let sized = (1..=MAX_MARKS).contains(&entry.marks.len());
    are_valid(&entry.marks) && sized && entry.count.is_finite() && entry.count > 0.0
}

/// The bytes of a segment. Entries that are not [`is_valid`] are the caller's mistake and left out.
pub fn encode_segment(segment: &Segment) -> Vec<u8> {
    let entries = segment.entries.iter().filter(|entry| is_valid(entry)).map(to_wire).collect();
    let (generation, seq, sent_ms) = (segment.generation, segment.seq, segment.sent_ms);
    encode(KIND_SEGMENT, WireSegment { generation, seq, sent_ms, entries })
}

/// A segment from its bytes.
pub fn decode_segment(bytes: &[u8]) -> Result<Segment, CodecError> {
    let wire: WireSegment = decode(KIND_SEGMENT, bytes, MAX_SEGMENT_BYTES, CONFIG)?;
    let entries = wire.entries.iter().map(from_wire).collect::<Result<_, _>>()?;
    Ok(Segment { generation: wire.generation, seq: wire.seq, sent_ms: wire.sent_ms, entries })
}

/// Generation and number of a segment, without looking at what it says.
pub fn number_of(bytes: &[u8]) -> Option<(u64, u64)> {
    let body = body_of(KIND_SEGMENT, bytes).ok()?;
    bincode::decode_from_slice(body, CONFIG).ok().map(|(numbers, _)| numbers)
}

/// The bytes of a pointer.
pub fn encode_pointer(pointer: &Pointer) -> Vec<u8> {
    let Pointer { generation, seq, sent_ms, len } = *pointer;
    encode(KIND_POINTER, WirePointer { generation, seq, sent_ms, len })
}

/// A pointer from its bytes.
pub fn decode_pointer(bytes: &[u8]) -> Result<Pointer, CodecError> {
    let WirePointer { generation, seq, sent_ms, len } = decode(KIND_POINTER, bytes, MAX_VALUE_BYTES, CONFIG)?;
    Ok(Pointer { generation, seq, sent_ms, len })
}

/// Whether these are the bytes of a pointer, going by their header.
pub fn is_pointer(bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&KIND_POINTER)
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

fn decode<T: Decode<()>, const CLAIM: usize>(
    kind: u8,
    bytes: &[u8],
    longest: usize,
    config: Bounded<CLAIM>,
) -> Result<T, CodecError> {
    if bytes.len() > longest {
        return Err(CodecError::TooLong(bytes.len()));
    }
    let body = body_of(kind, bytes)?;
    let (value, used) = bincode::decode_from_slice(body, config).map_err(|_| CodecError::Malformed)?;
    if used != body.len() {
        return Err(CodecError::Malformed);
    }
    Ok(value)
}

/// What follows the header, if that is of this version, kind and scheme.
fn body_of(kind: u8, bytes: &[u8]) -> Result<&[u8], CodecError> {
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
    Ok(body)
}

fn to_wire(entry: &DeltaEntry) -> WireEntry {
    WireEntry {
        replica: entry.replica.0.to_le_bytes(),
        count: quantise(entry.count),
        epoch: entry.epoch,
        marks: entry.marks.iter().map(pack).collect(),
    }
}

fn from_wire(wire: &WireEntry) -> Result<DeltaEntry, CodecError> {
    let entry = DeltaEntry {
        replica: replica(wire.replica),
        count: dequantise(wire.count),
        epoch: wire.epoch,
        marks: wire.marks.iter().map(unpack).collect(),
    };
    if is_valid(&entry) { Ok(entry) } else { Err(CodecError::OutOfRange) }
}

fn pack(mark: &Mark) -> WireMark {
    (mark.hash & !0xff | u64::from(mark.index)).to_le_bytes()
}

fn unpack(wire: &WireMark) -> Mark {
    let [index, ..] = *wire;
    Mark { index, hash: u64::from_le_bytes(*wire) & !0xff }
}

/// Whether these marks can lie on one path.
fn are_valid(marks: &[Mark]) -> bool {
    let ascending = marks.windows(2).all(|pair| matches!(pair, [a, b] if a.index < b.index));
    let in_range = |mark: &Mark| usize::from(mark.index) < MAX_BOUNDARIES && mark.hash & 0xff == 0;
    ascending && marks.iter().all(in_range)
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
