//! Spans as a collector in the test process receives them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use grapevine_route::{Decision, Reason};
use grapevine_tree::{ReplicaId, RouterId, Teacher};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message;

use super::*;
use crate::config::Export;
use crate::metrics::kind::Inference;

const LONG: Duration = Duration::from_secs(60);
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

type Seen = Arc<Mutex<Vec<ExportTraceServiceRequest>>>;

/// A collector on loopback.
struct Collector {
    address: SocketAddr,
    seen: Seen,
}

/// A span as it was received, attributes as text.
#[derive(Debug)]
struct Received {
    name: String,
    kind: i32,
    trace: String,
    id: String,
    parent: String,
    state: String,
    failed: bool,
    attributes: BTreeMap<String, String>,
}

impl Collector {
    async fn start() -> Self {
        let seen = Seen::default();
        let take = |State(seen): State<Seen>, headers: HeaderMap, body: Bytes| async move {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            seen.lock().unwrap().push(ExportTraceServiceRequest::decode(body).expect("OTLP"));
        };
        let app = Router::new().route("/v1/traces", post(take)).with_state(Arc::clone(&seen));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(axum::serve(listener, app).into_future());
        Self { address, seen }
    }

    fn resource(&self) -> BTreeMap<String, String> {
        let seen = self.seen.lock().unwrap();
        text(&seen[0].resource_spans[0].resource.as_ref().expect("a resource").attributes)
    }

    fn spans(&self) -> Vec<Received> {
        let seen = self.seen.lock().unwrap();
        let scopes = seen.iter().flat_map(|r| &r.resource_spans).flat_map(|r| &r.scope_spans);
        let spans = scopes.flat_map(|scope| &scope.spans).map(|span| Received {
            name: span.name.clone(),
            kind: span.kind,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            state: span.trace_state.clone(),
            failed: span.status.as_ref().is_some_and(|status| status.code == 2),
            attributes: text(&span.attributes),
        });
        spans.collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |kv: &KeyValue| written(kv.value.as_ref());
    let map: BTreeMap<_, _> = attributes.iter().map(|kv| (kv.key.clone(), value(kv))).collect();
    assert_eq!(map.len(), attributes.len(), "each attribute once: {attributes:?}");
    map
}

fn written(value: Option<&AnyValue>) -> String {
    match value.and_then(|v| v.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::DoubleValue(_)) => "double".to_owned(),
        Some(Value::ArrayValue(list)) => list.values.iter().map(|v| written(Some(v))).collect(),
        other => panic!("{other:?}"),
    }
}

fn telemetry(endpoint: String, timeout: Duration) -> Telemetry {
    // Whoever was first in this process has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut config = Config::local("router-1", Vec::new());
    config.otel.traces = Some(Export::http(endpoint, timeout));
    Telemetry::traces(&config).expect("an exporter")
}

async fn shutdown(telemetry: Telemetry, limit: Duration) {
    tokio::task::spawn_blocking(move || telemetry.shutdown(limit)).await.expect("ends");
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

fn server(tracer: &Tracer, headers: &HeaderMap) -> ServerSpan {
    let uri = Uri::from_static("/v1/chat/completions?secret=1");
    let route = Some("/v1/chat/completions");
    tracer.server(&ServerRequest {
        method: &Method::POST,
        uri: &uri,
        scheme: "http",
        version: Version::HTTP_11,
        route,
        headers,
    })
}

const CALL: EngineCall<'static> = EngineCall {
    inference: Some(Inference::Chat),
    method: &Method::POST,
    model: Some("llama-3"),
    stream: true,
    replica: "gpu-0",
    url: "http://10.0.0.1:8000/base",
};

const DECISION: Decision = Decision {
    replica: ReplicaId(7),
    index: 0,
    reason: Reason::Guard,
    prompt_tokens: 100,
    matched_tokens: 60,
    best_matched_tokens: 80,
    teacher: Some(Teacher::Peer(RouterId(0xabc))),
    guarded: Some(ReplicaId(9)),
    tied: 2,
};

