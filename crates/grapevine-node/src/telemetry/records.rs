//! Log lines as OTLP log records, beside stderr.

use std::fmt;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_sdk::Resource;
use prost::Message;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::batch::{self, Queue, Worker, is_exporter};
use super::courier::Courier;
use super::export::{ExportError, unix_nanos, wire_resource};
use crate::config::{Batching, Export};

/// Longest text of a record, bytes.
const MAX_TEXT: usize = 4_096;

/// Most fields of a record.
const MAX_FIELDS: usize = 32;

/// Starts the export of log records; gives the layer that makes them.
pub(super) fn start(
    export: &Export,
    batching: Batching,
    resource: &Resource,
) -> Result<(Records, Worker), ExportError> {
    let resource = wire_resource(resource);
    let scope = InstrumentationScope { name: env!("CARGO_PKG_NAME").to_owned(), ..Default::default() };
    let encode = move |log_records: Vec<LogRecord>| {
        let scope_logs = vec![ScopeLogs { scope: Some(scope.clone()), log_records, ..ScopeLogs::default() }];
        let logs = ResourceLogs { resource: Some(resource.clone()), scope_logs, ..ResourceLogs::default() };
        ExportLogsServiceRequest { resource_logs: vec![logs] }.encode_to_vec()
    };
    let (queue, worker) = batch::start("log records", batching, Courier::new(export)?, encode)?;
    Ok((Records(queue), worker))
}

/// Makes a record of every event.
#[derive(Debug)]
pub(super) struct Records(pub(super) Queue<LogRecord>);

impl<S: Subscriber> Layer<S> for Records {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        // What exporting logs would otherwise be exported, and so on.
        if is_exporter() {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let (severity, name) = severity(*event.metadata().level());
        let target = text(event.metadata().target());
        fields.attributes.push(KeyValue {
            key: "log.target".to_owned(),
            value: Some(target),
            ..Default::default()
        });
        let now = unix_nanos();
        self.0.push(LogRecord {
            time_unix_nano: now,
            observed_time_unix_nano: now,
            severity_number: severity as i32,
            severity_text: name.to_owned(),
            body: Some(text(&fields.message)),
            attributes: fields.attributes,
            ..LogRecord::default()
        });
    }
}

fn severity(level: Level) -> (SeverityNumber, &'static str) {
    match level {
        Level::ERROR => (SeverityNumber::Error, "ERROR"),
        Level::WARN => (SeverityNumber::Warn, "WARN"),
        Level::INFO => (SeverityNumber::Info, "INFO"),
        Level::DEBUG => (SeverityNumber::Debug, "DEBUG"),
        Level::TRACE => (SeverityNumber::Trace, "TRACE"),
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    attributes: Vec<KeyValue>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: any_value::Value) {
        if self.attributes.len() < MAX_FIELDS {
            let value = Some(AnyValue { value: Some(value) });
            self.attributes.push(KeyValue { key: field.name().to_owned(), value, ..Default::default() });
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = format!("{value:?}");
        if field.name() == "message" {
            self.message = written;
        } else {
            self.add(field, any_value::Value::StringValue(short(&written)));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, any_value::Value::StringValue(short(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, any_value::Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, any_value::Value::DoubleValue(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, any_value::Value::BoolValue(value));
    }
}

fn text(text: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(short(text))) }
}

fn short(text: &str) -> String {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text).to_owned()
}
