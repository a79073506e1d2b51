//! A receiver of OTLP over HTTP (protobuf) and gRPC, for tests: point the exporter at
//! [`OtlpReceiver::endpoint`] and look at the spans that arrive. Exports of other signals are counted.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1 as wire;
use prost::Message;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Spans kept; later ones are dropped.
const MAX_SPANS: usize = 100_000;

/// Largest export taken.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Bytes before a message over gRPC: not compressed, and its length.
const FRAME_BYTES: usize = 5;

/// Attributes by name, values as JSON.
pub type Attributes = BTreeMap<String, Value>;

/// Which side of a call a span is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Not said.
    Unspecified,
    /// Within the process.
    Internal,
    /// Answers a request.
    Server,
    /// Sends one.
    Client,
    /// Sends a message.
    Producer,
    /// Receives a message.
    Consumer,
}

/// A span that arrived.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its name.
    pub name: String,
    /// Which side of a call it is on.
    pub kind: SpanKind,
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// The parent's `span_id`; `None` for a root.
    pub parent: Option<String>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Attributes of the process that sent it.
    pub resource: Attributes,
    /// Names of its events.
    pub events: Vec<String>,
    /// The span ended in an error, with this message.
    pub error: Option<String>,
    /// Start, nanoseconds of Unix time.
    pub start_nanos: u64,
    /// End, nanoseconds of Unix time.
    pub end_nanos: u64,
}

/// What arrived.
struct Arrived {
    spans: watch::Sender<Vec<Span>>,
    logs: AtomicUsize,
    metrics: AtomicUsize,
}

/// A running receiver; it stops when dropped.
pub struct OtlpReceiver {
    addr: SocketAddr,
    arrived: Arc<Arrived>,
    task: JoinHandle<()>,
}

impl OtlpReceiver {
    /// Starts a receiver on a free port of loopback.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let (logs, metrics) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let arrived = Arc::new(Arrived { spans: watch::Sender::new(Vec::new()), logs, metrics });
        let task = tokio::spawn(serve(listener, Arc::clone(&arrived)));
        Ok(Self { addr, arrived, task })
    }

    /// For `OTEL_EXPORTER_OTLP_ENDPOINT`: the exporter adds the path of its signal.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The spans that arrived so far, in the order in which they came.
    pub fn spans(&self) -> Vec<Span> {
        self.arrived.spans.borrow().clone()
    }

    /// Exports of log records that arrived so far.
    pub fn log_exports(&self) -> usize {
        self.arrived.logs.load(Relaxed)
    }

    /// Exports of metrics that arrived so far.
    pub fn metric_exports(&self) -> usize {
        self.arrived.metrics.load(Relaxed)
    }

    /// Waits until the spans that arrived are as wanted and gives them; `None` when that takes longer
    /// than `patience`.
    pub async fn wait_for(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&[Span]) -> bool,
    ) -> Option<Vec<Span>> {
        let mut spans = self.arrived.spans.subscribe();
        let arrived = spans.wait_for(|spans| wanted(spans));
        tokio::time::timeout(patience, arrived).await.ok()?.ok().map(|spans| spans.clone())
    }

    /// Forgets the spans that arrived so far.
    pub fn clear(&self) {
        self.arrived.spans.send_modify(Vec::clear);
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, arrived: Arc<Arrived>) {
    let app = Router::new()
        .route("/v1/traces", post(spans))
        .route("/opentelemetry.proto.collector.trace.v1.TraceService/Export", post(spans))
        .route("/v1/logs", post(logs))
        .route("/opentelemetry.proto.collector.logs.v1.LogsService/Export", post(logs))
        .route("/v1/metrics", post(metrics))
        .route("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", post(metrics))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(arrived);
    if let Err(error) = axum::serve(listener, app).await {
        tracing::warn!(%error, "telemetry receiver ended");
    }
}