fn attributes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_three_spans_in_the_clients_trace() {
    let collector = Collector::start().await;
    let telemetry = telemetry(format!("http://{}/v1/traces", collector.address), LONG);
    let tracer = telemetry.tracer();

    let from_client = headers(&[("traceparent", PARENT), ("tracestate", "vendor=1"), ("baggage", "user=7")]);
    let mut request = server(&tracer, &from_client);
    assert_eq!(request.trace_id().as_deref(), Some(TRACE));
    request.route().decided(&DECISION, "gpu-0");
    let mut call = request.engine(&CALL);
    let mut to_engine = from_client.clone();
    call.inject(&mut to_engine);
    call.status(StatusCode::OK);
    call.first_chunk();
    call.usage(Some(100), Some(20), Some(64));
    call.finished(&["stop"]);
    drop(call);
    request.status(StatusCode::OK);
    drop(request);
    shutdown(telemetry, LONG).await;

    assert_eq!(tracer.counts(), Some(ExportCounts { ended: 3, exported: 3, failed: 0, dropped: 0 }));
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "grapevine");
    assert_eq!(resource["service.instance.id"], "router-1");

    let spans = collector.spans();
    let [route, call, request] = &spans[..] else { panic!("{spans:?}") };
    assert!(spans.iter().all(|s| s.trace == TRACE && !s.failed && s.state == "vendor=1"), "{spans:?}");
    assert_eq!((request.name.as_str(), request.kind), ("POST /v1/chat/completions", 2));
    assert_eq!(request.parent, "b7ad6b7169203331");
    assert_eq!((route.name.as_str(), route.kind, &route.parent), ("route", 1, &request.id));
    assert_eq!((call.name.as_str(), call.kind, &call.parent), ("chat llama-3", 3, &request.id));
    assert_eq!(to_engine["traceparent"], format!("00-{TRACE}-{}-01", call.id));
    assert_eq!(to_engine["tracestate"], "vendor=1");
    assert_eq!(to_engine["baggage"], "user=7");
    assert_eq!(
        request.attributes,
        attributes(&[
            ("http.request.method", "POST"),
            ("http.response.status_code", "200"),
            ("http.route", "/v1/chat/completions"),
            ("network.protocol.version", "1.1"),
            ("url.path", "/v1/chat/completions"),
            ("url.scheme", "http"),
        ])
    );
    assert_eq!(
        route.attributes,
        attributes(&[
            ("grapevine.best_matched_tokens", "80"),
            ("grapevine.guarded", "00000009"),
            ("grapevine.matched_tokens", "60"),
            ("grapevine.prompt_tokens", "100"),
            ("grapevine.reason", "guard"),
            ("grapevine.replica", "gpu-0"),
            ("grapevine.teacher", "00000abc"),
            ("grapevine.tied", "2"),
        ])
    );
    assert_eq!(
        call.attributes,
        attributes(&[
            ("gen_ai.operation.name", "chat"),
            ("gen_ai.provider.name", "openai"),
            ("gen_ai.request.model", "llama-3"),
            ("gen_ai.request.stream", "true"),
            ("gen_ai.response.finish_reasons", "stop"),
            ("gen_ai.response.time_to_first_chunk", "double"),
            ("gen_ai.usage.cache_read.input_tokens", "64"),
            ("gen_ai.usage.input_tokens", "100"),
            ("gen_ai.usage.output_tokens", "20"),
            ("grapevine.replica", "gpu-0"),
            ("http.request.method", "POST"),
            ("http.response.status_code", "200"),
            ("server.address", "10.0.0.1"),
            ("server.port", "8000"),
        ])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_and_other_requests_are_told_apart() {
    let collector = Collector::start().await;
    let telemetry = telemetry(format!("http://{}/v1/traces", collector.address), LONG);
    let tracer = telemetry.tracer();

    // No trace of the client: a new one. A path that is not known gives no name.
    let (uri, method) = (Uri::from_static("/v1/models"), Method::from_bytes(b"BREW").unwrap());
    let none = HeaderMap::new();
    let unknown = ServerRequest {
        method: &method,
        uri: &uri,
        scheme: "https",
        version: Version::HTTP_2,
        route: None,
        headers: &none,
    };
    let mut request = tracer.server(&unknown);
    request.route().fail("no_replica");
    let mut call = request.engine(&EngineCall { inference: None, model: None, url: "https://a", ..CALL });
    call.fail("connect");
    call.fail("reset");
    let mut to_engine = headers(&[("tracestate", "stale=1")]);
    call.inject(&mut to_engine);
    drop(call);
    request.status(StatusCode::BAD_REQUEST);
    request.status(StatusCode::BAD_GATEWAY);
    request.fail("no_replica");
    drop(request);
    let mut refused = server(&tracer, &none);
    refused.status(StatusCode::NOT_FOUND);
    refused.engine(&EngineCall { model: None, ..CALL }).status(StatusCode::NOT_FOUND);
    refused.fail("body_too_large");
    drop(refused);
    shutdown(telemetry, LONG).await;

    let spans = collector.spans();
    let [route, call, request, refused_call, refused] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((route.failed, route.attributes["error.type"].as_str()), (true, "no_replica"));
    assert_eq!((call.failed, call.attributes["error.type"].as_str()), (true, "connect"));
    assert_eq!((call.name.as_str(), call.attributes["server.port"].as_str()), ("POST", "443"));
    assert_eq!((request.failed, request.attributes["error.type"].as_str()), (true, "no_replica"));
    assert_eq!(request.attributes["http.response.status_code"], "502", "the last one");
    assert_eq!((refused_call.failed, refused_call.attributes["error.type"].as_str()), (true, "404"));
    assert_eq!(refused_call.name, "chat");
    assert_eq!((request.name.as_str(), request.parent.as_str()), ("HTTP", ""));
    assert_eq!(request.attributes["http.request.method"], "_OTHER");
    assert_eq!(request.attributes["url.scheme"], "https");
    assert!(!to_engine.contains_key("tracestate"), "it belongs to no trace");
    assert_eq!(to_engine["traceparent"], format!("00-{}-{}-01", request.trace, call.id));
    assert!(!refused.failed, "the client's mistake is not the server's error");
    assert_eq!(refused.attributes["error.type"], "body_too_large");
    assert_ne!(refused.trace, request.trace);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_sample_is_followed() {
    let collector = Collector::start().await;
    let telemetry = telemetry(format!("http://{}/v1/traces", collector.address), LONG);
    let tracer = telemetry.tracer();
    let mut to_engine = headers(&[("traceparent", PARENT), ("tracestate", "vendor=1")]);
    to_engine.insert("traceparent", HeaderValue::from_str(&PARENT.replace("-01", "-00")).unwrap());
    let request = server(&tracer, &to_engine.clone());
    request.engine(&CALL).inject(&mut to_engine);
    drop(request);
    shutdown(telemetry, LONG).await;
    assert_eq!(tracer.counts(), Some(ExportCounts::default()));
    let parent = to_engine["traceparent"].to_str().unwrap();
    assert!(parent.starts_with(&format!("00-{TRACE}-")) && parent.ends_with("-00"), "{parent}");
    assert_eq!(to_engine["tracestate"], "vendor=1");
}

#[test]
fn off_leaves_the_clients_headers_alone() {
    let telemetry = Telemetry::traces(&Config::local("r", Vec::new())).expect("off");
    let tracer = telemetry.tracer();
    let sent = headers(&[("traceparent", "anything at all"), ("tracestate", "x"), ("baggage", "y")]);
    let mut request = server(&tracer, &sent);
    request.route().decided(&DECISION, "gpu-0");
    let mut call = request.engine(&CALL);
    let mut to_engine = sent.clone();
    call.inject(&mut to_engine);
    call.status(StatusCode::OK);
    call.first_chunk();
    call.usage(Some(1), Some(1), None);
    request.status(StatusCode::OK);
    assert_eq!((to_engine, request.trace_id(), tracer.counts()), (sent, None, None));
    assert_eq!(size_of::<ServerSpan>(), size_of::<usize>(), "a null pointer");
    telemetry.shutdown(LONG);
}

/// More spans than the queue holds, to a collector that accepts connections and never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_collector_costs_spans_only() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let telemetry = telemetry(format!("http://{}/v1/traces", silent.local_addr().unwrap()), LONG);
    let tracer = telemetry.tracer();
    for _ in 0..10_000 {
        drop(server(&tracer, &HeaderMap::new()));
    }
    shutdown(telemetry, Duration::from_millis(50)).await;
    // The export still hangs: the limit of the shutdown ended it, nothing else.
    let counts = tracer.counts().expect("on");
    assert_eq!((counts.ended, counts.exported, counts.failed), (10_000, 0, 0));
    // The queue and one batch, or two.
    assert!((6_000..=10_000 - 2_048).contains(&counts.dropped), "{counts:?}");
    // What ends later is neither an error nor queued.
    let mut late = server(&tracer, &headers(&[("traceparent", PARENT)]));
    let mut to_engine = headers(&[("traceparent", PARENT)]);
    late.engine(&CALL).inject(&mut to_engine);
    late.status(StatusCode::OK);
    assert_eq!(to_engine["traceparent"], PARENT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_that_no_collector_takes_are_counted() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().unwrap();
    drop(free);
    let telemetry = telemetry(format!("http://{address}/v1/traces"), LONG);
    let tracer = telemetry.tracer();
    for _ in 0..10 {
        drop(server(&tracer, &HeaderMap::new()));
    }
    shutdown(telemetry, LONG).await;
    assert_eq!(tracer.counts(), Some(ExportCounts { ended: 10, exported: 0, failed: 10, dropped: 0 }));
}
