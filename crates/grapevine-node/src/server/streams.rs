//! Streams of HTTP/2 whose client takes nothing do not stay for ever.
//!
//! Such a client reads its connection, but opens no window for a stream. The stream's task then waits for a
//! window and never again asks the answer's body for more, so no limit of a relay can end it, and the
//! connection is never full. So each task notes how far its body was asked, and ends when what it was given
//! has waited for too long: that resets the stream, and only that.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::activity::InProgress;
use super::stall::Stall;

tokio::task_local! {
    /// Of the stream that a task serves.
    static PROGRESS: Arc<Progress>;
}

/// Runs the streams of HTTP/2 connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    /// How long a client may take nothing of an answer.
    pub(super) patience: Duration,
}

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(attend(stream, self.patience));
    }
}

/// How far an answer's body is. Even: it is asked for more. Odd: it has given what the client is to take.
#[derive(Debug, Default)]
struct Progress(AtomicU64);

impl Progress {
    fn asked(&self) {
        self.0.store(self.0.load(Relaxed).next_multiple_of(2), Relaxed);
    }

    fn given(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    /// What the client has not taken yet: a number that no other piece has.
    fn untaken(&self) -> Option<u64> {
        Some(self.0.load(Relaxed)).filter(|count| count % 2 == 1)
    }
}

/// Runs `stream` to its end, or until its client has taken nothing for `patience`.
async fn attend(stream: impl Future<Output = ()>, patience: Duration) {
    let progress = Arc::<Progress>::default();
    let mut stream = pin!(PROGRESS.scope(Arc::clone(&progress), stream));
    let (mut stall, mut waited_for) = (Stall::new(patience), None);
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let untaken = progress.untaken();
        if untaken.is_none() || std::mem::replace(&mut waited_for, untaken) != untaken {
            stall.over();
        }
        if untaken.is_some() { stall.poll(cx) } else { Poll::Pending }
    })
    .await;
}

/// An answer's body as a connection sends it.
pub(super) struct Answer {
    body: Body,
    /// In a stream's task only.
    progress: Option<Arc<Progress>>,
    _in_progress: InProgress,
}

impl Answer {
    pub(super) fn new(body: Body, in_progress: InProgress) -> Self {
        Self { body, progress: PROGRESS.try_with(Arc::clone).ok(), _in_progress: in_progress }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(progress) = &self.progress {
            progress.asked();
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let (Some(progress), Some(Ok(_))) = (&self.progress, &frame) {
            progress.given();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;
    use tokio::time::{Instant, sleep};

    use super::super::activity::Activity;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    /// An answer whose every piece comes `pause` after it was asked for.
    fn answer(pause: Duration) -> Answer {
        let pieces = stream::unfold((), move |()| async move {
            sleep(pause).await;
            Some((Ok::<_, std::io::Error>("piece"), ()))
        });
        let activity = Arc::new(Activity::new(LIMIT));
        Answer::new(Body::from_stream(pieces), activity.request(http::Version::HTTP_2))
    }

    /// Takes `pieces`, each after `pause`, and then no more.
    async fn take(mut answer: Answer, pieces: usize, pause: Duration) {
        for _ in 0..pieces {
            answer.frame().await.unwrap().unwrap();
            sleep(pause).await;
        }
        let _given = answer.frame().await;
        std::future::pending::<()>().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_slowly_is_waited_for_and_one_that_stops_is_not() {
        let began = Instant::now();
        let slow = LIMIT * 9 / 10;
        attend(async { take(answer(Duration::ZERO), 5, slow).await }, LIMIT).await;
        assert!(began.elapsed() >= slow * 5 + LIMIT);
        assert!(began.elapsed() < slow * 5 + LIMIT + LIMIT / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_is_silent_is_no_client_that_takes_nothing() {
        let began = Instant::now();
        attend(async { take(answer(LIMIT * 3), 4, Duration::ZERO).await }, LIMIT).await;
        assert!(began.elapsed() >= LIMIT * 16, "5 pieces, and then the limit");
    }
}
