//! The timer of idle connections.
//!
//! A process that was stopped, or had no CPU, may find its timers due before it has looked at its sockets.
//! Real servers look first: a request that came in time is read, and not thrown away with its connection.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use tokio::time::{sleep, sleep_until};

/// Time for one more look at the sockets.
const LOOK: Duration = Duration::from_millis(2);

/// Is due a look later than it was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleTimer;

struct IdleSleep(Pin<Box<dyn Future<Output = ()> + Send + Sync>>);

impl Timer for IdleTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(IdleSleep(Box::pin(async move {
            sleep_until(deadline.into()).await;
            sleep(LOOK).await;
        })))
    }
}

impl Sleep for IdleSleep {}

impl Future for IdleSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(cx)
    }
}
