//! Processes of the binary under test.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use grapevine_node::admin::status::Status;
use grapevine_testkit::engine::Stats;

/// Nothing here takes that long unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The binary under test: the one just built, or what `GRAPEVINE_TEST_BINARY` names.
pub(crate) fn binary() -> String {
    std::env::var("GRAPEVINE_TEST_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_grapevine").to_owned())
}

/// Lines of a process's log kept for a failed test's message.
const KEEP_LINES: usize = 40;

/// A running process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Of its two outputs.
    readers: [JoinHandle<()>; 2],
}

impl Process {
    /// The binary with these arguments and only these `GRAPEVINE_*` and `OTEL_*` settings.
    pub(crate) fn start(args: &[&str], settings: &[(&str, String)]) -> Self {
        let mut command = Command::new(binary());
        command.args(args);
        Self::spawn(command, settings)
    }

    /// A command with only these `GRAPEVINE_*` and `OTEL_*` settings.
    pub(crate) fn spawn(mut command: Command, settings: &[(&str, String)]) -> Self {
        let ours = |name: &str| name.starts_with("GRAPEVINE_") || name.starts_with("OTEL_");
        let kept = std::env::vars().filter(|(name, _)| !ours(name));
        let mut child = command
            .env_clear()
            .envs(kept)
            .envs(settings.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::default();
        let readers =
            [collect(child.stdout.take().unwrap(), &log), collect(child.stderr.take().unwrap(), &log)];
        Self { child, log, readers }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// A line of /proc's status of it, bytes.
    pub(crate) fn memory(&self, line: &str) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let value = status.lines().find_map(|l| l.strip_prefix(line)).unwrap();
        value.trim_matches([':', '\t', ' ', 'k', 'B']).parse::<usize>().unwrap() << 10
    }

    /// Time that it has computed for, hundredths of a second.
    pub(crate) fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// What it said last.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Waits for a line that `find` makes something of.
    pub(crate) fn line<T>(&self, find: impl Fn(&str) -> Option<T>) -> T {
        wait_for(&format!("a line of the log:\n{}", self.log()), || {
            self.log.lock().unwrap().iter().find_map(|line| find(line))
        })
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), pid]).status().unwrap().success());
    }

    /// Waits for its end, and until all that it said is in the log.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = wait_for("the end of a process", || child.try_wait().unwrap());
        wait_for("its last words", || self.readers.iter().all(JoinHandle::is_finished).then_some(()));
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of process {}\n{}", self.child.id(), self.log());
        }
    }
}

fn collect(from: impl Read + Send + 'static, log: &Arc<Mutex<VecDeque<String>>>) -> JoinHandle<()> {
    let log = Arc::clone(log);
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap();
            if log.len() == KEEP_LINES {
                log.pop_front();
            }
            log.push_back(line);
        }
    })
}

/// Waits until `condition` gives something.
pub(crate) fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited {LIMIT:?} for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A simulated engine.
pub(crate) struct Engine {
    pub(crate) process: Process,
    pub(crate) url: String,
}

impl Engine {
    pub(crate) fn start(args: &[&str]) -> Self {
        let process = Process::start(&[&["engine"], args].concat(), &[]);
        let url = process.line(|line| line.strip_prefix("listening on ").map(str::to_owned));
        Self { process, url }
    }

    pub(crate) fn stats(&self) -> Stats {
        serde_json::from_slice(&get(&format!("{}/stats", self.url)).1).unwrap()
    }
}

/// A router.
pub(crate) struct Router {
    pub(crate) process: Process,
    pub(crate) url: String,
    pub(crate) admin: String,
}

impl Router {
    /// One router; ports are free ones unless set.
    pub(crate) fn start(replicas: &[String], settings: &[(&str, String)]) -> Self {
        Self::start_with(Self::command(), replicas, settings)
    }

    /// The command that runs a router.
    pub(crate) fn command() -> Command {
        let mut command = Command::new(binary());
        command.arg("serve");
        command
    }

