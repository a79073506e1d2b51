//! Where spans, log records and metrics go on their way to a collector.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanProcessor};
use prost::Message;

use super::batch::{self, Counts, Queue, Worker};
use super::courier::Courier;
use super::spans::Tracer;
use crate::config::{Batching, Export};

/// Export cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No thread, or no runtime for it.
    #[error("cannot start the exporter's thread")]
    Thread(#[source] std::io::Error),
    /// The HTTP client cannot be made.
    #[error("cannot make the HTTP client")]
    Client(#[source] reqwest::Error),
    /// A file with certificates or a key cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The collector's address is no URL.
    #[error("{0} is not a URL")]
    Endpoint(String),
}

/// Export of spans.
pub(super) struct Spans {
    provider: SdkTracerProvider,
    counts: Arc<Counts>,
    worker: Worker,
}

impl Spans {
    /// Starts it. What `export` does not say, the SDK reads from `OTEL_*`.
    pub(super) fn start(
        export: &Export,
        batching: Batching,
        resource: &Resource,
    ) -> Result<Self, ExportError> {
        let attributes = ResourceAttributesWithSchema::from(resource);
        let encode = move |spans: Vec<SpanData>| {
            let resource_spans = group_spans_by_resource_and_scope(spans, &attributes);
            ExportTraceServiceRequest { resource_spans }.encode_to_vec()
        };
        let (queue, worker) = batch::start("spans", batching, Courier::new(export)?, encode)?;
        let counts = queue.counts();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Ended(queue))
            .with_resource(resource.clone())
            .build();
        Ok(Self { provider, counts, worker })
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    pub(super) fn tracer(&self) -> Tracer {
        Tracer::on(self.provider.tracer(env!("CARGO_PKG_NAME")), Arc::clone(&self.counts))
    }

    /// Exports what waits, until `deadline`.
    pub(super) fn shutdown(self, deadline: Instant) {
        // What ends later makes no spans.
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
        if !self.worker.shutdown(deadline) {
            tracing::warn!("the last spans were not exported");
        }
    }
}

/// Puts ended spans into the queue.
#[derive(Debug)]
struct Ended(Queue<SpanData>);

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if span.span_context.is_sampled() {
            self.0.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// What `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say, and defaults for what they do not.
pub(super) fn resource(router_id: &str) -> Resource {
    let said = Resource::builder().build();
    let says = |key: &'static str| {
        let value = said.get(&Key::from_static_str(key));
        value.is_some_and(|value| !value.as_str().starts_with("unknown_service"))
    };
    let defaults = [
        ("service.name", "grapevine"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", router_id),
    ];
    let missing = defaults.into_iter().filter(|(key, _)| !says(key));
    let missing: Vec<KeyValue> = missing.map(|(key, value)| KeyValue::new(key, value.to_owned())).collect();
    Resource::builder().with_attributes(missing).build()
}

/// The resource as it goes over the wire.
pub(super) fn wire_resource(resource: &Resource) -> opentelemetry_proto::tonic::resource::v1::Resource {
    let attributes = ResourceAttributesWithSchema::from(resource).attributes.0;
    opentelemetry_proto::tonic::resource::v1::Resource { attributes, ..Default::default() }
}

/// Nanoseconds of Unix time.
pub(super) fn unix_nanos() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}
