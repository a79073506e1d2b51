//! One request in this router, from its head to the end of its answer, however that comes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderValue, StatusCode};

use super::Proxy;
use super::admission::Place;
use super::headers::REQUEST_ID;
use crate::error::RouterError;
use crate::metrics::kind::Kind;
use crate::metrics::outcome::Outcome;
use crate::observe::decisions::Recorded;
use crate::telemetry::{ServerRequest, ServerSpan};

/// Held as long as the answer's body; dropping it counts the request's end. A request that nobody
/// gave an outcome was left by its client.
pub(super) struct Exchange {
    pub(super) proxy: Arc<Proxy>,
    began: Instant,
    pub(super) span: ServerSpan,
    pub(super) request_id: Option<HeaderValue>,
    pub(super) kind: Kind,
    /// What the client was sent.
    status: Option<StatusCode>,
    outcome: Outcome,
    /// None while it waits for one.
    place: Option<Place>,
    /// Its last decision, where that is recorded.
    recorded: Mutex<Option<Arc<Recorded>>>,
}

impl Exchange {
    /// A request whose head is here since `began`.
    pub(super) fn begin(proxy: &Arc<Proxy>, request: &ServerRequest<'_>, kind: Kind, began: Instant) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            began,
            span: proxy.tracer.server(request),
            request_id: request.headers.get(REQUEST_ID).cloned(),
            kind,
            status: None,
            outcome: Outcome::ClientClosed,
            place: None,
            recorded: Mutex::default(),
        }
    }

    /// It is one of those in flight, until it ends.
    pub(super) fn take(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// The client is sent this status.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.span.status(status);
    }

    /// The first token of a stream is here.
    pub(super) fn first_token(&self) {
        self.proxy.metrics.times.first_token(self.kind, self.began.elapsed());
    }

    /// A stream has ended, with so many tokens as it says itself.
    pub(super) fn generated(&self, tokens: u64, after_first: Duration) {
        self.proxy.metrics.times.generated(self.kind, tokens, after_first);
    }

    /// Says how it ended.
    pub(super) fn conclude(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// What becomes of the request is from now on what becomes of this decision. One that was followed before
    /// led nowhere.
    pub(super) fn follow(&self, recorded: Option<Arc<Recorded>>) {
        let before = std::mem::replace(&mut *self.recorded(), recorded);
        if let Some(before) = before {
            let _ = before.outcome.set(RETRIED);
        }
    }

    /// The answer says how many tokens were cached.
    pub(super) fn reported(&self, cached_tokens: u64) {
        if let Some(recorded) = &*self.recorded() {
            let _ = recorded.reported_cached.set(cached_tokens);
        }
    }

    fn recorded(&self) -> std::sync::MutexGuard<'_, Option<Arc<Recorded>>> {
        // Nothing panics while it is held.
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The router answers itself.
    pub(super) fn refuse(&mut self, error: RouterError) {
        self.conclude(Outcome::of_error(error));
        self.answered(error.facts().status);
        self.span.fail(error.facts().code);
    }
}

/// How a decision ended whose replica accepted nothing.
const RETRIED: &str = "retried";

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.outcome == Outcome::ClientClosed {
            self.span.fail(Outcome::ClientClosed.name());
        }
        if let Some(recorded) = self.recorded().take() {
            let _ = recorded.outcome.set(self.outcome.name());
        }
        self.proxy.metrics.ended(self.outcome);
        self.proxy.metrics.times.ended(self.kind, self.status, self.outcome, self.began.elapsed());
    }
}