    /// The same by a command of one's own.
    pub(crate) fn start_with(command: Command, replicas: &[String], settings: &[(&str, String)]) -> Self {
        let router = Self::start_unready(command, replicas, settings);
        let ready = format!("{}/readyz", router.admin);
        wait_for("a router to be ready", || (get(&ready).0 == 200).then_some(()));
        router
    }

    /// One that listens, and may have nobody to send a request to.
    pub(crate) fn start_unready(command: Command, replicas: &[String], settings: &[(&str, String)]) -> Self {
        let local = || "127.0.0.1:0".to_owned();
        let mut all = vec![
            ("GRAPEVINE_LISTEN", local()),
            ("GRAPEVINE_ADMIN_LISTEN", local()),
            ("GRAPEVINE_GOSSIP_LISTEN", local()),
            ("GRAPEVINE_REPLICAS", replicas.join(",")),
            ("GRAPEVINE_LOG_FORMAT", "json".to_owned()),
            ("GRAPEVINE_DRAIN_DELAY", "100ms".to_owned()),
        ];
        for (name, value) in settings {
            all.retain(|(other, _)| other != name);
            all.push((name, value.clone()));
        }
        let process = Process::spawn(command, &all);
        let (url, admin) = process.line(|line| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            let field = |name: &str| find(&line, name).map(|addr| format!("http://{addr}"));
            Some((field("listen")?, field("admin_listen")?))
        });
        Self { process, url, admin }
    }

    pub(crate) fn status(&self) -> Status {
        serde_json::from_slice(&get(&format!("{}/api/v1/status", self.admin)).1).unwrap()
    }
}

/// A string member, at the top or under `fields`.
fn find(line: &serde_json::Value, name: &str) -> Option<String> {
    let value = line.get(name).or_else(|| line.get("fields")?.get(name))?;
    value.as_str().map(str::to_owned)
}

/// Routers that gossip, all in front of the same replicas.
pub(crate) fn routers(count: usize, replicas: &[String], settings: &[(&str, String)]) -> Vec<Router> {
    let ports: Vec<String> = (0..count).map(|_| free_udp()).collect();
    let start = |(i, gossip): (usize, &String)| {
        let mut all = vec![
            ("GRAPEVINE_GOSSIP_LISTEN", gossip.clone()),
            ("GRAPEVINE_GOSSIP_SEEDS", ports.join(",")),
            ("GRAPEVINE_ROUTER_ID", format!("r{}", i + 1)),
        ];
        all.extend(settings.iter().cloned());
        Router::start(replicas, &all)
    };
    let routers: Vec<Router> = ports.iter().enumerate().map(start).collect();
    for router in &routers {
        wait_for("routers to meet", || (router.status().gossip.live_peers == count - 1).then_some(()));
    }
    routers
}

pub(crate) fn free_udp() -> String {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

pub(crate) fn free_tcp() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// `GET url` without a client library: status and body. Status 0 when nobody answers.
pub(crate) fn get(url: &str) -> (u16, Vec<u8>) {
    let (head, body) = exchange(url, "GET", &[], b"");
    (head.status, body)
}

/// An answer's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// One exchange on a connection of its own.
pub(crate) fn exchange(url: &str, method: &str, headers: &[(&str, &str)], body: &[u8]) -> (Head, Vec<u8>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = grapevine_testkit::load::http_client(1, LIMIT).unwrap();
        let mut request = client.request(method.parse().unwrap(), url).body(body.to_vec());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let Ok(answer) = request.send().await else { return (Head::default(), Vec::new()) };
        let text = |v: &[u8]| String::from_utf8_lossy(v).into_owned();
        let head = Head {
            status: answer.status().as_u16(),
            headers: answer.headers().iter().map(|(n, v)| (n.to_string(), text(v.as_bytes()))).collect(),
        };
        (head, answer.bytes().await.unwrap_or_default().to_vec())
    })
}

/// A chat request through `router`.
pub(crate) fn chat(router: &str, messages: &serde_json::Value) -> (Head, Vec<u8>) {
    let body = serde_json::json!({"model": "mock-model", "messages": messages, "max_tokens": 4});
    let url = format!("{router}/v1/chat/completions");
    exchange(&url, "POST", &[("content-type", "application/json")], body.to_string().as_bytes())
}
