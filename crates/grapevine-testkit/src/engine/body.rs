//! The body of an answer: whole, or in pieces as they are made.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::fault::CutHow;
use super::gzip::Gzip;
use super::wire::WireControl;

/// What a live body's maker sends; the end of the channel is the end of the body.
pub(crate) enum Piece {
    Data(Bytes),
    /// Cut the connection when everything before has been written.
    Cut(CutHow),
}

pub(crate) enum EngineBody {
    Whole(Option<Bytes>),
    Live(Live),
}

/// A body that a task makes; the task ends when the body is dropped, as it is when the client leaves.
pub(crate) struct Live {
    pieces: mpsc::Receiver<Piece>,
    gzip: Option<Gzip>,
    cut: bool,
    wire: Arc<WireControl>,
    _maker: AbortOnDrop,
}

impl EngineBody {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

impl Live {
    pub(crate) fn new(
        pieces: mpsc::Receiver<Piece>,
        maker: JoinHandle<()>,
        gzip: bool,
        wire: Arc<WireControl>,
    ) -> Self {
        Self { pieces, gzip: gzip.then(Gzip::default), cut: false, wire, _maker: AbortOnDrop(maker) }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.cut {
            return Poll::Pending;
        }
        match self.pieces.poll_recv(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Piece::Data(data))) => Poll::Ready(Some(match &mut self.gzip {
                Some(gzip) => gzip.push(&data).into(),
                None => data,
            })),
            Poll::Ready(Some(Piece::Cut(how))) => {
                // Pending makes hyper flush; the connection's task then drops it.
                self.cut = true;
                self.wire.cut(how);
                Poll::Pending
            }
            Poll::Ready(None) => Poll::Ready(self.gzip.take().map(|mut gzip| gzip.finish().into())),
        }
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take()),
            Self::Live(live) => live.poll_piece(cx),
        };
        piece.map(|piece| piece.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Self::Live(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |b| b.len() as u64)),
            Self::Live(_) => SizeHint::default(),
        }
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
