//! Log lines as OTLP log records, beside stderr.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::logs::{AnyValue, LogRecord, Logger, LoggerProvider, Severity};
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    LogBatch, LogExporter as _, LogProcessor, SdkLogRecord, SdkLogger, SdkLoggerProvider,
};
use tokio::runtime::Runtime;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::batch::{self, Counts, Queue, Worker, is_exporter};
use super::export::{ExportError, over_grpc, over_http, within};
use crate::bounded::cut;
use crate::config::{Batching, Export, Protocol};

/// Longest text of a record, bytes.
const MAX_TEXT: usize = 4_096;

/// Most fields of a record.
const MAX_FIELDS: usize = 32;

/// A record and who made it, as exporters take them.
type Made = (SdkLogRecord, InstrumentationScope);

/// Starts the export of log records; gives the layer that makes them.
pub(super) fn start(
    export: &Export,
    batching: Batching,
    resource: &Resource,
) -> Result<(Records, Worker), ExportError> {
    let runtime = batch::runtime()?;
    let mut exporter = log_exporter(export, &runtime)?;
    exporter.set_resource(resource);
    let limit = export.timeout;
    let send = async move |made: Vec<Made>| {
        let records: Vec<_> = made.iter().map(|(record, scope)| (record, scope)).collect();
        within(limit, exporter.export(LogBatch::new(&records))).await
    };
    let (queue, worker) = batch::start("log records", batching, runtime, send)?;
    let counts = queue.counts();
    let provider = SdkLoggerProvider::builder().with_log_processor(Emitted(queue)).build();
    let logger = provider.logger(env!("CARGO_PKG_NAME"));
    Ok((Records { logger, counts }, worker))
}

/// The exporter of `opentelemetry-otlp`; one for gRPC lives on `runtime`.
fn log_exporter(export: &Export, runtime: &Runtime) -> Result<LogExporter, ExportError> {
    let built = match export.protocol {
        Protocol::HttpProtobuf => over_http(LogExporter::builder().with_http(), export)?.build(),
        Protocol::Grpc => {
            let _there = runtime.enter();
            over_grpc(LogExporter::builder().with_tonic(), export)?.build()
        }
    };
    built.map_err(|error| ExportError::Exporter(Box::new(error)))
}

/// Puts records into the queue.
#[derive(Debug)]
struct Emitted(Queue<Made>);

impl LogProcessor for Emitted {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        self.0.push((record.clone(), scope.clone()));
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Makes a record of every event.
#[derive(Debug)]
pub(super) struct Records {
    logger: SdkLogger,
    counts: Arc<Counts>,
}

impl Records {
    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }
}

impl<S: Subscriber> Layer<S> for Records {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // What exporting logs would otherwise be exported, and so on.
        if is_exporter() {
            return;
        }
        let mut record = self.logger.create_log_record();
        let (severity, name) = severity(*event.metadata().level());
        record.set_severity_number(severity);
        record.set_severity_text(name);
        let now = SystemTime::now();
        record.set_timestamp(now);
        record.set_observed_timestamp(now);
        record.add_attribute("log.target", event.metadata().target());
        event.record(&mut Fields { record: &mut record, fields: 0 });
        self.logger.emit(record);
    }
}

fn severity(level: Level) -> (Severity, &'static str) {
    match level {
        Level::ERROR => (Severity::Error, "ERROR"),
        Level::WARN => (Severity::Warn, "WARN"),
        Level::INFO => (Severity::Info, "INFO"),
        Level::DEBUG => (Severity::Debug, "DEBUG"),
        Level::TRACE => (Severity::Trace, "TRACE"),
    }
}

/// An event's fields on their way into a record.
struct Fields<'a> {
    record: &'a mut SdkLogRecord,
    fields: usize,
}

impl Fields<'_> {
    fn add(&mut self, field: &Field, value: AnyValue) {
        self.fields += 1;
        if self.fields <= MAX_FIELDS {
            self.record.add_attribute(field.name(), value);
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = AnyValue::from(cut(&format!("{value:?}"), MAX_TEXT).to_owned());
        if field.name() == "message" {
            self.record.set_body(written);
        } else {
            self.add(field, written);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, cut(value, MAX_TEXT).to_owned().into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, i64::try_from(value).unwrap_or(i64::MAX).into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}
