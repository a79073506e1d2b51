//! Reading a request's body: once, whole, bounded.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use http_body_util::BodyExt;

use crate::error::RouterError;

/// Most bytes reserved on the word of a Content-Length alone.
const RESERVE_BYTES: usize = 1 << 20;

/// Whether the announced length is already too much. Nothing has been read then, so a client that
/// waits for `100 Continue` does not get one.
pub(super) fn announces_too_much(body: &Body, limit: usize) -> bool {
    body.size_hint().lower() > limit as u64
}

/// The whole body. One that arrives in one piece is not copied.
pub(super) async fn read(body: &mut Body, limit: usize) -> Result<Bytes, RouterError> {
    let announced = body.size_hint().lower();
    let first = next_data(body).await?.unwrap_or_default();
    if first.len() as u64 >= announced && body.is_end_stream() {
        return if first.len() > limit { Err(RouterError::BodyTooLarge) } else { Ok(first) };
    }
    let mut whole =
        BytesMut::with_capacity((announced as usize).clamp(first.len(), RESERVE_BYTES.max(first.len())));
    let mut next = Some(first);
    while let Some(chunk) = next {
        if whole.len() + chunk.len() > limit {
            return Err(RouterError::BodyTooLarge);
        }
        whole.extend_from_slice(&chunk);
        next = next_data(body).await?;
    }
    Ok(whole.freeze())
}

/// The next piece of data; trailers are passed over.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>, RouterError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| RouterError::BodyBroken)?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn chunked(chunks: &[&'static str]) -> Body {
        let chunks: Vec<Result<&'static str, std::io::Error>> = chunks.iter().map(|c| Ok(*c)).collect();
        Body::from_stream(stream::iter(chunks))
    }

    #[tokio::test]
    async fn a31_the_limit_holds_with_and_without_a_length() {
        assert!(announces_too_much(&Body::from("12345"), 4));
        assert!(!announces_too_much(&Body::from("1234"), 4));
        assert_eq!(read(&mut chunked(&["12", "34"]), 4).await.unwrap(), "1234");
        assert_eq!(read(&mut chunked(&["12", "345"]), 4).await, Err(RouterError::BodyTooLarge));
        assert_eq!(read(&mut chunked(&["12345"]), 4).await, Err(RouterError::BodyTooLarge));
        assert_eq!(read(&mut Body::empty(), 4).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a33_a_body_in_one_piece_is_not_copied() {
        let sent = Bytes::from(vec![b'x'; 1 << 20]);
        let read = read(&mut Body::from(sent.clone()), 1 << 20).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }
}
