//! Logs and traces. The only place that knows opentelemetry.
//!
//! Logs go to stderr through tracing. Spans go to an OTLP collector through the OpenTelemetry SDK,
//! when the environment names one ([`crate::config::TracesConfig`]):
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
//! **Invariants.** The exporter has a thread of its own and a bounded queue: a dead collector costs
//! spans, never a request ([`SpanCounts`] says how many). Shutdown ends within its limit. Prompts are
//! never recorded.

mod export;
mod logs;
mod spans;
mod w3c;

use std::time::Duration;

use crate::config::Config;

pub use export::{ExportError, SpanCounts};
pub use logs::LogsError;
pub use spans::{EngineCall, EngineSpan, RouteSpan, ServerRequest, ServerSpan, Tracer};

/// Telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Logs cannot.
    #[error("cannot start logging")]
    Logs(#[from] LogsError),
    /// Export of spans cannot.
    #[error("cannot start the export of traces")]
    Export(#[from] ExportError),
}

/// Keeps export running. End it with [`Telemetry::shutdown`], or the last spans are lost.
pub struct Telemetry {
    exporter: Option<export::Exporter>,
}

/// Sets up logs for the process and, if configured, export of traces. Once per process.
pub fn init(config: &Config) -> Result<Telemetry, TelemetryError> {
    logs::init(config)?;
    Ok(Telemetry::traces(config)?)
}

impl Telemetry {
    /// Export of traces alone, if configured: for several routers in one process.
    pub fn traces(config: &Config) -> Result<Self, ExportError> {
        let exporter = match &config.traces {
            Some(traces) => Some(export::Exporter::start(traces, &config.router_id)?),
            None => None,
        };
        Ok(Self { exporter })
    }

    /// What makes spans. Cheap to clone; it makes nothing when export is off.
    pub fn tracer(&self) -> Tracer {
        self.exporter.as_ref().map_or_else(Tracer::off, export::Exporter::tracer)
    }

    /// Exports what is queued, for at most `limit`. Blocks: call it outside the runtime.
    pub fn shutdown(self, limit: Duration) {
        if let Some(exporter) = self.exporter {
            exporter.shutdown(limit);
        }
    }
}

#[cfg(test)]
mod live_tests;
#[cfg(test)]
mod tests;
