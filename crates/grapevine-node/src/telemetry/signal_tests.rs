//! Spans, log records and metrics as a collector in the test process receives them, by HTTP and by gRPC.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::config::{Batching, Export, Protocol};

const LONG: Duration = Duration::from_secs(60);

/// What came in.
#[derive(Clone, Debug)]
struct Post {
    path: String,
    headers: HeaderMap,
    message: Bytes,
}

#[derive(Clone, Default)]
struct Seen {
    posts: Arc<Mutex<Vec<Post>>>,
    /// gRPC statuses to answer with before all is well.
    refusals: Arc<Mutex<VecDeque<u32>>>,
}

struct Collector {
    address: std::net::SocketAddr,
    seen: Seen,
}

impl Collector {
    async fn start() -> Self {
        let seen = Seen::default();
        let app = Router::new().fallback(take).with_state(seen.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(axum::serve(listener, app).into_future());
        Self { address, seen }
    }

    fn export(&self, protocol: Protocol, http: &str, service: &str) -> Export {
        let path = match protocol {
            Protocol::HttpProtobuf => http.to_owned(),
            Protocol::Grpc => format!("opentelemetry.proto.collector.{service}/Export"),
        };
        let mut export = Export::http(format!("http://{}/{path}", self.address), LONG);
        export.protocol = protocol;
        export.headers.insert("x-tenant", HeaderValue::from_static("7"));
        export
    }

    /// The one post that came, which must be to the path of its protocol.
    fn only(&self, protocol: Protocol, export: &Export) -> Bytes {
        let posts = self.seen.posts.lock().unwrap();
        let [post] = &posts[..] else { panic!("{posts:?}") };
        assert!(export.endpoint.ends_with(&post.path), "{post:?}");
        assert_eq!(post.headers["x-tenant"], "7");
        assert_eq!(post.headers.contains_key("te"), protocol == Protocol::Grpc);
        post.message.clone()
    }
}

async fn take(State(seen): State<Seen>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    let kind = head.headers["content-type"].to_str().unwrap().to_owned();
    let (path, headers) = (head.uri.path().to_owned(), head.headers);
    if kind == "application/x-protobuf" {
        seen.posts.lock().unwrap().push(Post { path, headers, message: body });
        return StatusCode::OK.into_response();
    }
    assert_eq!((kind.as_str(), head.version), ("application/grpc", http::Version::HTTP_2));
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap()) as usize;
    assert_eq!((body[0], body.len()), (0, 5 + length), "one message, not compressed");
    let status = seen.refusals.lock().unwrap().pop_front().unwrap_or(0);
    if status == 0 {
        seen.posts.lock().unwrap().push(Post { path, headers, message: body.slice(5..) });
    }
    let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from(status))]);
    // An answer without anything in it, if all is well.
    let answer = if status == 0 { Bytes::from_static(&[0; 5]) } else { Bytes::new() };
    let body = Full::new(answer).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response
}

async fn ended(worker: Worker) {
    let end = move || worker.shutdown(Instant::now() + LONG);
    assert!(tokio::task::spawn_blocking(end).await.expect("no panic"), "it ends by itself");
}

const BOTH: [Protocol; 2] = [Protocol::HttpProtobuf, Protocol::Grpc];

const BATCHING: Batching = Batching { queue: 100, batch: 50, delay: Duration::from_secs(3_600) };

async fn one_span(collector: &Collector, protocol: Protocol) -> (Export, Option<ExportCounts>) {
    let export = collector.export(protocol, "v1/traces", "trace.v1.TraceService");
    let mut config = Config::local("router-1", Vec::new());
    config.otel.traces = Some(export.clone());
    let telemetry = Telemetry::traces(&config).expect("an exporter");
    let tracer = telemetry.tracer();
    drop(tracer.server(&ServerRequest {
        method: &http::Method::POST,
        uri: &http::Uri::from_static("/v1/completions"),
        version: http::Version::HTTP_11,
        route: Some("/v1/completions"),
        headers: &HeaderMap::new(),
    }));
    tokio::task::spawn_blocking(move || telemetry.shutdown(LONG)).await.expect("ends");
    (export, tracer.counts())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_arrive_by_either_protocol() {
    for protocol in BOTH {
        let collector = Collector::start().await;
        let (export, counts) = one_span(&collector, protocol).await;
        let message = collector.only(protocol, &export);
        let request = ExportTraceServiceRequest::decode(message).expect("OTLP");
        assert_eq!(request.resource_spans[0].scope_spans[0].spans[0].name, "POST /v1/completions");
        assert_eq!(counts, Some(ExportCounts { ended: 1, exported: 1, failed: 0, dropped: 0 }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_busy_is_asked_again_and_one_that_refuses_is_not() {
    let collector = Collector::start().await;
    collector.seen.refusals.lock().unwrap().extend([14, 14]);
    let (_, counts) = one_span(&collector, Protocol::Grpc).await;
    assert_eq!(counts, Some(ExportCounts { ended: 1, exported: 1, failed: 0, dropped: 0 }));
    let collector = Collector::start().await;
    collector.seen.refusals.lock().unwrap().extend([7]);
    let (_, counts) = one_span(&collector, Protocol::Grpc).await;
    assert_eq!(counts, Some(ExportCounts { ended: 1, exported: 0, failed: 1, dropped: 0 }));
    assert!(collector.seen.posts.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_records_arrive_by_either_protocol() {
    for protocol in BOTH {
        let collector = Collector::start().await;
        let export = collector.export(protocol, "v1/logs", "logs.v1.LogsService");
        let resource = export::resource("router-1");
        let (records, worker) = records::start(&export, BATCHING, &resource).expect("an exporter");
        let counts = records.counts();
        let subscriber = tracing_subscriber::registry().with(records);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(replica = "gpu-0", epoch = 3u32, "replica lost its cache");
        });
        ended(worker).await;
        let message = collector.only(protocol, &export);
        let request = ExportLogsServiceRequest::decode(message).expect("OTLP");
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        let text = |value: &str| Some(Value::StringValue(value.to_owned()));
        assert_eq!(record.body.clone().unwrap().value, text("replica lost its cache"));
        assert_eq!((record.severity_number, record.severity_text.as_str()), (13, "WARN"));
        let field = |name: &str| {
            let found = record.attributes.iter().find(|pair| pair.key == name).expect(name);
            found.value.clone().unwrap().value
        };
        assert_eq!((field("replica"), field("epoch")), (text("gpu-0"), Some(Value::IntValue(3))));
        assert_eq!(counts.read(), ExportCounts { ended: 1, exported: 1, failed: 0, dropped: 0 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_arrive_by_either_protocol() {
    for protocol in BOTH {
        let collector = Collector::start().await;
        let export = collector.export(protocol, "v1/metrics", "metrics.v1.MetricsService");
        let resource = export::resource("router-1");
        let text = "# HELP grapevine_hits Hits.\n# TYPE grapevine_hits counter\ngrapevine_hits_total 7\n";
        let exposition: Exposition = Arc::new(|| text.to_owned());
        let worker = figures::start(&export, LONG * 60, &resource, exposition).expect("an exporter");
        ended(worker).await;
        let message = collector.only(protocol, &export);
        let request = ExportMetricsServiceRequest::decode(message).expect("OTLP");
        let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
        assert_eq!((metric.name.as_str(), metric.description.as_str()), ("grapevine_hits", "Hits"));
    }
}
