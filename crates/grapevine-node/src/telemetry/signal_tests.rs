//! Spans, log records and metrics as a collector in the test process receives them, by HTTP and by gRPC.

use std::time::Instant;

use http::HeaderMap;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message;
use tracing_subscriber::layer::SubscriberExt;

use super::collector::{Collector, LONG};
use super::*;
use crate::config::{Batching, Export, Protocol};

async fn ended(worker: Worker) {
    worker.stop();
    let end = move || worker.ended(Instant::now() + LONG);
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
        scheme: "http",
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
        let counts = Arc::<Counts>::default();
        let worker = figures::start(&export, LONG * 60, &resource, exposition, Arc::clone(&counts));
        ended(worker.expect("an exporter")).await;
        assert_eq!(counts.read(), ExportCounts { ended: 1, exported: 1, failed: 0, dropped: 0 });
        let message = collector.only(protocol, &export);
        let request = ExportMetricsServiceRequest::decode(message).expect("OTLP");
        let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
        assert_eq!((metric.name.as_str(), metric.description.as_str()), ("grapevine_hits", "Hits"));
    }
}
