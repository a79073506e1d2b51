//! `grapevine load`: traffic with shared prefixes for routers that run already.
//!
//! It measures what a client sees: hit rates are what answers report as cached.

use std::convert::Infallible;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use grapevine_node::config::base_url;
use grapevine_testkit::engine::DEFAULT_MODEL;
use grapevine_testkit::load::{Load, LoadConfig, Outcome, Report};
use grapevine_testkit::workload::{Scenario, Workload, WorkloadConfig};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::Failure;
use crate::runtime::{self, Signals};

/// Traffic that shares prefixes, to routers that run already; every router is asked in turn
#[derive(Args, Debug, Clone)]
pub(crate) struct LoadArgs {
    /// Base URLs of the routers
    #[arg(required = true, value_name = "URL", value_delimiter = ',', value_parser = base_url)]
    targets: Vec<String>,

    /// What requests share: uniform, head, zipf or chat
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    scenario: Scenario,

    /// Shared prefixes, or conversations at a time
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    prefixes: u32,

    /// Bytes of a shared prefix
    #[arg(long, value_name = "BYTES", default_value_t = 4096,
          value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    prefix_bytes: u32,

    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,

    /// Requests a second in all; without it each connection sends as soon as it has its answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// How long; 0 = until a signal
    #[arg(long, value_name = "S", default_value_t = 30)]
    seconds: u32,

    /// Output tokens asked for
    #[arg(long, value_name = "N", default_value_t = 8)]
    max_tokens: u32,

    /// Model to ask for
    #[arg(long, value_name = "NAME", default_value = DEFAULT_MODEL)]
    model: String,

    /// Ask for streams
    #[arg(long)]
    stream: bool,

    /// Environment variable with the key to send
    #[arg(long, value_name = "NAME")]
    key_env: Option<String>,

    /// Prompts differ between seeds
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Lines of a run, about, as far as they are not further apart or closer than these seconds.
const LINES: u32 = 5;
const SHORTEST_LINE: u32 = 1;
const LONGEST_LINE: u32 = 5;

/// Sends until the time is over or a signal comes. Fails when a request failed, or none was sent.
pub(crate) fn run(args: &LoadArgs) -> Result<(), Failure> {
    let runtime = runtime::build(0).map_err(Box::new)?;
    runtime.block_on(load(args)).map_err(Failure::Run)
}

async fn load(args: &LoadArgs) -> Result<(), Box<dyn Error>> {
    let signals = Signals::catch()?;
    let window = Arc::new(Mutex::new(Window::default()));
    let seen = Arc::clone(&window);
    let load = Load::new(config(args)?)?
        .on_outcome(move |outcome| seen.lock().unwrap_or_else(PoisonError::into_inner).add(outcome));
    let (stop, seconds) = (load.stopper(), args.seconds);
    tokio::spawn(async move {
        tokio::select! {
            () = end_of(seconds) => {}
            () = signals.first() => {}
        }
        stop.stop();
    });
    let report = tokio::select! {
        report = load.run(Workload::new(workload(args))) => report,
        never = print_lines(&window, line_every(args.seconds)) => match never {},
    };
    print!("{}", summary(&report));
    Shortfall::of(report).map_or(Ok(()), |shortfall| Err(shortfall.into()))
}

/// Not every request got a good answer.
#[derive(Debug, thiserror::Error)]
enum Shortfall {
    #[error("nothing was sent")]
    Unasked,
    #[error("no request got a good answer; the first failure: {0}")]
    All(String),
    #[error("{failed} of {requests} requests failed; the first failure: {first}")]
    Some { failed: u64, requests: u64, first: String },
}

impl Shortfall {
    fn of(report: Report) -> Option<Self> {
        let (failed, requests) = (report.errors, report.requests);
        match report.first_error {
            None if requests == 0 => Some(Self::Unasked),
            None => None,
            Some(first) if failed == requests => Some(Self::All(first)),
            Some(first) => Some(Self::Some { failed, requests, first }),
        }
    }
}

/// Time between two lines of a run of `seconds`; 0 = without end.
fn line_every(seconds: u32) -> Duration {
    let every = if seconds == 0 { LONGEST_LINE } else { seconds / LINES };
    Duration::from_secs(every.clamp(SHORTEST_LINE, LONGEST_LINE).into())
}

/// The end of the time; never for 0.
async fn end_of(seconds: u32) {
    match seconds {
        0 => std::future::pending().await,
        seconds => sleep(Duration::from_secs(seconds.into())).await,
    }
}

fn config(args: &LoadArgs) -> Result<LoadConfig, Box<dyn Error>> {
    let api_key = match &args.key_env {
        Some(name) => Some(std::env::var(name).map_err(|_| format!("{name} holds no key"))?),
        None => None,
    };
    Ok(LoadConfig {
        connections: args.connections.into(),
        rate: args.rate.map(f64::from),
        stream: args.stream,
        max_tokens: args.max_tokens,
        model: args.model.clone(),
        api_key,
        keep_outcomes: 0,
        ..LoadConfig::new(args.targets.iter().map(String::as_str))
    })
}

fn workload(args: &LoadArgs) -> WorkloadConfig {
    WorkloadConfig {
        scenario: args.scenario,
        prefixes: args.prefixes as usize,
        prefix_bytes: args.prefix_bytes as usize,
        endless: true,
        seed: args.seed,
        ..WorkloadConfig::default()
    }
}

/// What happened since the last line.
#[derive(Default)]
struct Window {
    latencies: Vec<Duration>,
    errors: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
}

impl Window {
    fn add(&mut self, outcome: &Outcome) {
        if outcome.error.is_some() {
            self.errors += 1;
            return;
        }
        self.latencies.push(outcome.latency);
        self.prompt_tokens += outcome.prompt_tokens;
        self.cached_tokens += outcome.cached_tokens;
    }

