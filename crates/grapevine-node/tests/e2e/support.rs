//! A router in the test's own process, engines scripted byte by byte, a client that shows every byte.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grapevine_node::admin::status::Status;
use grapevine_node::config::{Config, ReplicaSpec};
use grapevine_node::{Addresses, App, Deps, RunError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Far above anything that happens here; only a broken test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits for `future`, but not for ever.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should have happened by now")
}

/// Waits until `holds`.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waited = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "never: {what}");
}

/// A running router.
pub(crate) struct TestRouter {
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) gossip: SocketAddr,
    app: Arc<grapevine_node::admin::survey::Observatory>,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), RunError>>,
}

/// A configuration whose background work does not get into a test's way.
pub(crate) fn config(engines: &[SocketAddr]) -> Config {
    named_config("router-a", engines)
}

pub(crate) fn named_config(router: &str, engines: &[SocketAddr]) -> Config {
    let spec = |(i, addr): (usize, &SocketAddr)| ReplicaSpec::new(format!("r{i}"), format!("http://{addr}"));
    let replicas = engines.iter().enumerate().map(spec).collect();
    let mut config = Config::local(router, replicas);
    config.health_interval = Duration::from_secs(3_600);
    config.metrics_interval = Duration::ZERO;
    config.models_interval = Duration::ZERO;
    config.lookup_timeout = Duration::from_secs(5);
    config
}

impl TestRouter {
    pub(crate) async fn start(config: Config) -> Self {
        let deps = Deps { seed: 42, ..Deps::default() };
        let app = App::build(config, deps).await.expect("the router should start");
        let Addresses { front, admin, gossip } = app.addresses();
        let observatory = app.observatory();
        let (shutdown, told) = oneshot::channel::<()>();
        let task = tokio::spawn(app.run(async move {
            let _ = told.await;
        }));
        let gossip = gossip.expect("gossip should be bound");
        Self { addr: front, admin, gossip, app: observatory, shutdown: Some(shutdown), task }
    }

    /// In front of these engines, defaults otherwise.
    pub(crate) async fn before(engines: &[&RawEngine]) -> Self {
        let addrs: Vec<_> = engines.iter().map(|e| e.addr).collect();
        Self::start(config(&addrs)).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    /// Serves requests without a connection.
    pub(crate) fn proxy(&self) -> Arc<grapevine_node::proxy::Proxy> {
        Arc::clone(&self.app.proxy)
    }

    pub(crate) fn tree(&self) -> &grapevine_node::actors::tree::TreeHandle {
        &self.app.tree
    }

    pub(crate) fn status(&self) -> Status {
        self.app.status()
    }

    pub(crate) fn outcome(&self, name: &str) -> u64 {
        self.status().requests[name]
    }

    /// Requests that ended, however.
    pub(crate) fn all_ended(&self) -> u64 {
        self.status().requests.values().sum()
    }

    /// Waits until `n` requests ended as `name`.
    pub(crate) async fn ended(&self, name: &str, n: u64) {
        until(&format!("{n} requests end as {name}"), || self.outcome(name) == n).await;
    }

    /// Waits until nothing is in flight, here or on any replica.
    pub(crate) async fn quiet(&self) {
        until("nothing in flight", || {
            let status = self.status();
            let idle =
                |r: &grapevine_node::admin::status::ReplicaStatus| r.inflight == 0 && r.queued_tokens == 0;
            status.inflight == 0 && status.replicas.iter().all(idle)
        })
        .await;
    }

    /// As SIGTERM does; does not wait.
    pub(crate) fn tell_to_stop(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
    }

    /// Waits for the end.
    pub(crate) async fn stopped(self) -> Result<(), RunError> {
        soon(self.task).await.expect("the router should not panic")
    }

    pub(crate) async fn admin_get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("http://{}{path}", self.admin)).await.expect("admin answers");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }
}

/// A request as it reached an engine.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Request line and header lines.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Seen {
    /// All values of a field.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let of = |l: &str| l.split_once(':').is_some_and(|(n, _)| n.eq_ignore_ascii_case(name));
        self.head.lines().filter(|l| of(l)).filter_map(|l| Some(l.split_once(':')?.1.trim())).collect()
    }

    pub(crate) fn request_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// An engine that does what a test tells it, byte by byte.
pub(crate) struct RawEngine {
    pub(crate) addr: SocketAddr,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Log {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
}

/// One connection of a [`RawEngine`].
pub(crate) struct Conn {
    stream: TcpStream,
    log: Arc<Log>,
    buffer: Vec<u8>,
}

impl RawEngine {
    /// Runs `script` for every connection.
    pub(crate) async fn start<F, Fut>(script: F) -> Self
    where
        F: Fn(Conn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self::start_on("127.0.0.1:0".parse().expect("an address"), script).await
    }

