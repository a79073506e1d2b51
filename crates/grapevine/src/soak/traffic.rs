//! Clients: streams, whole answers, and some that leave before the end. They stand for clients behind a
//! balancer: who finds a router gone asks another.

use std::sync::Arc;
use std::time::Duration;

use grapevine_testkit::load::{ClientError, HttpClient, Load, LoadConfig, Stop, http_client};
use grapevine_testkit::workload::{Workload, mix};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::ledger::Ledger;

/// Output tokens of a stream, 5 ms each: as long as several troubles take to begin.
const STREAM_TOKENS: u32 = 200;

/// Conversations at a time, of each kind.
const CHATS: usize = 20;

/// Requests at the same time of each kind: the rate sets the pace, not this.
const CONNECTIONS: usize = 512;

/// One request in so many is left by its client.
const LEFT: u32 = 20;

/// A client leaves at some moment up to this.
const PATIENCE: Duration = Duration::from_millis(600);

/// Traffic that runs.
pub(super) struct Traffic {
    stops: Vec<Stop>,
    tasks: Vec<JoinHandle<()>>,
    leaver: JoinHandle<()>,
}

impl Traffic {
    /// `rate` requests a second to `targets`, half of them streams.
    pub(super) fn start(
        targets: &[String],
        rate: u32,
        seed: u64,
        ledger: &Arc<Ledger>,
    ) -> Result<Self, ClientError> {
        let (mut stops, mut tasks) = (Vec::new(), Vec::new());
        for stream in [true, false] {
            let config = LoadConfig {
                fail_over: true,
                connections: CONNECTIONS,
                rate: Some(f64::from(rate) / 2.0),
                stream,
                max_tokens: if stream { STREAM_TOKENS } else { 8 },
                keep_outcomes: 0,
                ..LoadConfig::new(targets.iter().map(String::as_str))
            };
            let seen = Arc::clone(ledger);
            let load = Load::new(config)?.on_outcome(move |outcome| seen.note(outcome));
            stops.push(load.stopper());
            // The same prefixes for both kinds: they share the engines' caches.
            let chats = Workload::endless_chats(CHATS, seed + u64::from(stream));
            let asks = mix(Workload::endless_prefixes(seed), chats);
            tasks.push(tokio::spawn(async move {
                load.run(asks).await;
            }));
        }
        let leaver = Leaver {
            client: http_client(1, Duration::from_secs(30))?,
            targets: targets.to_vec(),
            every: Duration::from_secs(1) * LEFT / rate,
            rng: SmallRng::seed_from_u64(seed),
            ledger: Arc::clone(ledger),
        };
        Ok(Self { stops, tasks, leaver: tokio::spawn(leaver.run()) })
    }

    /// Ends it; requests in flight are left.
    pub(super) async fn stop(self) {
        self.leaver.abort();
        self.stops.iter().for_each(Stop::stop);
        for task in self.tasks {
            // It ends when told to; a panic is on stderr.
            let _ = task.await;
        }
    }
}

/// A client that never waits for the end.
struct Leaver {
    client: HttpClient,
    targets: Vec<String>,
    every: Duration,
    rng: SmallRng,
    ledger: Arc<Ledger>,
}

impl Leaver {
    async fn run(mut self) {
        loop {
            sleep(self.every).await;
            let patience = self.rng.random_range(Duration::ZERO..PATIENCE);
            let stream = self.rng.random_bool(0.5);
            let target = self.rng.random_range(0..self.targets.len());
            let Some(url) = self.targets.get(target) else { return };
            let question = format!("a question that nobody waits for, number {}", self.rng.random::<u32>());
            let body = json!({
                "model": "mock-model", "stream": stream, "max_tokens": STREAM_TOKENS,
                "messages": [{"role": "user", "content": question}],
            });
            let request = self.client.post(format!("{url}/v1/chat/completions"));
            let request = request.header("content-type", "application/json").body(body.to_string());
            // Whatever came of it, nobody is there to see it.
            let _ = timeout(patience, async { request.send().await?.bytes().await }).await;
            self.ledger.note_left();
        }
    }
}
