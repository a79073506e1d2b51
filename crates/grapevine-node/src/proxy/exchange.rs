//! One request in this router, from its head to the end of its answer, however that comes.

use std::sync::Arc;
use std::time::Instant;

use super::Proxy;
use super::admission::Place;
use crate::error::RouterError;
use crate::metrics::outcome::Outcome;
use crate::telemetry::{ServerRequest, ServerSpan};

/// Held as long as the answer's body; dropping it counts the request's end. A request that nobody
/// gave an outcome was left by its client.
pub(super) struct Exchange {
    pub(super) proxy: Arc<Proxy>,
    pub(super) began: Instant,
    pub(super) span: ServerSpan,
    outcome: Outcome,
    /// None while it waits for one.
    place: Option<Place>,
}

impl Exchange {
    /// A request whose head is here.
    pub(super) fn begin(proxy: &Arc<Proxy>, request: &ServerRequest<'_>) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            began: Instant::now(),
            span: proxy.tracer.server(request),
            outcome: Outcome::ClientClosed,
            place: None,
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

    /// The router answers itself.
    pub(super) fn refuse(&mut self, error: RouterError) {
        self.conclude(Outcome::of_error(error));
        self.span.status(error.facts().status);
        self.span.fail(error.facts().code);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.outcome == Outcome::ClientClosed {
            self.span.fail(Outcome::ClientClosed.name());
        }
        self.proxy.metrics.ended(self.outcome);
        self.proxy.metrics.request_seconds.observe(self.began.elapsed().as_secs_f64());
    }
}
