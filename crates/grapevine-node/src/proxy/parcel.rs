//! A body on its way to an engine, which can be taken back.
//!
//! An engine that hangs reads nothing. When its request ends all the same, because the client left or a
//! limit passed, the HTTP client first wants to write what it has begun, and would keep the whole body, and
//! the connection, for as long as the engine hangs. So a body that is larger than the client's own buffer is
//! handed over in small copies, and the rest goes with the request.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::body::Upload;

/// Bodies up to this are handed over whole: the HTTP client takes 400 KiB of pieces before it writes the first,
/// so nothing of them could be taken back.
const WHOLE_BYTES: usize = 256 * 1_024;

/// Bytes of one copy: what the HTTP client takes too early is no more than it would buffer anyway.
const PIECE_BYTES: usize = 64 * 1_024;

/// Kept by the request. Dropping it takes back what is not sent.
#[derive(Debug)]
pub(super) struct Parcel(Arc<Contents>);

/// What is still to be sent; none when all is, or when it was taken back.
#[derive(Debug)]
struct Contents(Mutex<Option<Bytes>>);

/// The HTTP client's side.
#[derive(Debug)]
struct Sending {
    contents: Arc<Contents>,
    left: usize,
    trailers: Option<HeaderMap>,
}

/// `upload` as a body for the HTTP client. With a parcel it must be kept until the answer has ended.
pub(super) fn pack(upload: &Upload, may_hang: bool) -> (Option<reqwest::Body>, Option<Parcel>) {
    let Upload { data, trailers } = upload;
    if trailers.is_none() && (data.len() <= WHOLE_BYTES || !may_hang) {
        return ((!data.is_empty()).then(|| data.clone().into()), None);
    }
    let contents = Arc::new(Contents(Mutex::new(Some(data.clone()))));
    let sending = Sending { contents: Arc::clone(&contents), left: data.len(), trailers: trailers.clone() };
    (Some(reqwest::Body::wrap(sending)), Some(Parcel(contents)))
}

impl Contents {
    fn lock(&self) -> MutexGuard<'_, Option<Bytes>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece, copied so that it does not hold the whole.
    fn next_piece(&self) -> Option<Bytes> {
        let mut contents = self.lock();
        let rest = contents.as_mut()?;
        let piece = Bytes::copy_from_slice(&rest.split_to(rest.len().min(PIECE_BYTES)));
        if rest.is_empty() {
            *contents = None;
        }
        Some(piece)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

/// The request has ended before its body was sent.
#[derive(Debug, thiserror::Error)]
#[error("the request has ended")]
struct TakenBack;

impl Body for Sending {
    type Data = Bytes;
    type Error = TakenBack;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TakenBack>>> {
        if self.left == 0 {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        let Some(piece) = self.contents.next_piece() else { return Poll::Ready(Some(Err(TakenBack))) };
        self.left -= piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        // Trailers need a body of unknown length.
        if self.trailers.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.left as u64) }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    /// Memory that tells when it is given back.
    struct Told {
        bytes: Vec<u8>,
        _held: Arc<()>,
    }

    impl AsRef<[u8]> for Told {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    fn upload(length: usize) -> (Upload, Arc<()>) {
        let held = Arc::new(());
        let bytes = (0..length).map(|i| i as u8).collect();
        let data = Bytes::from_owner(Told { bytes, _held: Arc::clone(&held) });
        (Upload { data, trailers: None }, held)
    }

    #[tokio::test]
    async fn what_is_sent_is_what_came_and_its_length_is_known() {
        for length in [0, 1, WHOLE_BYTES, WHOLE_BYTES + 1, 1_000_000] {
            let (upload, _held) = upload(length);
            let (body, parcel) = pack(&upload, true);
            assert_eq!(parcel.is_some(), length > WHOLE_BYTES);
            let body = body.unwrap_or_default();
            assert_eq!(body.size_hint().exact(), Some(length as u64));
            assert_eq!(body.collect().await.unwrap().to_bytes(), upload.data);
        }
    }

    #[tokio::test]
    async fn what_is_not_sent_goes_with_the_request() {
        let (upload, held) = upload(1_000_000);
        let (body, parcel) = pack(&upload, true);
        drop(upload);
        let mut body = body.unwrap();
        let _stuck = body.frame().await.unwrap().unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        drop(parcel);
        assert_eq!(Arc::strong_count(&held), 1, "although the HTTP client holds body and piece");
        assert!(body.frame().await.unwrap().is_err(), "and does not take it for whole");
    }
}
