//! A client's connection, with the means to spoil it: cut it, reset it, or write byte by byte.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::fault::CutHow;

/// How a request reaches the connection it came on.
#[derive(Default)]
pub(crate) struct WireControl {
    trickle: AtomicBool,
    reset: AtomicBool,
    cut: Notify,
}

impl WireControl {
    /// From now on each write carries one byte.
    pub(crate) fn trickle(&self) {
        self.trickle.store(true, Ordering::Relaxed);
    }

    /// Ends the connection as soon as what was handed over has been written.
    pub(crate) fn cut(&self, how: CutHow) {
        self.reset.store(how == CutHow::Rst, Ordering::Relaxed);
        self.cut.notify_one();
    }

    /// Completes when the connection is to be dropped.
    pub(crate) async fn cut_requested(&self) {
        self.cut.notified().await;
    }
}

/// The stream that hyper reads and writes.
pub(crate) struct Wire {
    stream: TcpStream,
    control: std::sync::Arc<WireControl>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, control: std::sync::Arc<WireControl>) -> Self {
        Self { stream, control }
    }

    fn one_byte(&self) -> bool {
        self.control.trickle.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.control.reset.load(Ordering::Relaxed) {
            // Closing a socket that may not linger sends a reset.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let buf = if self.one_byte() { buf.get(..1).unwrap_or(buf) } else { buf };
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.one_byte() {
            let first = bufs.iter().find(|b| !b.is_empty()).map_or(&[][..], |b| b);
            return self.poll_write(cx, first);
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
