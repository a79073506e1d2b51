//! Hosts on which an engine or a router runs, or does not.

use std::process::Command;

use grapevine_node::admin::status::Status;
use serde_json::Value;

use super::clock::Clock;
use super::collector::Collector;
use super::files::Files;
use super::node::Host;
use super::process::{Process, binary, exchange, get, wait_for};

/// Blocks of 64 bytes in an engine's cache: 15 of the 30 prefixes that are asked for, so that three engines can
/// stand in for four.
const CACHE_BLOCKS: &str = "1000";

/// Slow enough for streams of seconds with few events: the machine's time is the routers'.
const DECODE_MS: &str = "40";

/// Descriptors of a router: enough for all clients, few enough to be taken by idlers.
pub(crate) const DESCRIPTORS: usize = 256;

const ADMIN_TOKEN: &str = "the token of the fault matrix";

/// An engine's host, and the engine.
pub(crate) struct EngineSeat {
    pub(crate) host: Host,
    pub(crate) process: Process,
}

impl EngineSeat {
    pub(crate) fn new(number: u8) -> Self {
        let host = Host::new(number);
        let process = Self::run(&host);
        Self { host, process }
    }

    fn addr(host: &Host) -> String {
        format!("{}:8000", host.ip())
    }

    fn run(host: &Host) -> Process {
        let mut command = host.command();
        command.args([&binary(), "engine", "--listen", &Self::addr(host), "--no-cache-output"]);
        command.args(["--cache-blocks", CACHE_BLOCKS, "--decode-ms-per-token", DECODE_MS]);
        let process = Process::spawn(command, &[]);
        process.line(|line| line.starts_with("listening on ").then_some(()));
        process
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", Self::addr(&self.host))
    }

    pub(crate) fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.end();
    }

    /// A new process, its cache empty.
    pub(crate) fn start(&mut self) {
        self.process = Self::run(&self.host);
    }

    /// From now on it suffers these faults; an empty list ends them.
    pub(crate) fn suffer(&self, rules: &Value) {
        let body = rules.to_string();
        let (head, answer) = exchange(&format!("{}/faults", self.url()), "POST", &[], body.as_bytes());
        assert_eq!(head.status, 200, "{}", String::from_utf8_lossy(&answer));
    }

    pub(crate) fn is_idle(&self) -> bool {
        let (status, body) = get(&format!("{}/stats", self.url()));
        let stats: Value = serde_json::from_slice(&body).unwrap_or_default();
        status == 200 && stats["running"] == 0 && stats["waiting"] == 0
    }
}

/// A router's host, and the router.
pub(crate) struct RouterSeat {
    pub(crate) host: Host,
    pub(crate) process: Process,
    pub(crate) clock: Clock,
    settings: Vec<(&'static str, String)>,
}

impl RouterSeat {
    pub(crate) fn new(number: u8, files: &Files) -> Self {
        let host = Host::new(number);
        let name = format!("r{number}");
        let clock = Clock::new(&files.folder, &name);
        let mut settings = settings(&host.ip(), &name, files);
        settings.extend(clock.settings());
        let process = Self::run(&host, &settings);
        Self { host, process, clock, settings }
    }

    fn run(host: &Host, settings: &[(&'static str, String)]) -> Process {
        let mut command = host.command();
        let script = format!("ulimit -n {DESCRIPTORS} && exec \"$0\" serve");
        command.args(["sh", "-c", &script, &binary()]);
        Process::spawn(command, settings)
    }

    /// The next process has this setting; `None` takes it away.
    pub(crate) fn set(&mut self, name: &'static str, value: Option<&str>) {
        self.settings.retain(|(other, _)| *other != name);
        self.settings.extend(value.map(|value| (name, value.to_owned())));
    }

    pub(crate) fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.end();
    }

    /// Lets it end as a supervisor does.
    pub(crate) fn retire(&mut self) {
        self.process.signal("TERM");
        let code = self.process.end().code();
        assert_eq!(code, Some(0), "{}", self.process.log());
    }

    pub(crate) fn start(&mut self) {
        self.process = Self::run(&self.host, &self.settings);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}:8080", self.host.ip())
    }

