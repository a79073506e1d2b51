//! The loop that sends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{ClientError, Failure, exchange, http_client, post};
use super::report::{Outcome, Report};
use super::turns::{Turn, Turns};
use crate::engine::DEFAULT_MODEL;
use crate::workload::Ask;

/// Pause after a target that could not be reached.
const AFTER_UNREACHED: Duration = Duration::from_millis(1);

/// Pause of a connection none of whose targets could be reached, and what it grows to, doubling each time.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How to send a workload.
#[derive(Clone, Debug)]
pub struct LoadConfig {
    /// Base URLs of the routers; request `i` goes to target `i` modulo their number.
    pub targets: Vec<String>,
    /// Ask the next target when nobody takes the connection, as a balancer in front of them would.
    /// Default false.
    pub fail_over: bool,
    /// Requests at the same time at most. Default 16.
    pub connections: usize,
    /// Requests a second in all; without it each connection sends when its last answer is read.
    pub rate: Option<f64>,
    /// Ask for streams. Default false.
    pub stream: bool,
    /// Output tokens asked for. Default 8.
    pub max_tokens: u32,
    /// Model asked for. Default the simulated engine's.
    pub model: String,
    /// Bearer token, if any.
    pub api_key: Option<String>,
    /// A request that takes longer has failed. Default 120 s.
    pub timeout: Duration,
    /// Outcomes that the report keeps one by one; beyond that only totals grow. Default 1,048,576.
    pub keep_outcomes: usize,
}

impl LoadConfig {
    /// The defaults, to these targets.
    pub fn new<T: Into<String>>(targets: impl IntoIterator<Item = T>) -> Self {
        let slashless = |url: T| url.into().trim_end_matches('/').to_owned();
        Self {
            targets: targets.into_iter().map(slashless).collect(),
            fail_over: false,
            connections: 16,
            rate: None,
            stream: false,
            max_tokens: 8,
            model: DEFAULT_MODEL.to_owned(),
            api_key: None,
            timeout: Duration::from_secs(120),
            keep_outcomes: 1 << 20,
        }
    }
}

type OnOutcome = Box<dyn Fn(&Outcome) + Send + Sync>;

/// A load run that is being set up.
pub struct Load {
    config: LoadConfig,
    client: Client,
    on_outcome: OnOutcome,
    stop: watch::Receiver<bool>,
    /// Keeps `stop` from closing when nobody else holds a sender.
    stopper: Stop,
}

/// Stops a load run: what is in flight is broken off, the report has what was seen.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Stop {
    /// Stops the run.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Load {
    /// A run with these settings.
    pub fn new(config: LoadConfig) -> Result<Self, ClientError> {
        let client = http_client(config.connections, config.timeout)?;
        let (stopper, stop) = watch::channel(false);
        Ok(Self { config, client, on_outcome: Box::new(|_| {}), stop, stopper: Stop(Arc::new(stopper)) })
    }

    /// Calls `watch` at each request's end: for a live view. It must not block.
    #[must_use]
    pub fn on_outcome(mut self, watch: impl Fn(&Outcome) + Send + Sync + 'static) -> Self {
        self.on_outcome = Box::new(watch);
        self
    }

    /// What stops the run early. Dropping the run's future does so as well, without a report.
    pub fn stopper(&self) -> Stop {
        self.stopper.clone()
    }

    /// Sends all of `asks`.
    pub async fn run(self, asks: impl IntoIterator<Item = Ask, IntoIter: Send>) -> Report {
        let begin = Instant::now();
        let run = Run {
            source: Mutex::new(asks.into_iter()),
            turns: Turns::default(),
            report: Mutex::new(Report::default()),
            urls: self.config.targets.iter().map(|base| format!("{base}/v1/chat/completions")).collect(),
            begin,
            load: &self,
        };
        let mut stop = self.stop.clone();
        let stopped = tokio::select! {
            _ = join_all((0..self.config.connections).map(|_| run.work())) => false,
            _ = stop.wait_for(|stopped| *stopped) => true,
        };
        let report = run.report.into_inner().unwrap_or_else(PoisonError::into_inner);
        Report { wall: begin.elapsed(), stopped, ..report }
    }
}

struct Run<'a, I> {
    source: Mutex<I>,
    turns: Turns,
    report: Mutex<Report>,
    urls: Vec<String>,
    begin: Instant,
    load: &'a Load,
}

impl<I: Iterator<Item = Ask>> Run<'_, I> {
    /// One connection's life.
    async fn work(&self) {
        let mut pause = FIRST_PAUSE;
        while let Some((ask, turn)) = self.next() {
            if let Some(rate) = self.load.config.rate {
                let due = Duration::try_from_secs_f64(ask.index as f64 / rate).unwrap_or_default();
                sleep_until(self.begin + due).await;
            }
            let reached = match turn {
                Some(mut turn) => {
                    turn.start().await;
                    self.send(&ask).await
                }
                None => self.send(&ask).await,
            };
            if reached {
                pause = FIRST_PAUSE;
            } else {
                sleep(pause).await;
                pause = LONGEST_PAUSE.min(pause * 2);
            }
        }
    }

    /// The next request and its place in its conversation, taken together to keep the order.
    fn next(&self) -> Option<(Ask, Option<Turn<'_>>)> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let ask = source.next()?;
        let turn = ask.in_turn.then(|| self.turns.take(ask.group));
        Some((ask, turn))
    }

    /// Whether anybody took it.
    async fn send(&self, ask: &Ask) -> bool {
        let mut outcome =
            Outcome { index: ask.index, group: ask.group, turn: ask.turn, ..Outcome::default() };
        let failure = self.ask_targets(ask, &mut outcome).await.err();
        let reached = !matches!(failure, Some(Failure::Unreached(_)));
        outcome.error = failure.map(Failure::into_text);
        (self.load.on_outcome)(&outcome);
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(outcome, self.load.config.keep_outcomes);
        reached
    }

    /// Asks the target whose turn it is, then the others if they may be asked.
    async fn ask_targets(&self, ask: &Ask, outcome: &mut Outcome) -> Result<(), Failure> {
        let config = &self.load.config;
        let tries = if config.fail_over { self.urls.len() } else { 1 };
        let mut error = Failure::Unreached("no target".to_owned());
        for (target, url) in self.urls.iter().enumerate().cycle().skip(self.turn_of(ask)).take(tries) {
            outcome.target = target;
            let body = ask.body(&config.model, config.max_tokens, config.stream);
            let request = post(&self.load.client, url, config.api_key.as_deref(), body);
            match exchange(request, config.stream, outcome).await {
                Err(unreached @ Failure::Unreached(_)) => {
                    // It may have failed without ever waiting: others, and a signal, must have their turn.
                    sleep(AFTER_UNREACHED).await;
                    error = unreached;
                }
                result => return result,
            }
        }
        Err(error)
    }

    fn turn_of(&self, ask: &Ask) -> usize {
        ask.index.checked_rem(self.urls.len()).unwrap_or(0)
    }
}
