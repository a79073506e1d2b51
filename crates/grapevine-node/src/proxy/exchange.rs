//! One request in this router, from its head to the end of its answer, however that comes.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::HeaderValue;

use super::Proxy;
use super::admission::Place;
use super::headers::REQUEST_ID;
use crate::error::RouterError;
use crate::metrics::outcome::Outcome;
use crate::observe::decisions::Recorded;
use crate::telemetry::{ServerRequest, ServerSpan};

/// Held as long as the answer's body; dropping it counts the request's end. A request that nobody
/// gave an outcome was left by its client.
pub(super) struct Exchange {
    pub(super) proxy: Arc<Proxy>,
    pub(super) began: Instant,
    pub(super) span: ServerSpan,
    pub(super) request_id: Option<HeaderValue>,
    /// The path, if it is one that the router knows.
    pub(super) route: Option<&'static str>,
    outcome: Outcome,
    /// None while it waits for one.
    place: Option<Place>,
    /// Its last decision, where that is recorded.
    recorded: Mutex<Option<Arc<Recorded>>>,
}

impl Exchange {
    /// A request whose head is here.
    pub(super) fn begin(proxy: &Arc<Proxy>, request: &ServerRequest<'_>) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            began: Instant::now(),
            span: proxy.tracer.server(request),
            request_id: request.headers.get(REQUEST_ID).cloned(),
            route: request.route,
            outcome: Outcome::ClientClosed,
            place: None,
            recorded: Mutex::default(),
        }
    }

    /// It is one of those in flight, until it ends.
    pub(super) fn take(&mut self, place: Place) {
        self.place = Some(place);
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
        self.span.status(error.facts().status);
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
        self.proxy.metrics.request_seconds.observe(self.began.elapsed().as_secs_f64());
    }
}
