//! What a router tells a peer directly.

use grapevine_tree::RouterId;

use super::vitals::{WireVitals, vitals_from_wire, vitals_to_wire};
use super::{CONFIG, CodecError, Decode, Encode, KIND_WORD, MAX_VALUE_BYTES, Vitals, decode, encode};

/// Longest word that is decoded, in bytes: vitals, a value of the ring, and whose they are.
pub const MAX_WORD_BYTES: usize = 2 * MAX_VALUE_BYTES + 24;

/// What a router tells a peer directly: its load, what is new of it, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Who says it.
    pub origin: RouterId,
    /// Number of its newest segment, of the generation of its vitals: whoever has not got that knows so at once.
    pub head: u64,
    /// What it says of itself.
    pub vitals: Option<Vitals>,
    /// What it put into its ring, a [`super::Segment`] or a [`super::Pointer`], still to be decoded.
    pub news: Option<Vec<u8>>,
}

#[derive(Encode, Decode)]
struct WireWord {
    origin: [u8; 4],
    head: u64,
    vitals: Option<WireVitals>,
    news: Option<Vec<u8>>,
}

/// The bytes of a word.
pub fn encode_word(word: &Word) -> Vec<u8> {
    let vitals = word.vitals.as_ref().map(vitals_to_wire);
    let (origin, head, news) = (word.origin.0.to_le_bytes(), word.head, word.news.clone());
    encode(KIND_WORD, WireWord { origin, head, vitals, news })
}

/// A word from its bytes.
pub fn decode_word(bytes: &[u8]) -> Result<Word, CodecError> {
    let WireWord { origin, head, vitals, news } = decode(KIND_WORD, bytes, MAX_WORD_BYTES, CONFIG)?;
    let vitals = vitals.map(vitals_from_wire).transpose()?;
    Ok(Word { origin: RouterId(u32::from_le_bytes(origin)), head, vitals, news })
}
