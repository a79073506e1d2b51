//! One of the two things that are compared: routers, engines, and the traffic through them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use grapevine_node::admin::fleet_view::Fleet as FleetView;
use grapevine_testkit::engine::{DEFAULT_MODEL, Engine, EngineConfig, EngineHandle};
use grapevine_testkit::load::{Load, LoadConfig, Outcome, Stop, http_client};
use grapevine_testkit::workload::{Workload, mix};
use tokio::time::Instant;

use super::sample::SideSample;
use crate::fleet::Fleet;

/// "Now" in the view: long enough to be calm, short enough to see a change.
const NOW: Duration = Duration::from_secs(5);

/// Conversations at a time.
const CHATS: usize = 30;

/// Cache of a simulated engine, blocks of 64 B: about 20 of the 90 prefixes and conversations.
const CACHE_BLOCKS: usize = 1_340;

/// Prefill of a simulated engine: 8,000 tokens a second, and 20 ms for every request.
const PREFILL_PER_BLOCK: Duration = Duration::from_millis(2);
const BASE: Duration = Duration::from_millis(20);

/// Routers that `grapevine top` is told of: the first that answers tells of all.
const NAMED: usize = 3;

/// What to run.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) label: String,
    pub(super) policy: String,
    pub(super) routers: usize,
    /// Simulated engines; 0 with real ones.
    pub(super) engines: usize,
    pub(super) replicas: Vec<String>,
    pub(super) model: Option<String>,
    pub(super) connections: usize,
    pub(super) seed: u64,
}

/// Something that runs.
pub(super) struct Side {
    plan: Plan,
    engines: Vec<EngineHandle>,
    fleet: Fleet,
    model: String,
    tally: Arc<Tally>,
    driver: Mutex<Option<(Stop, tokio::task::JoinHandle<()>)>>,
    began: Mutex<Option<Instant>>,
    recent: VecDeque<(Instant, Counts)>,
    curve: Vec<f64>,
    /// What a router last said of the fleet.
    seen: FleetView,
    ended: Option<Duration>,
}

/// What the load driver saw.
#[derive(Default)]
struct Tally {
    requests: AtomicU64,
    errors: AtomicU64,
    latency_us: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    first_error: Mutex<Option<String>>,
}

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    asked: u64,
    hit: u64,
    requests: u64,
    latency_us: u64,
}

impl Side {
    /// Starts engines and routers.
    pub(super) async fn start(plan: Plan) -> Result<Self, Box<dyn std::error::Error>> {
        let mut engines = Vec::new();
        for _ in 0..plan.engines {
            engines.push(Engine::start(engine_config()).await?);
        }
        let simulated: Vec<String> = engines.iter().map(EngineHandle::url).collect();
        let replicas = if simulated.is_empty() { &plan.replicas } else { &simulated };
        let tag = if plan.policy == "random" { "random-" } else { "r" };
        let settings =
            [("GRAPEVINE_REPLICAS", replicas.join(",")), ("GRAPEVINE_POLICY", plan.policy.clone())];
        let fleet = Fleet::start(plan.routers, tag, &settings).await?;
        let model = match &plan.model {
            Some(model) => model.clone(),
            None if plan.engines > 0 => DEFAULT_MODEL.to_owned(),
            None => {
                served_model(replicas).await.ok_or("the engines name no model at /v1/models; say --model")?
            }
        };
        Ok(Self {
            plan,
            engines,
            fleet,
            model,
            tally: Arc::default(),
            driver: Mutex::default(),
            began: Mutex::default(),
            recent: VecDeque::new(),
            curve: Vec::new(),
            seen: FleetView::default(),
            ended: None,
        })
    }

    /// Starts the traffic.
    pub(super) fn drive(&self) -> Result<(), Box<dyn std::error::Error>> {
        let targets = self.fleet.routers.iter().map(|router| router.url.as_str());
        let config = LoadConfig {
            connections: self.plan.connections,
            model: self.model.clone(),
            // The tally is enough, however long it runs.
            keep_outcomes: 0,
            ..LoadConfig::new(targets)
        };
        let tally = Arc::clone(&self.tally);
        let load = Load::new(config)?.on_outcome(move |outcome| tally.add(outcome));
        let stop = load.stopper();
        let traffic =
            mix(Workload::endless_prefixes(self.plan.seed), Workload::endless_chats(CHATS, self.plan.seed));
        let task = tokio::spawn(async move {
            load.run(traffic).await;
        });
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Some((stop, task));
        *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Ok(())
    }

    /// Ends the traffic; engines and routers go on.
    pub(super) fn halt(&mut self) {
        let driver = self.driver.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some((stop, _)) = driver.take() {
            stop.stop();
        }
        self.ended = Some(self.elapsed());
    }