    fn line(mut self, over: Duration) -> String {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        let at = |percent: usize| {
            self.latencies.get(last * percent / 100).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        format!(
            "{:7.1} req/s  hit {:5.1} %  p50 {:.1} ms  p99 {:.1} ms  failed {}",
            self.latencies.len() as f64 / over.as_secs_f64(),
            share(self.cached_tokens, self.prompt_tokens) * 100.0,
            at(50),
            at(99),
            self.errors
        )
    }
}

/// Prints a line of what happened, again and again.
async fn print_lines(window: &Mutex<Window>, every: Duration) -> Infallible {
    let mut tick = interval(every);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = tick.tick().await;
    loop {
        let now = tick.tick().await;
        let lately = std::mem::take(&mut *window.lock().unwrap_or_else(PoisonError::into_inner));
        println!("{}", lately.line(now - before));
        before = now;
    }
}

fn summary(report: &Report) -> String {
    format!(
        "{} requests in {:.1} s, {} failed, token hit rate {:.1} % as answers report it\n",
        report.requests,
        report.wall.as_secs_f64(),
        report.errors,
        report.hit_rate() * 100.0
    )
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_runs_have_lines_too() {
        let seconds = |run| line_every(run).as_secs();
        assert_eq!([seconds(1), seconds(10), seconds(30), seconds(3_600), seconds(0)], [1, 2, 5, 5, 5]);
    }

    #[test]
    fn any_failure_fails_the_run() {
        let text = |requests, errors: u64| {
            let first_error = (errors > 0).then(|| "503".to_owned());
            let report = Report { requests, errors, first_error, ..Report::default() };
            Shortfall::of(report).map_or_else(String::new, |shortfall| shortfall.to_string())
        };
        assert_eq!(text(2, 0), "");
        assert_eq!(text(2, 1), "1 of 2 requests failed; the first failure: 503");
        assert_eq!(text(2, 2), "no request got a good answer; the first failure: 503");
        assert_eq!(text(0, 0), "nothing was sent");
    }

    #[test]
    fn a_line_has_rates_of_its_window_only() {
        let mut window = Window::default();
        for ms in 1..=100 {
            let latency = Duration::from_millis(ms);
            window.add(&Outcome { latency, prompt_tokens: 10, cached_tokens: 9, ..Outcome::default() });
        }
        window.add(&Outcome { error: Some("503".to_owned()), ..Outcome::default() });
        let line = window.line(Duration::from_secs(5));
        assert_eq!(line, "   20.0 req/s  hit  90.0 %  p50 50.0 ms  p99 99.0 ms  failed 1");
        assert!(Window::default().line(Duration::from_secs(5)).contains("hit   0.0 %"));
    }
}
