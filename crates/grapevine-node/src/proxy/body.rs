//! Reading a request's body: once, whole, bounded in size and in how long its client may be silent.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body as _;
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use crate::error::RouterError;

/// Most bytes reserved on the word of a Content-Length alone. Whoever has sent so much is believed the rest: growing
/// step by step would copy a large body several times, and hold what it was copied from as well.
const RESERVE_BYTES: usize = 1 << 20;

/// Least bytes a second that a body must come with, on average and after [`GRACE`]. A request has a place while
/// its body comes: one byte now and then must not keep it. Any modem is faster.
const LEAST_RATE: u32 = 1_024;

/// What any body may take, or the patience with its client if that is longer.
const GRACE: Duration = Duration::from_secs(60);

/// What a client has sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Upload {
    pub(super) data: Bytes,
    /// Fields that came after it, if any did.
    pub(super) trailers: Option<HeaderMap>,
}

/// Whether the announced length is already too much. Nothing has been read then, so a client that
/// waits for `100 Continue` does not get one.
pub(super) fn announces_too_much(body: &Body, limit: usize) -> bool {
    body.size_hint().lower() > limit as u64
}

/// The whole body. One that arrives in one piece is not copied. Between two pieces the client may take
/// as long as `patience`; all of them may take [`GRACE`] and a second for each KiB.
pub(super) async fn read(body: &mut Body, limit: usize, patience: Duration) -> Result<Upload, RouterError> {
    let announced = body.size_hint().lower();
    let mut pieces = Pieces { body, patience, most: Instant::now() + patience.max(GRACE), trailers: None };
    let Some(first) = pieces.next().await? else {
        return Ok(Upload { data: Bytes::new(), trailers: pieces.trailers });
    };
    if first.len() > limit {
        return Err(RouterError::BodyTooLarge);
    }
    if first.len() as u64 >= announced && pieces.body.is_end_stream() {
        return Ok(Upload { data: first, trailers: None });
    }
    let mut whole =
        BytesMut::with_capacity((announced as usize).clamp(first.len(), RESERVE_BYTES.max(first.len())));
    whole.extend_from_slice(&first);
    while let Some(piece) = pieces.next().await? {
        if whole.len() + piece.len() > limit {
            return Err(RouterError::BodyTooLarge);
        }
        if whole.capacity() - whole.len() < piece.len() {
            whole.reserve(piece.len().max((announced as usize).saturating_sub(whole.len())));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(Upload { data: whole.freeze(), trailers: pieces.trailers })
}

struct Pieces<'a> {
    body: &'a mut Body,
    patience: Duration,
    /// By when the rest must be here, if no more came.
    most: Instant,
    trailers: Option<HeaderMap>,
}

impl Pieces<'_> {
    /// The next piece of data. Trailers are kept; a piece of nothing is none.
    async fn next(&mut self) -> Result<Option<Bytes>, RouterError> {
        let by = self.most.min(Instant::now() + self.patience);
        loop {
            let frame = timeout_at(by, self.body.frame()).await.map_err(|_| RouterError::BodyTimeout)?;
            let Some(frame) = frame.transpose().map_err(|_| RouterError::BodyBroken)? else {
                return Ok(None);
            };
            match frame.into_data() {
                Ok(data) if data.is_empty() => {}
                Ok(data) => {
                    self.most += Duration::from_secs(data.len() as u64) / LEAST_RATE;
                    return Ok(Some(data));
                }
                Err(other) => self.trailers = other.into_trailers().ok(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};
    use http::HeaderValue;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn chunked(chunks: &[&'static str]) -> Body {
        let chunks: Vec<Result<&'static str, std::io::Error>> = chunks.iter().map(|c| Ok(*c)).collect();
        Body::from_stream(stream::iter(chunks))
    }

    async fn data(mut body: Body, limit: usize) -> Result<Bytes, RouterError> {
        read(&mut body, limit, PATIENCE).await.map(|upload| upload.data)
    }

    #[tokio::test]
    async fn a31_the_limit_holds_with_and_without_a_length() {
        assert!(announces_too_much(&Body::from("12345"), 4));
        assert!(!announces_too_much(&Body::from("1234"), 4));
        assert_eq!(data(chunked(&["12", "34"]), 4).await.unwrap(), "1234");
        assert_eq!(data(chunked(&["12", "345"]), 4).await, Err(RouterError::BodyTooLarge));
        assert_eq!(data(chunked(&["12345"]), 4).await, Err(RouterError::BodyTooLarge));
        assert_eq!(data(Body::empty(), 4).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a33_a_body_in_one_piece_is_not_copied() {
        let sent = Bytes::from(vec![b'x'; 1 << 20]);
        let read = data(Body::from(sent.clone()), 1 << 20).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test]
    async fn trailers_are_kept_also_of_an_empty_body() {
        let fields = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("1"))]);
        for pieces in [&["a", "b"][..], &["ab"], &[]] {
            let data = pieces.iter().map(|piece| Frame::data(Bytes::from(*piece)));
            let frames = data.chain([Frame::trailers(fields.clone())]).map(Ok::<_, std::io::Error>);
            let mut body = Body::new(StreamBody::new(stream::iter(frames.collect::<Vec<_>>())));
            let upload = read(&mut body, 9, PATIENCE).await.unwrap();
            assert_eq!((upload.data, upload.trailers), (pieces.concat().into(), Some(fields.clone())));
        }
    }

    #[tokio::test]
    async fn a_body_that_has_ended_is_not_asked_for_more() {
        for pieces in [&[][..], &[""], &["", "a"], &["a", ""]] {
            let iter = pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece));
            // Unlike others, it does not take being asked again.
            let once = stream::unfold(iter, |mut iter| async move { Some((iter.next()?, iter)) });
            assert_eq!(data(Body::from_stream(once), 9).await.unwrap(), pieces.concat());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_sending_is_given_up() {
        let stalled = stream::iter([Ok::<_, std::io::Error>("half")]).chain(stream::pending());
        let mut body = Body::from_stream(stalled);
        assert_eq!(read(&mut body, 9, PATIENCE).await, Err(RouterError::BodyTimeout));
    }

    /// A body of `count` pieces, one in `pause`.
    fn drip(piece: &'static str, count: usize, pause: Duration) -> Body {
        let pieces = stream::iter(0..count).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, std::io::Error>(piece)
        });
        Body::from_stream(pieces)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_only_sends_enough_not_to_be_silent_is_given_up() {
        assert_eq!(data(drip("x", 100, PATIENCE / 2), 1_000).await, Err(RouterError::BodyTimeout));
        assert_eq!(data(drip("", 100, PATIENCE / 2), 1_000).await, Err(RouterError::BodyTimeout));
        let kilobyte = Box::leak("x".repeat(1_024).into_boxed_str());
        let slow = drip(kilobyte, 100, Duration::from_millis(1_580));
        assert_eq!(data(slow, 1 << 20).await.map(|body| body.len()), Ok(102_400), "as slow as may be");
    }
}