    pub(crate) async fn start_on<F, Fut>(addr: SocketAddr, script: F) -> Self
    where
        F: Fn(Conn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind(addr).await.expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let log = Arc::new(Log::default());
        let shared = Arc::clone(&log);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, SeqCst);
                let conn = Conn { stream, log: Arc::clone(&shared), buffer: Vec::new() };
                connections.spawn(script(conn));
            }
        });
        Self { addr, log, task }
    }

    /// Answers every request with this, keeping the connection.
    pub(crate) async fn answering(response: impl Into<Vec<u8>>) -> Self {
        let response = Arc::new(response.into());
        Self::start(move |mut conn| {
            let response = Arc::clone(&response);
            async move {
                while conn.request().await.is_some() {
                    conn.write(&response).await;
                }
            }
        })
        .await
    }

    /// Answers every request with this JSON.
    pub(crate) async fn json(status: &str, body: &str) -> Self {
        Self::answering(json_response(status, body)).await
    }

    /// Begins to answer with a stream, and writes large events for as long as somebody takes them.
    pub(crate) async fn torrent() -> Self {
        Self::start(|mut conn| async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            let event = format!("data: {}\n\n", "x".repeat(16_000));
            while conn.chunk(event.as_bytes()).await {}
            conn.closed().await;
        })
        .await
    }

    /// Requests so far, probes excepted.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.log.seen.lock().expect("no panic holds it").clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(SeqCst)
    }

    /// Connections that the other side has closed.
    pub(crate) fn closed(&self) -> usize {
        self.log.closed.load(SeqCst)
    }

    /// Dies: the port closes, connections end.
    pub(crate) async fn kill(self) -> SocketAddr {
        self.task.abort();
        let _ = self.task.await;
        self.addr
    }
}

impl Conn {
    /// The next request; answers health probes by itself. `None` at the connection's end.
    pub(crate) async fn request(&mut self) -> Option<Seen> {
        loop {
            let head = self.head().await?;
            if head.starts_with("GET /health ") {
                self.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                continue;
            }
            let mut seen = Seen { head, body: Vec::new() };
            let length = seen.values("content-length").first().and_then(|v| v.parse().ok()).unwrap_or(0);
            while self.buffer.len() < length {
                self.fill().await?;
            }
            seen.body = self.buffer.drain(..length).collect();
            self.log.seen.lock().expect("no panic holds it").push(seen.clone());
            return Some(seen);
        }
    }

    /// The next request's head.
    pub(crate) async fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head).into_owned());
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.unwrap_or(0);
        if read == 0 {
            self.log.closed.fetch_add(1, SeqCst);
            return None;
        }
        Some(())
    }

    /// Everything up to and with `end`.
    pub(crate) async fn until(&mut self, end: &[u8]) -> String {
        while !self.buffer.windows(end.len()).any(|w| w == end) && self.fill().await.is_some() {}
        String::from_utf8_lossy(&std::mem::take(&mut self.buffer)).into_owned()
    }

    /// Whether the other side still takes what is written.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).await.is_ok()
    }

    /// Writes one chunk of a chunked body.
    pub(crate) async fn chunk(&mut self, bytes: &[u8]) -> bool {
        let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
        framed.extend_from_slice(bytes);
        framed.extend_from_slice(b"\r\n");
        self.write(&framed).await
    }

    /// Sends back whatever comes, until the other side closes.
    pub(crate) async fn echo(mut self) {
        while !self.buffer.is_empty() || self.fill().await.is_some() {
            let bytes = std::mem::take(&mut self.buffer);
            self.write(&bytes).await;
        }
    }

    /// Waits for the other side to close.
    pub(crate) async fn closed(mut self) {
        while self.fill().await.is_some() {}
    }

    /// Cuts the connection with a reset.
    pub(crate) fn reset(self) {
        #[expect(deprecated, reason = "a linger of zero does not block")]
        let _ = self.stream.set_linger(Some(Duration::ZERO));
    }
}

/// The head of a chunked event stream.
pub(crate) const EVENT_STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";

pub(crate) fn json_response(status: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A client that sends bytes and shows bytes.
pub(crate) struct RawClient {
    stream: TcpStream,
    pub(crate) received: Vec<u8>,
}

impl RawClient {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("the router listens");
        Self { stream, received: Vec::new() }
    }

    pub(crate) async fn send(addr: SocketAddr, bytes: impl AsRef<[u8]>) -> Self {
        let mut client = Self::connect(addr).await;
        client.write(bytes).await;
        client
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("the router reads");
    }

    /// Writes what the router takes, which may close before it has all: whether it had.
    pub(crate) async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Sends no more, and says so.
    pub(crate) async fn end_writing(&mut self) {
        let _ = self.stream.shutdown().await;
    }

    /// Reads until `text` was received.
    pub(crate) async fn read_until(&mut self, text: &str) {
        let found = |received: &[u8]| received.windows(text.len()).any(|w| w == text.as_bytes());
        let read = async {
            while !found(&self.received) {
                let n = self.stream.read_buf(&mut self.received).await.unwrap_or(0);
                assert_ne!(n, 0, "ended before {text:?}: {:?}", self.text());
            }
        };
        let waited = tokio::time::timeout(PATIENCE, read).await;
        assert!(waited.is_ok(), "never received {text:?}: {:?}", self.text());
    }

    /// Reads what there is next.
    pub(crate) async fn read_some(&mut self) {
        assert_ne!(soon(self.stream.read_buf(&mut self.received)).await.unwrap_or(0), 0, "it ended");
    }

    /// Reads to the connection's end.
    pub(crate) async fn read_to_end(&mut self) -> String {
        soon(async { while self.stream.read_buf(&mut self.received).await.unwrap_or(0) > 0 {} }).await;
        self.text()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.received).into_owned()
    }
}

/// A POST with a JSON body, as bytes.
pub(crate) fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: router\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A chat request that asks for a stream.
pub(crate) fn chat_stream() -> String {
    post("/v1/chat/completions", r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#)
}

/// A chat request that asks for a whole answer.
pub(crate) fn chat() -> String {
    post("/v1/chat/completions", r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#)
}

/// A client of HTTP that does not follow, decode, or use a proxy.
pub(crate) fn http() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client")
}
