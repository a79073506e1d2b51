//! What is read of `OTEL_*`, and what is refused.

use std::collections::BTreeMap;

use super::super::{Config, Mistake};
use super::*;

const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");

fn parse(pairs: &[(&str, &str)]) -> Result<OtelConfig, Vec<String>> {
    let replicas = [("GRAPEVINE_REPLICAS", "http://a:8000")];
    let all = pairs.iter().chain(&replicas);
    let env: BTreeMap<String, String> = all.map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config = Config::from_env(&env).map(|config| config.otel);
    config.map_err(|mistakes| mistakes.0.iter().map(Mistake::to_string).collect())
}

fn mistakes(pairs: &[(&str, &str)]) -> Vec<String> {
    parse(pairs).expect_err("a mistake")
}

/// Where each signal goes: traces, metrics, logs.
fn endpoints(pairs: &[(&str, &str)]) -> [Option<String>; 3] {
    let config = parse(pairs).expect("good");
    config.exports().map(|(_, export)| export.map(|export| export.endpoint.clone()))
}

#[test]
fn an_endpoint_turns_all_signals_on() {
    assert_eq!(endpoints(&[]), [None, None, None]);
    assert_eq!(endpoints(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), [None, None, None], "empty is unset");
    let of = |name: &str| Some(format!("http://c:4318/v1/{name}"));
    assert_eq!(endpoints(&[BASE]), [of("traces"), of("metrics"), of("logs")]);
    assert_eq!(endpoints(&[BASE, ("OTEL_SDK_DISABLED", "TRUE")]), [None, None, None]);
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:4318/in");
    assert_eq!(endpoints(&[own]), [Some("http://t:4318/in".to_owned()), None, None]);
    assert_eq!(endpoints(&[BASE, own])[0].as_deref(), Some("http://t:4318/in"));
    let none = [
        BASE,
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_METRICS_EXPORTER", "prometheus"),
        ("OTEL_LOGS_EXPORTER", "console"),
    ];
    assert_eq!(endpoints(&none), [None, None, None]);
    assert_eq!(
        endpoints(&[("OTEL_LOGS_EXPORTER", "console,otlp")])[2].as_deref(),
        Some("http://localhost:4318/v1/logs")
    );
}

#[test]
fn grpc_has_paths_of_its_own_and_another_port() {
    let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let of = |base: &str, name: &str, service: &str| {
        Some(format!("{base}/opentelemetry.proto.collector.{name}.v1.{service}/Export"))
    };
    let at = |base: &str| {
        [
            of(base, "trace", "TraceService"),
            of(base, "metrics", "MetricsService"),
            of(base, "logs", "LogsService"),
        ]
    };
    assert_eq!(endpoints(&[grpc, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317")]), at("http://c:4317"));
    let own = [("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"), ("OTEL_METRICS_EXPORTER", "otlp")];
    assert_eq!(endpoints(&own), [None, at("http://localhost:4317")[1].clone(), None]);
}

#[test]
fn how_it_is_sent_can_be_said_for_all_and_for_each() {
    let config = parse(&[
        BASE,
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x-tenant=7"),
        ("OTEL_EXPORTER_OTLP_LOGS_HEADERS", "only=logs"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "/cert.pem"),
        ("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "/key.pem"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "100"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "7"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
    ])
    .expect("good");
    let (traces, logs) = (config.traces.expect("on"), config.logs.expect("on"));
    let header = |export: &Export, name: &str| export.headers[name].to_str().unwrap().to_owned();
    assert_eq!((header(&traces, "api-key"), header(&traces, "x-tenant")), ("a b".to_owned(), "7".to_owned()));
    assert_eq!((logs.headers.len(), header(&logs, "only")), (1, "logs".to_owned()));
    assert_eq!(traces.identity, Some(("/cert.pem".into(), "/key.pem".into())));
    assert_eq!((traces.ca, logs.ca.clone(), logs.identity), (logs.ca, Some("/ca.pem".into()), None));
    assert_eq!((config.spans_batch.queue, config.spans_batch.batch), (100, 100));
    assert_eq!(config.logs_batch.delay, Duration::from_millis(7));
    assert_eq!(config.metrics_interval, Duration::from_secs(1));
    assert!(!format!("{:?}", traces.headers).contains("a b"), "headers may be secrets");
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (name, value, problem) in [
        ("OTEL_PROPAGATORS", "b3", "`b3` is not supported: only `tracecontext,baggage` is spoken"),
        ("OTEL_TRACES_EXPORTER", "zipkin", "`zipkin` is not supported: use `otlp` or `none`"),
        (
            "OTEL_METRICS_EXPORTER",
            "console",
            "`console` is not supported: use `otlp` or `none` or `prometheus`",
        ),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "`http/json` is not supported: use"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "`gzip` is not supported: bodies are sent as they are"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k", "is set alone: set the CLIENT_CERTIFICATE too"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "secret", "its part 1 is not `key=value`"),
        ("OTEL_EXPORTER_OTLP_INSECURE", "true", "is not supported: the endpoint's scheme says it"),
        ("OTEL_TRACES_SAMPLER", "xray", "`xray` is not supported: use always_on"),
        ("OTEL_BSP_EXPORT_TIMEOUT", "1", "is not supported: set OTEL_EXPORTER_OTLP_TIMEOUT"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "`0` is not a number from 100 to 86400000"),
    ] {
        let found = mistakes(&[BASE, (name, value)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{name}: {problem}")), "{found:?}");
    }
    for (url, problem) in [
        ("c:4318", "has the scheme `c`: write for example `http://127.0.0.1:4318`"),
        ("http://u:p@c:4318", "has credentials in it: put them into OTEL_EXPORTER_OTLP_HEADERS"),
        ("//c", "is not a URL (relative URL without a base): write for example `http://127.0.0.1:4318`"),
    ] {
        let found = mistakes(&[("OTEL_EXPORTER_OTLP_ENDPOINT", url)]);
        assert_eq!(found, [format!("OTEL_EXPORTER_OTLP_ENDPOINT: {problem}")]);
    }
    assert!(parse(&[("OTEL_PROPAGATORS", "b3")]).is_ok(), "nothing is exported");
    assert!(parse(&[BASE, ("OTEL_PROPAGATORS", "baggage, tracecontext")]).is_ok());
}

#[test]
fn a_ratio_sampler_needs_its_ratio() {
    let with = |arg: &str| {
        parse(&[BASE, ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", arg)])
    };
    for (arg, good) in [("0", true), ("0.25", true), ("1", true), ("1.1", false), ("x", false), ("", false)] {
        assert_eq!(with(arg).is_ok(), good, "{arg}");
    }
}

#[test]
fn the_exporters_timeout_is_in_milliseconds() {
    let with = |pairs: &[(&str, &str)]| {
        parse(&[&[BASE], pairs].concat()).map(|config| config.traces.map(|traces| traces.timeout.as_millis()))
    };
    const ALL: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
    assert_eq!(with(&[]), Ok(Some(10_000)));
    assert_eq!(with(&[(ALL, "1")]), Ok(Some(1)));
    assert_eq!(with(&[(ALL, "1"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "600000")]), Ok(Some(600_000)));
    for text in ["0", "600001", "10s"] {
        let problem = format!("{ALL}: `{text}` is not a number of milliseconds from 1 to 600000");
        assert_eq!(with(&[(ALL, text)]), Err(vec![problem]));
    }
}
