//! Spans of real requests: client, router, simulated engine and collector in one process.

use std::time::Duration;

use grapevine_testkit::engine::{CutHow, Engine, EngineConfig, EngineHandle, Fault, FaultRule};
use grapevine_testkit::otlp::{OtlpReceiver, Span, SpanKind};
use reqwest::Response;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Telemetry;
use crate::config::{Config, Export, ReplicaSpec};
use crate::{App, Deps};

const LONG: Duration = Duration::from_secs(60);
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

/// A router before one engine, and the collector of its spans.
struct Fleet {
    collector: OtlpReceiver,
    engine: EngineHandle,
    telemetry: Telemetry,
    url: String,
    stop: oneshot::Sender<()>,
    router: JoinHandle<()>,
}

impl Fleet {
    async fn start() -> Self {
        let collector = OtlpReceiver::start().await.expect("a free port");
        let engine = EngineConfig { record_requests: 8, ..EngineConfig::default() };
        let engine = Engine::start(engine).await.expect("a free port");
        let replica = ReplicaSpec::new("gpu-0", engine.url());
        let mut config = Config::local("router-1", vec![replica]);
        let endpoint = format!("{}/v1/traces", collector.endpoint());
        config.otel.traces = Some(Export::http(endpoint, LONG));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let telemetry = Telemetry::traces(&config).expect("an exporter");
        let deps = Deps { tracer: telemetry.tracer(), ..Deps::default() };
        let app = App::build(config, deps).await.expect("a router");
        let url = format!("http://{}/v1/chat/completions", app.addresses().front);
        let (stop, stopped) = oneshot::channel();
        let router = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            app.run(stopped).await.expect("a good end");
        });
        Self { collector, engine, telemetry, url, stop, router }
    }

    /// A stream in the client's own trace.
    async fn ask(&self) -> Response {
        let question = "What holds a vine? ".repeat(40);
        let body = serde_json::json!({
            "model": EngineConfig::default().models[0],
            "stream": true,
            "stream_options": { "include_usage": true },
            "messages": [{ "role": "user", "content": question }],
            "max_tokens": 8,
        });
        let request = reqwest::Client::new().post(&self.url).body(body.to_string());
        let request = request
            .header("content-type", "application/json")
            .header("traceparent", format!("00-{TRACE}-b7ad6b7169203331-01"))
            .header("tracestate", "vendor=1")
            .header("baggage", "user=7");
        request.send().await.expect("an answer")
    }

    /// Ends the router, and gives what the collector has then: server, route and client span.
    async fn spans(self) -> [Span; 3] {
        let _ = self.stop.send(());
        self.router.await.expect("no panic");
        let Self { telemetry, collector, .. } = self;
        tokio::task::spawn_blocking(move || telemetry.shutdown(LONG)).await.expect("no panic");
        let spans = collector.spans();
        let of = |kind| spans.iter().find(|span| span.kind == kind).cloned();
        assert_eq!(spans.len(), 3, "{spans:?}");
        [SpanKind::Server, SpanKind::Internal, SpanKind::Client].map(|kind| of(kind).expect("one of each"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_traced_from_client_to_engine() {
    let fleet = Fleet::start().await;
    let model = EngineConfig::default().models[0].clone();
    let answer = fleet.ask().await;
    assert_eq!(answer.status(), 200);
    answer.text().await.expect("the whole stream");
    let received = fleet.engine.received();
    let request = received.iter().find(|request| request.method == "POST").expect("besides probes");
    let header = |name: &str| {
        let found = request.headers.iter().find(|(header, _)| header == name);
        found.unwrap_or_else(|| panic!("{name}: {received:?}")).1.clone()
    };
    let (parent, state, baggage) = (header("traceparent"), header("tracestate"), header("baggage"));
    let [server, route, call] = fleet.spans().await;

    assert_eq!(
        (server.name.as_str(), server.parent.as_deref()),
        ("POST /v1/chat/completions", Some("b7ad6b7169203331"))
    );
    assert_eq!(server.attributes["http.response.status_code"], 200);
    assert_eq!(server.resource["service.instance.id"], "router-1");
    for span in [&route, &call] {
        assert_eq!((span.parent.as_ref(), span.trace_id.as_str()), (Some(&server.span_id), TRACE));
        assert!(server.start_nanos <= span.start_nanos && span.end_nanos <= server.end_nanos, "{span:?}");
    }
    assert_eq!(route.attributes["grapevine.replica"], "gpu-0");
    assert_eq!(route.attributes["grapevine.reason"], "only");
    assert_eq!(call.name, format!("chat {model}"));
    assert_eq!(call.attributes["gen_ai.request.stream"], true);
    assert!(call.attributes["gen_ai.usage.input_tokens"].as_u64() > Some(100), "{call:?}");
    assert_eq!(call.attributes["gen_ai.usage.output_tokens"], 8);
    assert_eq!(call.attributes["gen_ai.response.finish_reasons"], serde_json::json!(["length"]));
    assert_eq!(call.attributes["gen_ai.usage.cache_read.input_tokens"], 0);
    assert!(call.attributes["gen_ai.response.time_to_first_chunk"].is_f64());
    assert_eq!(parent, format!("00-{TRACE}-{}-01", call.span_id));
    assert_eq!((state.as_str(), baggage.as_str()), ("vendor=1", "user=7"));
    assert!([server, route, call].iter().all(|span| span.error.is_none()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_answer_ends_its_spans_with_an_error() {
    let fleet = Fleet::start().await;
    fleet.engine.faults().add(FaultRule::next(Fault::Cut { after_events: 2, how: CutHow::Rst }, 1));
    let answer = fleet.ask().await;
    assert!(answer.text().await.is_err(), "an answer that was cut has no good end");
    let [server, _, call] = fleet.spans().await;
    for span in [server, call] {
        assert!(span.error.is_some(), "{span:?}");
        assert_eq!(span.attributes["error.type"], "engine_cut");
        assert_eq!(span.attributes["http.response.status_code"], 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_no_error_of_the_engine() {
    let fleet = Fleet::start().await;
    fleet.engine.faults().add(FaultRule::next(Fault::Stall { after_events: 1 }, 1));
    let mut answer = fleet.ask().await;
    answer.chunk().await.expect("the first event");
    drop(answer);
    let [server, _, call] = fleet.spans().await;
    assert_eq!(server.attributes["error.type"], "client_closed");
    assert!(!call.attributes.contains_key("error.type"), "{call:?}");
}
