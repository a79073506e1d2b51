//! Answering a client that is still uploading.
//!
//! A connection that is closed with unread data is reset, and the reset overtakes the answer: the
//! client would see a broken connection instead of a 413. So the answer goes out at once, and what
//! is still coming is read and thrown away for a while before the connection ends. (HTTP/2 ends the
//! answer, and then the stream by a reset that is no error.)

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header;
use http_body::{Body as _, Frame};
use tokio::time::{Instant, Sleep, sleep};

/// Most bytes that are thrown away. Whoever sends more does not listen.
const MAX_BYTES: usize = 256 << 20;

/// Longest time for it.
const MAX_TIME: Duration = Duration::from_secs(10);

/// A client that sends nothing for so long has seen the answer, and waits for its end: curl does.
const SILENCE: Duration = Duration::from_secs(1);

/// Keeps `response` open until `upload` has ended.
pub(super) fn until_uploaded(response: Response, upload: Body) -> Response {
    if upload.is_end_stream() {
        return response;
    }
    let (mut parts, answer) = response.into_parts();
    // The connection must not be used again, and not end where the answer does.
    parts.headers.remove(header::CONTENT_LENGTH);
    let (limit, silence) = (Box::pin(sleep(MAX_TIME)), Box::pin(sleep(SILENCE)));
    let body = Lingering { answer, upload, left: MAX_BYTES, limit, silence };
    Response::from_parts(parts, Body::new(body))
}

struct Lingering {
    answer: Body,
    upload: Body,
    left: usize,
    limit: Pin<Box<Sleep>>,
    silence: Pin<Box<Sleep>>,
}

impl http_body::Body for Lingering {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        if let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut this.answer).poll_frame(cx) {
            return Poll::Ready(Some(Ok(frame)));
        }
        loop {
            if this.limit.as_mut().poll(cx).is_ready() || this.silence.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.upload).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    let Some(left) = this.left.checked_sub(length) else { return Poll::Ready(None) };
                    this.left = left;
                    this.silence.as_mut().reset(Instant::now() + SILENCE);
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    /// What the client gets, and how long it waits for the end of it.
    async fn answered(upload: Body) -> (Bytes, Duration) {
        let began = Instant::now();
        let answer = until_uploaded(Response::new(Body::from("too large")), upload);
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        (text, began.elapsed())
    }

    /// A piece after each pause.
    fn pieces(pause: Duration) -> Body {
        Body::from_stream(stream::unfold((), move |()| async move {
            sleep(pause).await;
            Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), ()))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_sending_gets_the_end_of_its_answer_soon() {
        let (text, waited) =
            answered(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>())).await;
        assert_eq!((&text[..], waited.as_secs()), (&b"too large"[..], SILENCE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_goes_on_is_listened_to_for_a_while() {
        let (_, waited) = answered(pieces(SILENCE / 2)).await;
        assert_eq!(waited.as_secs(), MAX_TIME.as_secs());
    }
}
