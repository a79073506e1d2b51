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
    _place: Place,
}

impl Exchange {
    /// A request that has its place; `began` is when its head was here.
    pub(super) fn begin(
        proxy: &Arc<Proxy>,
        place: Place,
        request: &ServerRequest<'_>,
        began: Instant,
    ) -> Self {
        Self {
            proxy: Arc::clone(proxy),
            began,
            span: proxy.tracer.server(request),
            outcome: Outcome::ClientClosed,
            _place: place,
        }
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
