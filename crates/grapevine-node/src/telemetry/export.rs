//! The way of a finished span to the collector: a bounded queue, a thread, OTLP over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor,
};

use super::spans::Tracer;
use crate::config::TracesConfig;

/// Export of spans cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The thread that makes the HTTP client ended.
    #[error("the thread that makes the HTTP client panicked")]
    Thread,
    /// The HTTP client cannot be made.
    #[error("cannot make the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The exporter cannot be made.
    #[error("cannot make the exporter")]
    Exporter(#[source] Box<ExporterBuildError>),
}

/// What became of spans since the start. What is in none of the last two is queued, or was dropped
/// because the queue was full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// Ended and sampled.
    pub ended: u64,
    /// Taken by the collector.
    pub exported: u64,
    /// Given up because the collector did not take them.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    ended: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    pub(super) fn read(&self) -> SpanCounts {
        SpanCounts {
            ended: self.ended.load(Relaxed),
            exported: self.exported.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }
}

/// A running export.
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    counts: Arc<Counts>,
}

impl Exporter {
    /// Starts the exporter's thread. What `config` does not say, the SDK reads from `OTEL_*`.
    pub(super) fn start(config: &TracesConfig, router_id: &str) -> Result<Self, ExportError> {
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(client(config.timeout)?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&config.endpoint)
            .with_timeout(config.timeout)
            .build()
            .map_err(|error| ExportError::Exporter(Box::new(error)))?;
        let counts = Arc::new(Counts::default());
        let exporter =
            Watched { inner: exporter, failing: AtomicBool::new(false), counts: Arc::clone(&counts) };
        let queue = BatchSpanProcessor::builder(exporter).build();
        let provider = SdkTracerProvider::builder()
            .with_span_processor(Counted { inner: queue, counts: Arc::clone(&counts) })
            .with_resource(resource(router_id))
            .build();
        Ok(Self { provider, counts })
    }

    pub(super) fn tracer(&self) -> Tracer {
        Tracer::on(self.provider.tracer(env!("CARGO_PKG_NAME")), Arc::clone(&self.counts))
    }

    /// Exports what is queued, for at most `limit`. An export that hangs is left behind with its
    /// thread.
    pub(super) fn shutdown(self, limit: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(limit) {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// The client ignores proxies of the environment, as all traffic within a cluster does. It has a
/// runtime of its own, which must be made (and is dropped, by the exporter's thread) outside ours.
fn client(timeout: Duration) -> Result<reqwest::blocking::Client, ExportError> {
    let make = move || reqwest::blocking::Client::builder().no_proxy().timeout(timeout).build();
    std::thread::spawn(make).join().map_err(|_| ExportError::Thread)?.map_err(ExportError::Client)
}

/// What `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say, and defaults for what they do not.
fn resource(router_id: &str) -> Resource {
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

/// The queue, counting what enters it.
#[derive(Debug)]
struct Counted {
    inner: BatchSpanProcessor,
    counts: Arc<Counts>,
}

impl SpanProcessor for Counted {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        self.counts.ended.fetch_add(1, Relaxed);
        self.inner.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

/// The exporter, counting what it delivers, and logging when it stops and starts to work.
#[derive(Debug)]
struct Watched<E> {
    inner: E,
    failing: AtomicBool,
    counts: Arc<Counts>,
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let result = self.inner.export(batch).await;
        let counter = if result.is_ok() { &self.counts.exported } else { &self.counts.failed };
        counter.fetch_add(spans, Relaxed);
        match (&result, self.failing.swap(result.is_err(), Relaxed)) {
            (Err(error), false) => tracing::warn!(%error, spans, "spans cannot be exported"),
            (Ok(()), true) => tracing::info!("spans are exported again"),
            _ => {}
        }
        result
    }

    fn shutdown(&self) -> OTelSdkResult {
        self.inner.shutdown()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