    /// Ends everything.
    pub(super) async fn stop(mut self) {
        self.halt();
        self.fleet.stop().await;
        for engine in &self.engines {
            engine.stop().await;
        }
    }

    /// Where the page of this side's first router is.
    pub(super) fn page(&self) -> String {
        self.fleet.routers.first().map(|router| format!("{}/", router.admin)).unwrap_or_default()
    }

    /// The command that shows its routers in a terminal.
    pub(super) fn top(&self) -> String {
        let routers = self.fleet.routers.iter().take(NAMED);
        let addresses = routers.map(|router| router.admin.trim_start_matches("http://"));
        std::iter::once("grapevine top").chain(addresses).collect::<Vec<_>>().join(" ")
    }

    fn elapsed(&self) -> Duration {
        let began = *self.began.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.or(began.map(|at| at.elapsed())).unwrap_or_default()
    }

    /// What there is to show.
    pub(super) async fn sample(&mut self) -> SideSample {
        let counts = self.counts();
        let now = Instant::now();
        self.recent.push_back((now, counts));
        while self.recent.front().is_some_and(|(at, _)| now - *at > NOW) && self.recent.len() > 2 {
            self.recent.pop_front();
        }
        let before = self.recent.front().map(|(at, counts)| (now - *at, *counts)).unwrap_or_default();
        let lately = counts.since(before.1);
        self.curve.push(lately.hit_rate());
        if let Some(fleet) = self.fleet.view().await {
            self.seen = fleet;
        }
        SideSample {
            label: self.plan.label.clone(),
            elapsed: self.elapsed(),
            hit_now: lately.hit_rate(),
            hit_total: counts.hit_rate(),
            per_second: lately.requests as f64 / before.0.as_secs_f64().max(0.001),
            mean_latency: lately.mean_latency(),
            requests: counts.requests,
            errors: self.tally.errors.load(Relaxed),
            first_error: self.tally.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            by_engines: !self.engines.is_empty(),
            curve: self.curve.clone(),
            fleet: self.seen.clone(),
            page: self.page(),
            top: self.top(),
        }
    }

    /// The engines' own counters where there are any, else what answers report.
    fn counts(&self) -> Counts {
        let requests = self.tally.requests.load(Relaxed);
        let latency_us = self.tally.latency_us.load(Relaxed);
        if self.engines.is_empty() {
            let (asked, hit) = (&self.tally.prompt_tokens, &self.tally.cached_tokens);
            return Counts { asked: asked.load(Relaxed), hit: hit.load(Relaxed), requests, latency_us };
        }
        let stats = self.engines.iter().map(EngineHandle::stats);
        let blocks = stats.fold((0, 0), |sum, s| (sum.0 + s.blocks_queried, sum.1 + s.blocks_hit));
        Counts { asked: blocks.0, hit: blocks.1, requests, latency_us }
    }
}

impl Tally {
    fn add(&self, outcome: &Outcome) {
        self.requests.fetch_add(1, Relaxed);
        self.latency_us.fetch_add(outcome.latency.as_micros() as u64, Relaxed);
        self.prompt_tokens.fetch_add(outcome.prompt_tokens, Relaxed);
        self.cached_tokens.fetch_add(outcome.cached_tokens, Relaxed);
        if let Some(error) = &outcome.error {
            self.errors.fetch_add(1, Relaxed);
            let mut first = self.first_error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| error.clone());
        }
    }
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            asked: self.asked.saturating_sub(before.asked),
            hit: self.hit.saturating_sub(before.hit),
            requests: self.requests.saturating_sub(before.requests),
            latency_us: self.latency_us.saturating_sub(before.latency_us),
        }
    }

    fn hit_rate(self) -> f64 {
        if self.asked == 0 { 0.0 } else { self.hit as f64 / self.asked as f64 }
    }

    fn mean_latency(self) -> Duration {
        Duration::from_micros(self.latency_us.checked_div(self.requests).unwrap_or(0))
    }
}

fn engine_config() -> EngineConfig {
    EngineConfig {
        cache_blocks: CACHE_BLOCKS,
        base: BASE,
        prefill_per_block: PREFILL_PER_BLOCK,
        decode_per_token: Duration::ZERO,
        ..EngineConfig::default()
    }
}

/// The first model that any of the replicas serves.
async fn served_model(replicas: &[String]) -> Option<String> {
    let client = http_client(1, Duration::from_secs(5)).ok()?;
    for replica in replicas {
        let answer = client.get(format!("{replica}/v1/models")).send().await;
        let Ok(answer) = answer else { continue };
        let models: serde_json::Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        if let Some(model) = models.pointer("/data/0/id").and_then(serde_json::Value::as_str) {
            return Some(model.to_owned());
        }
    }
    None
}
