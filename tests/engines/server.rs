//! A real engine on loopback, for as long as the test runs.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

/// vLLM starts in about 90 s, on a busy machine in many minutes.
const START_LIMIT: Duration = Duration::from_secs(1_800);

/// One answer takes milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Server {
    process: Option<Child>,
    url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) runtime: Runtime,
}

impl Server {
    /// Starts one that is to listen on `port`; it is ready later. All its processes are one group.
    pub(crate) fn start(command: &mut Command, port: u16) -> Self {
        let silent = command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        let process = silent.stderr(Stdio::null()).spawn().unwrap();
        Self::new(format!("http://127.0.0.1:{port}"), Some(process))
    }

    /// One that runs already, and goes on.
    pub(crate) fn at(url: String) -> Self {
        Self::new(url, None)
    }

    fn new(url: String, process: Option<Child>) -> Self {
        let client = grapevine_testkit::load::http_client(1, ANSWER_LIMIT).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { process, url, client, runtime }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    pub(crate) fn wait_until_ready(&self) {
        let deadline = Instant::now() + START_LIMIT;
        while self.get("/health").is_none() {
            assert!(Instant::now() < deadline, "{} did not start in {START_LIMIT:?}", self.url);
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Sends a signal to the server's first process alone, as supervisors do.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), pid]).status().unwrap().success());
    }

    /// Waits for its end, and ends what it left behind.
    pub(crate) fn ended(mut self) {
        let mut process = self.process.take().unwrap();
        process.wait().unwrap();
        kill_group(process.id());
    }

    /// The sum of all samples of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").unwrap_or_default();
        let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    pub(crate) fn get(&self, path: &str) -> Option<String> {
        let url = format!("{}{path}", self.url);
        self.runtime.block_on(async {
            let answer = self.client.get(url).send().await.ok()?;
            if answer.status() == 200 { answer.text().await.ok() } else { None }
        })
    }
}

impl Drop for Server {
    /// SIGTERM ends all of its processes; SIGKILL of the first would leave others behind.
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        let _ = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
        let _ = process.wait();
        kill_group(process.id());
    }
}

fn kill_group(leader: u32) {
    let group = format!("-{leader}");
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}

/// What a setting of these tests says, if anything.
pub(crate) fn named(setting: &str) -> Option<String> {
    std::env::var(setting).ok().filter(|named| !named.is_empty())
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
