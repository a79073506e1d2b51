//! Collectors of telemetry: one that works, one that is gone, one that says nothing.

use std::collections::VecDeque;
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

/// Connections that a silent collector holds: more than a router has open at a time.
const HELD: usize = 64;

/// The address of a collector that takes connections and never answers.
fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut held = VecDeque::new();
        for connection in listener.incoming() {
            // The router gave the oldest up long ago.
            held.truncate(HELD - 1);
            held.push_front(connection);
        }
    });
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

/// Parts of the long test; memory and latency are looked at after each.
const PARTS: u32 = 8;

/// One of the routers that are compared.
struct Measured {
    what: &'static str,
    router: Router,
    load: Process,
    looks: Vec<Look>,
    _engines: Vec<Engine>,
}

/// What there was to see at the end of a part; at the start there is memory only.
#[derive(Default)]
struct Look {
    rss_mib: usize,
    /// Latency in milliseconds, median of the load's last lines.
    p50: f64,
    p99: f64,
    /// Hundredths of a second so far.
    router_ticks: u64,
    load_ticks: u64,
}

/// The middle one of the figures that follow `name` in the lines of `log`; 0 without any.
fn middle(log: &str, name: &str) -> f64 {
    let of = |line: &str| line.split(&format!("{name} ")).nth(1)?.split(' ').next()?.parse().ok();
    let mut found: Vec<f64> = log.lines().filter_map(of).collect();
    found.sort_unstable_by(f64::total_cmp);
    found.get(found.len() / 2).copied().unwrap_or_default()
}

impl Measured {
    fn start(what: &'static str, settings: &[(&str, String)]) -> Self {
        let quick = ["--base-ms", "0", "--prefill-us-per-block", "0", "--decode-ms-per-token", "0"];
        let engines: Vec<Engine> = (0..2).map(|_| Engine::start(&quick)).collect();
        let urls: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
        let router = Router::start(&urls, settings);
        let at_start = Look { rss_mib: router.process.memory("VmRSS") >> 20, ..Look::default() };
        let (rate, seconds) = (number("RATE", RATE).to_string(), number("SECONDS", SECONDS).to_string());
        let args = ["load", &router.url, "--rate", &rate, "--seconds", &seconds, "--max-tokens", "1"];
        let load = Process::start(&args, &[]);
        Self { what, router, load, looks: vec![at_start], _engines: engines }
    }

    fn look(&mut self) {
        let log = self.load.log();
        self.looks.push(Look {
            rss_mib: self.router.process.memory("VmRSS") >> 20,
            p50: middle(&log, "p50"),
            p99: middle(&log, "p99"),
            router_ticks: self.router.process.cpu_ticks(),
            load_ticks: self.load.cpu_ticks(),
        });
    }

    /// What a figure was at each look.
    fn each<T: ToString>(&self, figure: impl Fn(&Look) -> T) -> String {
        self.looks.iter().map(|look| figure(look).to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Some lines of the table: what was seen at each look, what became of spans, time to the end.
    fn finish(mut self) -> String {
        assert_eq!(self.load.end().code(), Some(0), "{}", self.load.log());
        let summary = self.load.log().lines().last().unwrap().to_owned();
        let spans = self.router.status().telemetry.get("spans").copied();
        let began = Instant::now();
        self.router.process.signal("TERM");
        assert_eq!(self.router.process.end().code(), Some(0));
        let ended = began.elapsed().as_secs_f64();
        format!(
            "{}: {summary}\n  p50 ms {}\n  p99 ms {}\n  RSS MiB {}\n  CPU s, router {}; load {}\n  {spans:?}\n  ended in {ended:.1} s",
            self.what,
            self.each(|look| look.p50),
            self.each(|look| look.p99),
            self.each(|look| look.rss_mib),
            self.each(|look| look.router_ticks / 100),
            self.each(|look| look.load_ticks / 100),
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
    for _ in 0..PARTS {
        // The last look comes before the load's end.
        thread::sleep(Duration::from_millis(number("SECONDS", SECONDS) * 990) / PARTS);
        measured.iter_mut().for_each(Measured::look);
    }
    for one in measured {
        println!("{}", one.finish());
    }
}
