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
use tokio::time::{Sleep, sleep};

/// Most bytes that are thrown away. Whoever sends more does not listen.
const MAX_BYTES: usize = 256 << 20;

/// Longest time for it.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Keeps `response` open until `upload` has ended.
pub(super) fn until_uploaded(response: Response, upload: Body) -> Response {
    if upload.is_end_stream() {
        return response;
    }
    let (mut parts, answer) = response.into_parts();
    // The connection must not be used again, and not end where the answer does.
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = Lingering { answer, upload, left: MAX_BYTES, limit: Box::pin(sleep(MAX_TIME)) };
    Response::from_parts(parts, Body::new(body))
}

struct Lingering {
    answer: Body,
    upload: Body,
    left: usize,
    limit: Pin<Box<Sleep>>,
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
            if this.limit.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            match Pin::new(&mut this.upload).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    let Some(left) = this.left.checked_sub(length) else { return Poll::Ready(None) };
                    this.left = left;
                }
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(None),
            }
        }
    }
}
