//! A connection whose client takes nothing of its answer does not stay for ever.
//!
//! While the client's buffers are full nobody polls the answer's body, so no limit of a relay can end it:
//! the engine would keep its cache blocks, and this router its place and two sockets, as long as the
//! client likes. (A client of HTTP/2 can do the same with an empty connection: [`super::streams`].)

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use super::stall::Stall;

/// A stream of bytes whose writes fail when none was taken for a limit.
pub(super) struct Patient<S> {
    inner: S,
    stall: Stall,
    activity: Arc<Activity>,
}

impl<S> Patient<S> {
    /// Tells `activity` of what is read.
    pub(super) fn new(inner: S, limit: Duration, activity: Arc<Activity>) -> Self {
        Self { inner, stall: Stall::new(limit), activity }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stall.over();
            return written;
        }
        self.stall.poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        if buffer.filled().len() > before {
            self.activity.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bytes);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_slow_is_waited_for_and_one_that_stops_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = Patient::new(near, LIMIT, Arc::new(Activity::new(LIMIT)));
        let slow = tokio::spawn(async move {
            let mut taken = [0; 16];
            for _ in 0..5 {
                tokio::time::sleep(LIMIT * 9 / 10).await;
                far.read_exact(&mut taken).await.unwrap();
            }
            far
        });
        near.write_all(&[0; 5 * 16]).await.unwrap();
        let began = Instant::now();
        let error = near.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() >= LIMIT);
        drop(slow);
    }
}
