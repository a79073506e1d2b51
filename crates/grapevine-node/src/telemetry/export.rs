//! Spans, log records and metrics on their way to a collector. Spans and log records leave through the
//! exporters of `opentelemetry-otlp`; queue, thread and counts are ours ([`super::batch`]).

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, Key, KeyValue};
use opentelemetry_otlp::tonic_types::metadata::MetadataMap;
use opentelemetry_otlp::tonic_types::transport::{Certificate, ClientTlsConfig, Identity};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor};
use reqwest::Url;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::batch::{self, Counts, Queue, Worker};
use super::courier::Courier;
use super::spans::Tracer;
use crate::config::{Batching, Export, Protocol};
use crate::tls::{self, TlsError};

/// Export cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// No thread, or no runtime for it.
    #[error("cannot start the exporter's thread")]
    Thread(#[source] std::io::Error),
    /// The HTTP client cannot be made.
    #[error("cannot make the HTTP client")]
    Client(#[source] reqwest::Error),
    /// A file with certificates or a key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The exporter cannot be made.
    #[error("cannot make the exporter")]
    Exporter(#[source] Box<ExporterBuildError>),
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
        let runtime = batch::runtime()?;
        let mut exporter = span_exporter(export, &runtime)?;
        exporter.set_resource(resource);
        let limit = export.timeout;
        let send = async move |spans: Vec<SpanData>| within(limit, exporter.export(spans)).await;
        let (queue, worker) = batch::start("spans", batching, runtime, send)?;
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

    /// Makes no more spans, and gives what exports those that wait.
    pub(super) fn end(self) -> Worker {
        let _ = self.provider.shutdown_with_timeout(Duration::ZERO);
        self.worker
    }
}

/// Ends an export at its limit: the exporters look at it only between two tries.
pub(super) async fn within(limit: Duration, export: impl Future<Output = OTelSdkResult>) -> OTelSdkResult {
    timeout(limit, export).await.unwrap_or(Err(OTelSdkError::Timeout(limit)))
}

/// The exporter of `opentelemetry-otlp`; one for gRPC lives on `runtime`.
fn span_exporter(export: &Export, runtime: &Runtime) -> Result<SpanExporter, ExportError> {
    let built = match export.protocol {
        Protocol::HttpProtobuf => over_http(SpanExporter::builder().with_http(), export)?.build(),
        Protocol::Grpc => {
            let _there = runtime.enter();
            over_grpc(SpanExporter::builder().with_tonic(), export)?.build()
        }
    };
    built.map_err(|error| ExportError::Exporter(Box::new(error)))
}

/// What every exporter over HTTP is told.
pub(super) fn over_http<B: WithHttpConfig + WithExportConfig>(
    exporter: B,
    export: &Export,
) -> Result<B, ExportError> {
    Ok(exporter
        .with_http_client(Courier::new(export)?)
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
        .with_endpoint(&export.endpoint)
        .with_timeout(export.timeout))
}

/// What every exporter over gRPC is told.
pub(super) fn over_grpc<B: WithTonicConfig + WithExportConfig>(
    exporter: B,
    export: &Export,
) -> Result<B, ExportError> {
    let exporter = exporter
        .with_endpoint(origin(export)?)
        .with_timeout(export.timeout)
        .with_metadata(MetadataMap::from_headers(export.headers.clone()));
    Ok(match tls(export)? {
        Some(tls) => exporter.with_tls_config(tls),
        None => exporter,
    })
}

/// Scheme, host and port of a collector: gRPC knows its paths itself.
fn origin(export: &Export) -> Result<String, ExportError> {
    let bad = || ExportError::Endpoint(export.endpoint.clone());
    let url = Url::parse(&export.endpoint).map_err(|_| bad())?;
    Ok(url.origin().ascii_serialization())
}

/// What a collector behind TLS is shown and must show. Named authorities stand in the place of the system's, which
/// an image need not have.
fn tls(export: &Export) -> Result<Option<ClientTlsConfig>, ExportError> {
    if !export.endpoint.starts_with("https:") {
        return Ok(None);
    }
    let tls = match &export.ca {
        Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(tls::authorities(path)?)),
        None => ClientTlsConfig::new().with_native_roots(),
    };
    Ok(Some(match &export.identity {
        Some((certificate, key)) => {
            let (certificate, key) = tls::identity(certificate, key)?;
            tls.identity(Identity::from_pem(certificate, key))
        }
        None => tls,
    }))
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
