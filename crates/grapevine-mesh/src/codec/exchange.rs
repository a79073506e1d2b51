//! What routers ask each other directly.

use grapevine_tree::RouterId;

use super::{
    CodecError, Decode, EXCHANGE_CONFIG, Encode, KIND_ASK, KIND_SEGMENTS, MAX_EXCHANGE_BYTES, decode, encode,
};

/// Ranges in one question, at most.
pub const MAX_RANGES: usize = 32;

/// Longest question, in bytes: 32 ranges of two varints and some numbers.
const MAX_ASK_BYTES: usize = 1_024;

/// A question to the router called `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Segments of an origin, yours or another's.
    Segments {
        /// Who is asked: an answer of anyone else is refused.
        to: RouterId,
        /// Whose segments.
        origin: RouterId,
        /// Of which of its generations.
        generation: u64,
        /// First and last number of each range.
        wanted: Vec<(u64, u64)>,
    },
    /// How a snapshot begins: a [`super::SnapshotHead`].
    Head {
        /// As above.
        to: RouterId,
    },
    /// A page of a snapshot.
    Page {
        /// As above.
        to: RouterId,
        /// Where it begins; 0 at first.
        cursor: u64,
    },
}

/// Answers [`Ask::Segments`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Encoded segments, as their origin made them.
    pub segments: Vec<Vec<u8>>,
    /// There are more than fit. Otherwise what was wanted and is not here is gone.
    pub more: bool,
}

#[derive(Encode, Decode)]
enum WireAsk {
    Segments { to: [u8; 4], origin: [u8; 4], generation: u64, wanted: Vec<(u64, u64)> },
    Head { to: [u8; 4] },
    Page { to: [u8; 4], cursor: u64 },
}

#[derive(Encode, Decode)]
struct WireSegments {
    segments: Vec<Vec<u8>>,
    more: bool,
}

impl Ask {
    /// Who is asked.
    pub fn to(&self) -> RouterId {
        match *self {
            Self::Segments { to, .. } | Self::Head { to } | Self::Page { to, .. } => to,
        }
    }
}

/// The bytes of a question; ranges beyond [`MAX_RANGES`] are left out.
pub fn encode_ask(ask: &Ask) -> Vec<u8> {
    let bytes = |id: &RouterId| id.0.to_le_bytes();
    let wire = match ask {
        Ask::Segments { to, origin, generation, wanted } => WireAsk::Segments {
            to: bytes(to),
            origin: bytes(origin),
            generation: *generation,
            wanted: wanted.iter().take(MAX_RANGES).copied().collect(),
        },
        Ask::Head { to } => WireAsk::Head { to: bytes(to) },
        Ask::Page { to, cursor } => WireAsk::Page { to: bytes(to), cursor: *cursor },
    };
    encode(KIND_ASK, wire)
}

/// A question from its bytes.
pub fn decode_ask(bytes: &[u8]) -> Result<Ask, CodecError> {
    let id = |bytes| RouterId(u32::from_le_bytes(bytes));
    let ask = match decode(KIND_ASK, bytes, MAX_ASK_BYTES, EXCHANGE_CONFIG)? {
        WireAsk::Segments { to, origin, generation, wanted } => {
            Ask::Segments { to: id(to), origin: id(origin), generation, wanted }
        }
        WireAsk::Head { to } => Ask::Head { to: id(to) },
        WireAsk::Page { to, cursor } => Ask::Page { to: id(to), cursor },
    };
    match &ask {
        Ask::Segments { wanted, .. } if wanted.len() > MAX_RANGES => Err(CodecError::OutOfRange),
        Ask::Segments { wanted, .. } if wanted.iter().any(|(first, last)| first > last) => {
            Err(CodecError::OutOfRange)
        }
        _ => Ok(ask),
    }
}

/// The bytes of an answer.
pub fn encode_segments(answer: &Segments) -> Vec<u8> {
    encode(KIND_SEGMENTS, WireSegments { segments: answer.segments.clone(), more: answer.more })
}

/// An answer from its bytes.
pub fn decode_segments(bytes: &[u8]) -> Result<Segments, CodecError> {
    let WireSegments { segments, more } = decode(KIND_SEGMENTS, bytes, MAX_EXCHANGE_BYTES, EXCHANGE_CONFIG)?;
    Ok(Segments { segments, more })
}
