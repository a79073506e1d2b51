//! Connections that do nothing, and those that never finish to say what they want.
//!
//! Every connection takes a descriptor, and there are only so many: one that has no request in progress ends
//! after a while. HTTP/1's library knows such a limit, HTTP/2's none, and neither has one for who has not said
//! yet which of them it speaks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Version;
use tokio::time::{Instant, sleep_until};

/// How long a connection may have no request in progress. Longer than what load balancers in front keep idle
/// connections (600 s): they must close first.
const IDLE_LIMIT: Duration = Duration::from_secs(620);

/// How long a connection has no request before it is closed while the server closes. A client that has just
/// been answered may be about to ask again: what it sends to a connection that closes at that moment is lost. If
/// it does ask, it is answered and told to come back elsewhere.
const SETTLED: Duration = Duration::from_secs(1);

/// How often a connection with a request is looked at then.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What happens on one connection.
pub(super) struct Activity {
    /// From the first byte of a request's head to its last.
    head_limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// Requests whose head was read and whose answer has not ended.
    requests: usize,
    /// Since when there are none.
    idle_since: Instant,
    /// When the first byte came since then.
    heard: Option<Instant>,
    /// Bytes between requests are not the beginning of one: pings, windows.
    frames: bool,
}

/// A request in progress, until it is dropped.
pub(super) struct InProgress(Arc<Activity>);

impl Activity {
    pub(super) fn new(head_limit: Duration) -> Self {
        let state = State { requests: 0, idle_since: Instant::now(), heard: None, frames: false };
        Self { head_limit, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes came.
    pub(super) fn heard(&self) {
        let mut state = self.state();
        if state.requests == 0 && !state.frames && state.heard.is_none() {
            state.heard = Some(Instant::now());
        }
    }

    /// What came so far was no part of a request.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        (state.heard, state.idle_since) = (None, Instant::now());
    }

    /// A request's head is here.
    pub(super) fn request(self: &Arc<Self>, version: Version) -> InProgress {
        let mut state = self.state();
        state.requests += 1;
        state.heard = None;
        state.frames = version == Version::HTTP_2;
        InProgress(Arc::clone(self))
    }

    /// Completes when the connection has been without a request for a moment. At once for HTTP/2, which says
    /// which requests it still takes.
    pub(super) async fn settled(&self) {
        while let Some(due) = self.settles_by() {
            sleep_until(due).await;
        }
    }

    /// When to look again whether it has settled; none once it has.
    fn settles_by(&self) -> Option<Instant> {
        let (state, now) = (self.state(), Instant::now());
        let asked = state.requests > 0 || state.heard.is_some();
        let due = if asked { now + LOOK_EVERY } else { state.idle_since + SETTLED };
        (!state.frames && due > now).then_some(due)
    }

    /// When the connection is to end if nothing happens; none while a request is in progress.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        if state.requests > 0 {
            return None;
        }
        let idle = state.idle_since + IDLE_LIMIT;
        Some(state.heard.map_or(idle, |heard| idle.min(heard + self.head_limit)))
    }

    /// Completes when the connection has been without a request for too long. Looks now and then instead of
    /// being told, so that a request costs no timer.
    pub(super) async fn expired(&self) {
        loop {
            let now = Instant::now();
            let deadline = self.deadline();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return;
            }
            let next = now + self.head_limit.min(IDLE_LIMIT);
            sleep_until(deadline.map_or(next, |deadline| next.min(deadline))).await;
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.requests -= 1;
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, timeout};

    use super::*;

    const HEAD: Duration = Duration::from_secs(60);

    async fn expires_within(activity: &Activity, limit: Duration) -> bool {
        timeout(limit, activity.expired()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_less_time_than_a_connection_that_says_nothing() {
        let silent = Activity::new(HEAD);
        assert!(!expires_within(&silent, IDLE_LIMIT - HEAD).await);
        assert!(expires_within(&silent, HEAD * 2).await);
        let dripping = Activity::new(HEAD);
        dripping.heard();
        for _ in 0..5 {
            sleep(HEAD / 6).await;
            dripping.heard();
        }
        assert!(expires_within(&dripping, HEAD).await, "counted from its first byte");
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_is_too_long_and_after_it_time_begins_anew() {
        let activity = Arc::new(Activity::new(HEAD));
        activity.heard();
        let (one, other) = (activity.request(Version::HTTP_11), activity.request(Version::HTTP_11));
        assert!(!expires_within(&activity, IDLE_LIMIT * 3).await);
        drop(one);
        assert!(!expires_within(&activity, IDLE_LIMIT * 3).await);
        drop(other);
        assert!(!expires_within(&activity, IDLE_LIMIT - HEAD).await);
        activity.heard();
        assert!(expires_within(&activity, HEAD * 2).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_just_used_or_has_begun_a_request_has_not_settled() {
        let activity = Arc::new(Activity::new(HEAD));
        let settles = async |within| timeout(within, activity.settled()).await.is_ok();
        let request = activity.request(Version::HTTP_11);
        assert!(!settles(HEAD).await, "in progress");
        drop(request);
        assert!(!settles(SETTLED / 2).await, "just answered");
        activity.heard();
        assert!(!settles(HEAD).await, "a head has begun");
        drop(activity.request(Version::HTTP_11));
        assert!(settles(SETTLED).await);
        sleep(HEAD).await;
        assert!(settles(Duration::ZERO).await);
        let framed = Arc::new(Activity::new(HEAD));
        let _request = framed.request(Version::HTTP_2);
        assert!(timeout(Duration::ZERO, framed.settled()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn frames_between_requests_begin_none_and_keep_nothing_open() {
        let activity = Arc::new(Activity::new(HEAD));
        drop(activity.request(Version::HTTP_2));
        let pings = async {
            loop {
                activity.heard();
                sleep(HEAD / 2).await;
            }
        };
        let began = Instant::now();
        tokio::select! {
            () = activity.expired() => {}
            () = pings => {}
        }
        assert!(began.elapsed() >= IDLE_LIMIT);
    }
}
