//! Collectors of telemetry: one that works, one that is gone, one that says nothing.

use std::net::TcpListener;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use grapevine_node::admin::status::ExportStatus;
use grapevine_testkit::otlp::OtlpReceiver;
use serde_json::json;

use super::process::{Engine, Process, Router, binary, chat, free_tcp, get, wait_for};

/// Spans that may wait in the quick tests.
const QUEUE: u64 = 64;

/// Requests of the quick tests, with three spans each: more than what may wait.
const REQUESTS: usize = 60;

/// Load of the long test unless `RATE` says otherwise, requests a second on each router.
const RATE: u64 = 500;

/// How long it takes unless `SECONDS` says otherwise.
const SECONDS: u64 = 600;

fn setting(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_owned())
}

/// The address of a collector that takes connections and never answers.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    // Every connection is held, for ever.
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    addr.to_string()
}

/// Everything is exported to `collector`.
fn exported(collector: &str) -> (&'static str, String) {
    setting("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{collector}"))
}

fn ask(router: &Router, requests: usize) {
    for i in 0..requests {
        let messages = json!([{"role": "user", "content": format!("question {i}")}]);
        assert_eq!(chat(&router.url, &messages).0.status, 200);
    }
}

fn exports(router: &Router, signal: &str) -> ExportStatus {
    router.status().telemetry[signal]
}

/// A router on one core with one worker thread: nothing of the exporters may need a second one.
#[test]
fn one_core_and_one_worker_are_enough_to_export_everything() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = Engine::start(&["--base-ms", "0"]);
    for protocol in ["http/protobuf", "grpc"] {
        let collector = runtime.block_on(OtlpReceiver::start()).unwrap();
        let settings = [
            setting("GRAPEVINE_WORKERS", "1"),
            setting("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.endpoint()),
            setting("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            // What is not sent at the end is not sent at all.
            setting("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
            setting("OTEL_BLRP_SCHEDULE_DELAY", "3600000"),
            setting("OTEL_METRIC_EXPORT_INTERVAL", "86400000"),
        ];
        let mut command = Command::new("taskset");
        command.args(["-c", "0", &binary(), "serve"]);
        let mut router = Router::start_with(command, std::slice::from_ref(&engine.url), &settings);
        ask(&router, 3);
        router.process.signal("TERM");
        assert_eq!(router.process.end().code(), Some(0), "{protocol}");
        let requests = collector.spans().iter().filter(|span| span.name.starts_with("POST ")).count();
        assert_eq!((requests, collector.log_exports(), collector.metric_exports()), (3, 1, 1), "{protocol}");
    }
}

#[test]
fn a_collector_that_is_gone_or_silent_costs_telemetry_and_nothing_else() {
    let engine = Engine::start(&["--base-ms", "0", "--decode-ms-per-token", "0"]);
    for collector in [free_tcp(), silent()] {
        for protocol in ["http/protobuf", "grpc"] {
            let settings = [
                exported(&collector),
                setting("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                setting("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
                setting("OTEL_BSP_MAX_QUEUE_SIZE", &QUEUE.to_string()),
                setting("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &QUEUE.to_string()),
                setting("OTEL_METRIC_EXPORT_INTERVAL", "100"),
            ];
            let mut router = Router::start(std::slice::from_ref(&engine.url), &settings);
            ask(&router, REQUESTS);
            let spans = wait_for("the last spans", || {
                Some(exports(&router, "spans")).filter(|spans| spans.made >= 3 * REQUESTS as u64)
            });
            // Those that wait, and those that are being sent.
            let kept = spans.made - spans.dropped - spans.failed;
            assert!(kept <= 2 * QUEUE, "{spans:?}");
            assert_eq!(spans.delivered, 0);
            router.process.signal("TERM");
            assert_eq!(router.process.end().code(), Some(0), "{collector} {protocol}");
        }
    }
}

#[test]
fn what_a_dead_collector_did_not_take_is_counted_for_every_signal() {
    let engine = Engine::start(&["--base-ms", "0"]);
    let settings = [
        exported(&free_tcp()),
        setting("OTEL_BSP_SCHEDULE_DELAY", "0"),
        setting("OTEL_BLRP_SCHEDULE_DELAY", "0"),
        setting("OTEL_METRIC_EXPORT_INTERVAL", "100"),
    ];
    let router = Router::start(std::slice::from_ref(&engine.url), &settings);
    ask(&router, 1);
    for signal in ["spans", "logs", "metrics"] {
        wait_for(signal, || (exports(&router, signal).failed > 0).then_some(()));
        let metrics = String::from_utf8(get(&format!("{}/metrics", router.admin)).1).unwrap();
        let line = format!("grapevine_telemetry_failed_total{{signal=\"{signal}\"}} ");
        let failed = metrics.lines().find_map(|l| l.strip_prefix(&line)).unwrap();
        assert_ne!(failed, "0", "{signal}");
    }
}

/// What the environment says, or `default`.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// One of the routers that are compared.
struct Measured {
    what: &'static str,
    router: Router,
    load: Process,
    /// Resident memory, looked at every tenth of the time.
    rss: Vec<usize>,
    _engines: Vec<Engine>,
}

impl Measured {
    fn start(what: &'static str, settings: &[(&str, String)]) -> Self {
        let quick = ["--base-ms", "0", "--prefill-us-per-block", "0", "--decode-ms-per-token", "0"];
        let engines: Vec<Engine> = (0..2).map(|_| Engine::start(&quick)).collect();
        let urls: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
        let router = Router::start(&urls, settings);
        let (rate, seconds) = (number("RATE", RATE).to_string(), number("SECONDS", SECONDS).to_string());
        let args = ["load", &router.url, "--rate", &rate, "--seconds", &seconds, "--max-tokens", "1"];
        let load = Process::start(&args, &[]);
        Self { what, router, load, rss: Vec::new(), _engines: engines }
    }

    /// A row of the table: the last figures of the load, memory, what became of spans, time to the end.
    fn finish(mut self) -> String {
        assert_eq!(self.load.end().code(), Some(0), "{}", self.load.log());
        let log = self.load.log();
        let middle = |name: &str| {
            let of = |line: &str| line.split(&format!("{name} ")).nth(1)?.split(' ').next()?.parse().ok();
            let mut found: Vec<u64> = log.lines().filter_map(of).collect();
            found.sort_unstable();
            found[found.len() / 2]
        };
        let summary = log.lines().last().unwrap().to_owned();
        let spans = self.router.status().telemetry.get("spans").copied();
        let began = Instant::now();
        self.router.process.signal("TERM");
        assert_eq!(self.router.process.end().code(), Some(0));
        let rss: Vec<String> = self.rss.iter().map(|bytes| (bytes >> 20).to_string()).collect();
        format!(
            "{}: p50 {} ms, p99 {} ms; RSS {} MiB; {spans:?}; ended in {:.1} s; {summary}",
            self.what,
            middle("p50"),
            middle("p99"),
            rss.join(" "),
            began.elapsed().as_secs_f64(),
        )
    }
}

#[test]
#[ignore = "measures for ten minutes: docs/observability.md"]
fn ten_minutes_without_a_collector() {
    let mut measured = [
        Measured::start("no export", &[]),
        Measured::start("nobody listens", &[exported(&free_tcp())]),
        Measured::start("never answers", &[exported(&silent())]),
    ];
    for _ in 0..10 {
        thread::sleep(Duration::from_secs(number("SECONDS", SECONDS)) / 10);
        for one in &mut measured {
            one.rss.push(one.router.process.memory("VmRSS"));
        }
    }
    for one in measured {
        println!("{}", one.finish());
    }
}
