//! No more than was asked for, of what another server answers or a client writes.

use bytes::{Bytes, BytesMut};

/// Why a body was not read to its end.
#[derive(Debug)]
pub enum ReadError {
    /// It is longer than the limit.
    TooLong,
    /// The connection broke, or its time was over.
    Broken(reqwest::Error),
}

/// The whole body of `answer`; never more than `limit` bytes of it are held.
pub async fn read(answer: &mut reqwest::Response, limit: usize) -> Result<Bytes, ReadError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(ReadError::Broken)? {
        if body.len() + chunk.len() > limit {
            return Err(ReadError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// The beginning of a text: at most `bytes` of it, cut at a character.
pub fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
