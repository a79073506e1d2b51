//! Reading what another server answers, and no more of it than was asked for.

use bytes::{Bytes, BytesMut};

/// Why a body was not read to its end.
#[derive(Debug)]
pub(crate) enum ReadError {
    /// It is longer than the limit.
    TooLong,
    /// The connection broke, or its time was over.
    Broken(reqwest::Error),
}

/// The whole body of `answer`; never more than `limit` bytes of it are held.
pub(crate) async fn read(answer: &mut reqwest::Response, limit: usize) -> Result<Bytes, ReadError> {
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(ReadError::Broken)? {
        if body.len() + chunk.len() > limit {
            return Err(ReadError::TooLong);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}