    pub(crate) fn admin(&self) -> String {
        format!("http://{}:9091", self.host.ip())
    }

    pub(crate) fn is_ready(&self) -> bool {
        get(&format!("{}/readyz", self.admin())).0 == 200
    }

    pub(crate) fn becomes_ready(&self) {
        wait_for(&format!("{} to be ready", self.url()), || self.is_ready().then_some(()));
    }

    /// What it says of itself, if it says anything.
    pub(crate) fn status(&self) -> Option<Status> {
        let token = format!("Bearer {ADMIN_TOKEN}");
        let url = format!("{}/api/v1/status", self.admin());
        serde_json::from_slice(&exchange(&url, "GET", &[("authorization", &token)], b"").1).ok()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.status().is_some_and(|status| {
            status.inflight == 0 && status.replicas.iter().all(|r| r.inflight == 0 && r.queued_tokens == 0)
        })
    }

    /// Resident memory, MiB.
    pub(crate) fn memory(&self) -> u64 {
        (self.process.memory("VmRSS") >> 20) as u64
    }

    /// How many descriptors it may open from now on.
    pub(crate) fn limit_descriptors(&self, soft: usize) {
        let limit = format!("--nofile={soft}:{DESCRIPTORS}");
        let done = Command::new("prlimit").args(["--pid", &self.process.id().to_string(), &limit]).status();
        assert!(done.unwrap().success());
    }

    /// Lets it compute on these cores only.
    pub(crate) fn pin(&self, cores: &str) {
        let pid = self.process.id().to_string();
        let done = Command::new("taskset").args(["-a", "-p", "-c", cores, &pid]).output().unwrap();
        assert!(done.status.success());
    }
}

/// Faster looks and shorter limits than the defaults: a fault must fit into seconds. They are named in
/// docs/reliability.md.
fn settings(ip: &str, name: &str, files: &Files) -> Vec<(&'static str, String)> {
    let path = |path: std::path::PathBuf| path.display().to_string();
    let set = |name, value: &str| (name, value.to_owned());
    vec![
        set("GRAPEVINE_LISTEN", &format!("{ip}:8080")),
        set("GRAPEVINE_ADMIN_LISTEN", &format!("{ip}:9091")),
        set("GRAPEVINE_GOSSIP_LISTEN", &format!("{ip}:7946")),
        set("GRAPEVINE_GOSSIP_SEEDS", "routers.fleet.test:7946"),
        set("GRAPEVINE_ROUTER_ID", name),
        set("GRAPEVINE_REPLICAS_FILE", &path(files.replicas())),
        set("GRAPEVINE_REPLICAS_DNS", "http://engines.fleet.test:8000"),
        set("GRAPEVINE_CLIENT_KEYS", &path(files.keys())),
        set("GRAPEVINE_CLUSTER_SECRET", "the first secret of the fault matrix"),
        set("GRAPEVINE_ADMIN_TOKEN", ADMIN_TOKEN),
        set("GRAPEVINE_HEALTH_INTERVAL", "500ms"),
        set("GRAPEVINE_HEALTH_TIMEOUT", "1s"),
        set("GRAPEVINE_METRICS_INTERVAL", "1s"),
        set("GRAPEVINE_CONNECT_TIMEOUT", "1s"),
        set("GRAPEVINE_STREAM_FIRST_BYTE_TIMEOUT", "6s"),
        set("GRAPEVINE_IDLE_TIMEOUT", "6s"),
        set("GRAPEVINE_SLOW_START", "2s"),
        set("GRAPEVINE_DRAIN_DELAY", "1s"),
        set("GRAPEVINE_DECISION_LOG", &path(files.log_of(name))),
        set("GRAPEVINE_DECISION_LOG_SIZE", "64KiB"),
        set("GRAPEVINE_DECISION_LOG_FILES", "3"),
        set("GRAPEVINE_LOG_FORMAT", "json"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Collector::endpoint()),
    ]
}
