//! Logs and traces. The only place that knows opentelemetry.
//!
//! Logs go to stderr through tracing. Spans, log records and metrics go to OTLP collectors when the environment
//! names some ([`crate::config::OtelConfig`]): `batch` has the queues and threads, `courier` speaks HTTP and
//! gRPC. Metrics are those of `/metrics` (`figures`): there is one registry.
//!
//! Of each request there are three spans:
//!
//! ```text
//! SERVER  POST /v1/chat/completions      ends when the client has the last byte
//!   INTERNAL  route                      the Decision's facts
//!   CLIENT  chat llama-3                 one per try; ends when the engine's body ends
//! ```
//!
//! **Why not tracing-opentelemetry.** The three spans live as long as a response body, which is
//! polled by whichever thread has time. With the SDK's own API a span is a plain owned object that
//! the body holds and drops: no subscriber layer that every `tracing` call of the process goes
//! through, no entering and leaving around each poll, no string-keyed fields declared in advance. With
//! export off a span is a null pointer, and the client's trace headers pass to the engine untouched.
//!
//! **Invariants.** Each exporter has a thread of its own and a bounded queue: a dead collector costs
//! spans, never a request ([`ExportCounts`] says how many). Shutdown ends within its limit. Prompts are
//! never recorded.

mod batch;
mod courier;
mod export;
mod figures;
mod logs;
mod records;
mod spans;
mod w3c;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Config;
use batch::{Counts, Worker};

pub use batch::ExportCounts;
pub use export::ExportError;
pub use figures::Exposition;
pub use logs::LogsError;
pub use spans::{EngineCall, EngineSpan, RouteSpan, ServerRequest, ServerSpan, Tracer};

/// Telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Logs cannot.
    #[error("cannot start logging")]
    Logs(#[from] LogsError),
    /// Export cannot.
    #[error("cannot start the export of telemetry")]
    Export(#[from] ExportError),
}

/// Keeps export running. End it with [`Telemetry::shutdown`], or what waits is lost.
pub struct Telemetry {
    config: Config,
    spans: Option<export::Spans>,
    /// Those of log records and metrics.
    workers: Vec<Worker>,
    /// Pushes of metrics.
    pushes: Arc<Counts>,
    exports: Exports,
}

/// What became of telemetry, by its kind.
#[derive(Clone, Default)]
pub struct Exports(Vec<(&'static str, Arc<Counts>)>);

impl Exports {
    /// One reading of all that are on.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, ExportCounts)> + '_ {
        self.0.iter().map(|(what, counts)| (*what, counts.read()))
    }
}

/// Sets up logs for the process and, if configured, export of spans and logs. Once per process.
/// [`Telemetry::push_metrics`] adds metrics.
pub fn init(config: &Config) -> Result<Telemetry, TelemetryError> {
    let mut telemetry = Telemetry::traces(config)?;
    if config.otel.metrics.is_some() {
        telemetry.exports.0.push(("metrics", Arc::clone(&telemetry.pushes)));
    }
    let records = match &config.otel.logs {
        Some(export) => {
            let resource = export::resource(&config.router_id);
            let (records, worker) = records::start(export, config.otel.logs_batch, &resource)?;
            telemetry.exports.0.push(("logs", records.counts()));
            telemetry.workers.push(worker);
            Some(records)
        }
        None => None,
    };
    logs::init(config, records)?;
    Ok(telemetry)
}

impl Telemetry {
    /// Export of spans alone, if configured: for several routers in one process.
    pub fn traces(config: &Config) -> Result<Self, ExportError> {
        let resource = export::resource(&config.router_id);
        let start = |traces| export::Spans::start(traces, config.otel.spans_batch, &resource);
        let spans = config.otel.traces.as_ref().map(start).transpose()?;
        let exports = Exports(spans.iter().map(|spans| ("spans", spans.counts())).collect());
        let (workers, pushes) = (Vec::new(), Arc::default());
        Ok(Self { config: config.clone(), spans, workers, pushes, exports })
    }

    /// What makes spans. Cheap to clone; it makes nothing when export is off.
    pub fn tracer(&self) -> Tracer {
        self.spans.as_ref().map_or_else(Tracer::off, export::Spans::tracer)
    }

    /// What becomes of spans, logs and metrics.
    pub fn exports(&self) -> Exports {
        self.exports.clone()
    }

    /// From now on what `exposition` gives is pushed, if configured.
    pub fn push_metrics(&mut self, exposition: Exposition) -> Result<(), ExportError> {
        let Some(export) = &self.config.otel.metrics else { return Ok(()) };
        let resource = export::resource(&self.config.router_id);
        let (interval, pushes) = (self.config.otel.metrics_interval, Arc::clone(&self.pushes));
        let worker = figures::start(export, interval, &resource, exposition, pushes)?;
        self.workers.push(worker);
        Ok(())
    }

    /// Exports what waits, for at most `limit`. Blocks: call it outside the runtime.
    pub fn shutdown(self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut workers = self.workers;
        workers.extend(self.spans.map(export::Spans::end));
        // All at once: a collector that does not answer takes nothing from the others' time.
        workers.iter().for_each(Worker::stop);
        let late = workers.iter().filter(|worker| !worker.ended(deadline)).count();
        if late > 0 {
            tracing::warn!(exporters = late, "the last of what was to be exported was not");
        }
    }
}

#[cfg(test)]
mod collector;
#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod signal_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;
