//! What a router put into its ring, as it is told straight to a peer.

use grapevine_tree::RouterId;

use super::{CONFIG, CodecError, Decode, Encode, KIND_NEWS, MAX_VALUE_BYTES, decode, encode};

/// Longest news that is decoded, in bytes: a value of the ring, and whose it is.
const MAX_NEWS_BYTES: usize = MAX_VALUE_BYTES + 16;

#[derive(Encode, Decode)]
struct WireNews {
    origin: [u8; 4],
    value: Vec<u8>,
}

/// The bytes of news of `origin`: of a segment or a pointer, as it stands in its ring.
pub fn encode_news(origin: RouterId, value: &[u8]) -> Vec<u8> {
    encode(KIND_NEWS, WireNews { origin: origin.0.to_le_bytes(), value: value.to_vec() })
}

/// Whose news these are, and the value, which is still to be decoded.
pub fn decode_news(bytes: &[u8]) -> Result<(RouterId, Vec<u8>), CodecError> {
    let WireNews { origin, value } = decode(KIND_NEWS, bytes, MAX_NEWS_BYTES, CONFIG)?;
    Ok((RouterId(u32::from_le_bytes(origin)), value))
}

/// Whether these are the bytes of news, going by their header.
pub fn is_news(bytes: &[u8]) -> bool {
    bytes.get(1) == Some(&KIND_NEWS)
}