async fn spans(State(arrived): State<Arc<Arrived>>, headers: HeaderMap, body: Bytes) -> Response {
    let Some(protocol) = Protocol::of(&headers) else {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    };
    let request = match ExportTraceServiceRequest::decode(protocol.message(body)) {
        Ok(request) => request,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let read = read(request);
    arrived.spans.send_modify(|spans| {
        let room = MAX_SPANS.saturating_sub(spans.len());
        spans.extend(read.into_iter().take(room));
    });
    protocol.taken()
}

async fn logs(State(arrived): State<Arc<Arrived>>, headers: HeaderMap) -> Response {
    count(&arrived.logs, &headers)
}

async fn metrics(State(arrived): State<Arc<Arrived>>, headers: HeaderMap) -> Response {
    count(&arrived.metrics, &headers)
}

fn count(exports: &AtomicUsize, headers: &HeaderMap) -> Response {
    let Some(protocol) = Protocol::of(headers) else {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    };
    exports.fetch_add(1, Relaxed);
    protocol.taken()
}

/// How an export came.
#[derive(Clone, Copy)]
enum Protocol {
    Http,
    Grpc,
}

impl Protocol {
    fn of(headers: &HeaderMap) -> Option<Self> {
        match headers.get(header::CONTENT_TYPE)?.to_str().ok()? {
            "application/x-protobuf" => Some(Self::Http),
            "application/grpc" => Some(Self::Grpc),
            _ => None,
        }
    }

    /// The message of a body.
    fn message(self, body: Bytes) -> Bytes {
        match self {
            Self::Http => body,
            Self::Grpc => body.slice(FRAME_BYTES.min(body.len())..),
        }
    }

    /// All was taken: an empty answer.
    fn taken(self) -> Response {
        match self {
            Self::Http => ([(header::CONTENT_TYPE, "application/x-protobuf")], Bytes::new()).into_response(),
            Self::Grpc => {
                let mut trailers = HeaderMap::new();
                trailers.insert("grpc-status", HeaderValue::from_static("0"));
                let frame = Full::new(Bytes::from_static(&[0; FRAME_BYTES]));
                let body = Body::new(frame.with_trailers(async move { Some(Ok(trailers)) }));
                ([(header::CONTENT_TYPE, "application/grpc")], body).into_response()
            }
        }
    }
}

fn read(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut spans = Vec::new();
    for group in request.resource_spans {
        let resource = attributes(group.resource.unwrap_or_default().attributes);
        let scoped = group.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(scoped.map(|span| read_span(span, &resource)));
    }
    spans
}

fn read_span(span: wire::Span, resource: &Attributes) -> Span {
    let kind = match span.kind() {
        wire::span::SpanKind::Unspecified => SpanKind::Unspecified,
        wire::span::SpanKind::Internal => SpanKind::Internal,
        wire::span::SpanKind::Server => SpanKind::Server,
        wire::span::SpanKind::Client => SpanKind::Client,
        wire::span::SpanKind::Producer => SpanKind::Producer,
        wire::span::SpanKind::Consumer => SpanKind::Consumer,
    };
    let failed = |status: &wire::Status| status.code == wire::status::StatusCode::Error as i32;
    Span {
        name: span.name,
        kind,
        trace_id: hex(&span.trace_id),
        span_id: hex(&span.span_id),
        parent: (!span.parent_span_id.is_empty()).then(|| hex(&span.parent_span_id)),
        attributes: attributes(span.attributes),
        resource: resource.clone(),
        events: span.events.into_iter().map(|event| event.name).collect(),
        error: span.status.filter(failed).map(|status| status.message),
        start_nanos: span.start_time_unix_nano,
        end_nanos: span.end_time_unix_nano,
    }
}

fn attributes(list: Vec<KeyValue>) -> Attributes {
    list.into_iter().map(|pair| (pair.key, json(pair.value))).collect()
}

fn json(value: Option<AnyValue>) -> Value {
    use any_value::Value as Wire;
    match value.and_then(|value| value.value) {
        Some(Wire::StringValue(text)) => text.into(),
        Some(Wire::BoolValue(flag)) => flag.into(),
        Some(Wire::IntValue(number)) => number.into(),
        Some(Wire::DoubleValue(number)) => number.into(),
        Some(Wire::BytesValue(bytes)) => hex(&bytes).into(),
        Some(Wire::ArrayValue(list)) => list.values.into_iter().map(|v| json(Some(v))).collect(),
        Some(Wire::KvlistValue(list)) => attributes(list.values).into_iter().collect(),
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};

    use super::*;

    fn exported() -> ExportTraceServiceRequest {
        let text =
            |text: &str| Some(AnyValue { value: Some(any_value::Value::StringValue(text.to_owned())) });
        let pair = |key: &str, value: &str| KeyValue {
            key: key.to_owned(),
            value: text(value),
            ..KeyValue::default()
        };
        let span = wire::Span {
            name: "route".to_owned(),
            kind: wire::span::SpanKind::Internal as i32,
            trace_id: vec![0xab; 16],
            span_id: vec![1; 8],
            parent_span_id: vec![2; 8],
            attributes: vec![pair("replica", "a")],
            ..wire::Span::default()
        };
        let resource = opentelemetry_proto::tonic::resource::v1::Resource {
            attributes: vec![pair("service.name", "grapevine")],
            ..Default::default()
        };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        let group = ResourceSpans { resource: Some(resource), scope_spans, ..ResourceSpans::default() };
        ExportTraceServiceRequest { resource_spans: vec![group] }
    }

    async fn send(receiver: &OtlpReceiver, body: Vec<u8>) -> u16 {
        let client = crate::load::http_client(1, Duration::from_secs(10)).unwrap();
        let request = client.post(format!("{}/v1/traces", receiver.endpoint()));
        let request = request.header("content-type", "application/x-protobuf").body(body);
        request.send().await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn spans_arrive_as_they_were_sent() {
        let receiver = OtlpReceiver::start().await.unwrap();
        assert_eq!(send(&receiver, exported().encode_to_vec()).await, 200);
        let spans = receiver.wait_for(Duration::from_secs(10), |spans| spans.len() == 1).await.unwrap();
        let span = &spans[0];
        assert_eq!((span.name.as_str(), span.kind), ("route", SpanKind::Internal));
        assert_eq!(span.trace_id, "ab".repeat(16));
        assert_eq!(span.parent.as_deref(), Some("0202020202020202"));
        assert_eq!(span.attributes["replica"], "a");
        assert_eq!(span.resource["service.name"], "grapevine");
        assert_eq!(span.error, None);
        receiver.clear();
        assert!(receiver.spans().is_empty());
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        let receiver = OtlpReceiver::start().await.unwrap();
        assert_eq!(send(&receiver, b"nonsense".to_vec()).await, 400);
    }
}
