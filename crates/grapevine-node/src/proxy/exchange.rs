//! One request in this router, from its head to the end of its answer, however that comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use super::Proxy;
use crate::error::RouterError;
use crate::metrics::outcome::Outcome;
use crate::telemetry::{ServerRequest, ServerSpan};

/// Counts requests against the router's limit.
#[derive(Debug)]
pub struct Admission {
    inflight: AtomicUsize,
    max: usize,
}

impl Admission {
    /// At most `max` requests at once; 0 = no limit.
    pub fn new(max: usize) -> Self {
        Self { inflight: AtomicUsize::new(0), max }
    }

    /// Requests in this router now.
    pub fn inflight(&self) -> usize {
        self.inflight.load(Relaxed)
    }

    fn enter(&self) -> bool {
        let before = self.inflight.fetch_add(1, Relaxed);
        let admitted = self.max == 0 || before < self.max;
        if !admitted {
            self.inflight.fetch_sub(1, Relaxed);
        }
        admitted
    }
}

/// Held as long as the answer's body; dropping it counts the request's end. A request that nobody
/// gave an outcome was left by its client.
pub(super) struct Exchange {
    pub(super) proxy: Arc<Proxy>,
    pub(super) began: Instant,
    pub(super) span: ServerSpan,
    outcome: Outcome,
}

impl Exchange {
    /// Admits a request.
    pub(super) fn begin(proxy: &Arc<Proxy>, request: &ServerRequest<'_>) -> Result<Self, RouterError> {
        if !proxy.admission.enter() {
            return Err(RouterError::Overloaded);
        }
        Ok(Self {
            proxy: Arc::clone(proxy),
            began: Instant::now(),
            span: proxy.tracer.server(request),
            outcome: Outcome::ClientClosed,
        })
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
        self.proxy.admission.inflight.fetch_sub(1, Relaxed);
        self.proxy.metrics.ended(self.outcome);
        self.proxy.metrics.request_seconds.observe(self.began.elapsed().as_secs_f64());
    }
}
