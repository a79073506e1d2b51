//! Clients behind a balancer that asks who is ready and goes elsewhere where a connection is refused.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use grapevine_testkit::engine::DEFAULT_MODEL;
use grapevine_testkit::load::{HttpClient, http_client};
use grapevine_testkit::workload::Workload;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::files::KEY;
use super::process::LIMIT;

/// Clients at a time.
const CLIENTS: usize = 18;

/// Every so-manieth stream is a long one.
const LONG_EVERY: usize = 4;

/// Tokens of a long stream and of the others: 2.4 and 0.4 s.
const TOKENS: (u32, u32) = (60, 10);

/// Time between two looks who is ready.
const LOOK: Duration = Duration::from_millis(100);

/// A router that takes longer to say that it is ready is not: balancers' probes have such limits.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// How a request ended badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// In a status, or in an error event within a stream.
    Told(String),
    /// Without a word.
    Broken(String),
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) began: Instant,
    pub(crate) first: Option<Duration>,
    pub(crate) router: usize,
    pub(crate) replica: Option<String>,
    pub(crate) failure: Option<Failure>,
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
}

/// A router's address, and whether it is ready.
struct Target {
    url: String,
    admin: String,
    ready: AtomicBool,
}

/// Who knows which routers are ready.
#[derive(Clone)]
pub(crate) struct Balancer {
    targets: Arc<[Target]>,
}

impl Balancer {
    /// Public and admin URLs of the routers.
    pub(crate) fn start(urls: Vec<(String, String)>, on: &Handle) -> Self {
        let target = |(url, admin)| Target { url, admin, ready: AtomicBool::new(true) };
        let targets: Arc<[Target]> = urls.into_iter().map(target).collect();
        let client = http_client(2, LOOK_LIMIT).unwrap();
        for number in 0..targets.len() {
            let (targets, client) = (Arc::clone(&targets), client.clone());
            on.spawn(async move {
                let target = &targets[number];
                loop {
                    let asked = client.get(format!("{}/readyz", target.admin)).send().await;
                    target.ready.store(asked.is_ok_and(|answer| answer.status() == 200), Relaxed);
                    sleep(LOOK).await;
                }
            });
        }
        Self { targets }
    }

    /// A router that is ready; where none is, any.
    fn pick(&self, turn: usize) -> usize {
        let ready = |&number: &usize| self.targets[number].ready.load(Relaxed);
        let ready: Vec<usize> = (0..self.targets.len()).filter(ready).collect();
        ready.get(turn % ready.len().max(1)).copied().unwrap_or(turn % self.targets.len())
    }
}

/// What all clients share.
struct Clients {
    balancer: Balancer,
    asks: Arc<Mutex<Workload>>,
    http: HttpClient,
    stop: AtomicBool,
    ended: AtomicUsize,
}

/// Clients that send one stream after the other until told to stop.
pub(crate) struct Traffic {
    clients: Arc<Clients>,
    tasks: Vec<JoinHandle<Vec<Answer>>>,
}

impl Traffic {
    pub(crate) fn start(balancer: &Balancer, asks: &Arc<Mutex<Workload>>, on: &Handle) -> Self {
        let clients = Arc::new(Clients {
            balancer: balancer.clone(),
            asks: Arc::clone(asks),
            http: http_client(CLIENTS, LIMIT).unwrap(),
            stop: AtomicBool::new(false),
            ended: AtomicUsize::new(0),
        });
        let run = |_| {
            let clients = Arc::clone(&clients);
            on.spawn(async move {
                let mut answers = Vec::new();
                while !clients.stop.load(Relaxed) {
                    answers.push(clients.ask().await);
                    clients.ended.fetch_add(1, Relaxed);
                }
                answers
            })
        };
        let tasks = (0..CLIENTS).map(run).collect();
        Self { clients, tasks }
    }

    /// Requests that have ended.
    pub(crate) fn ended(&self) -> usize {
        self.clients.ended.load(Relaxed)
    }

    /// Lets every client finish its stream.
    pub(crate) async fn end(self) -> Vec<Answer> {
        self.clients.stop.store(true, Relaxed);
        join_all(self.tasks).await.into_iter().flat_map(Result::unwrap).collect()
    }
}

impl Clients {
    /// One request, sent to another router as long as one refuses the connection.
    async fn ask(&self) -> Answer {
        let ask = self.asks.lock().unwrap().next().unwrap();
        let tokens = if ask.index.is_multiple_of(LONG_EVERY) { TOKENS.0 } else { TOKENS.1 };
        let body = ask.body(DEFAULT_MODEL, tokens, true);
        let began = Instant::now();
        let mut tries = 0;
        loop {
            let router = self.balancer.pick(ask.index + tries);
            let target = &self.balancer.targets[router];
            let request = self.http.post(format!("{}/v1/chat/completions", target.url)).bearer_auth(KEY);
            let request = request.header("content-type", "application/json").body(body.clone());
            let mut answer =
                Answer { began, first: None, router, replica: None, failure: None, prompt: 0, cached: 0 };
            tries += 1;
            match request.send().await {
                Ok(response) => answer.failure = answer.read(response).await.err(),
                Err(error) if error.is_connect() && tries <= self.balancer.targets.len() => {
                    target.ready.store(false, Relaxed);
                    continue;
                }
                Err(error) => answer.failure = Some(Failure::Broken(format!("{error:?}"))),
            }
            return answer;
        }
    }
}

impl Answer {
    /// Reads a stream to its end.
    async fn read(&mut self, mut response: reqwest::Response) -> Result<(), Failure> {
        let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        self.replica = header("x-grapevine-replica");
        let code = header("x-grapevine-error").unwrap_or_else(|| "the engine's own".to_owned());
        let status = response.status();
        let mut body = Vec::new();
        let broken = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    self.first.get_or_insert_with(|| self.began.elapsed());
                    body.extend_from_slice(&chunk);
                }
                Ok(None) => break None,
                Err(error) => break Some(format!("{error:?}")),
            }
        };
        let text = String::from_utf8_lossy(&body);
        if !status.is_success() {
            return Err(Failure::Told(format!("{status}, {code}")));
        }
        if let Some(event) = text.lines().find(|line| line.starts_with("data: {\"error\"")) {
            return Err(Failure::Told(event.to_owned()));
        }
        match broken {
            Some(why) => Err(Failure::Broken(why)),
            None if !text.ends_with("data: [DONE]\n\n") => Err(Failure::Broken("no end".to_owned())),
            None => {
                self.note_usage(&text);
                Ok(())
            }
        }
    }

    fn note_usage(&mut self, text: &str) {
        let event =
            text.lines().filter_map(|line| line.strip_prefix("data: ")).rfind(|e| e.contains("\"usage\":{"));
        let event: Value = serde_json::from_str(event.unwrap_or("null")).unwrap();
        self.prompt = event["usage"]["prompt_tokens"].as_u64().unwrap_or_default();
        self.cached = event["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default();
    }
}
