//! The command line of a fleet simulation.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::replay::unit;

/// Lets a fleet of real routers live through virtual time on a simulated network.
#[derive(Args, Clone, Debug)]
pub struct FleetArgs {
    /// Routers.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub routers: u32,
    /// Engine replicas.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub replicas: u32,
    /// Virtual minutes during which requests arrive.
    #[arg(long, value_name = "MINUTES", default_value = "2", value_parser = unit::positive)]
    pub minutes: f64,
    /// Requests a second, at all routers together.
    #[arg(long, value_name = "N", default_value = "200", value_parser = unit::positive)]
    pub rate: f64,
    /// Share of datagrams that are lost. A message is lost with any of its datagrams.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = unit::share)]
    pub loss: f64,
    /// Share of messages that arrive twice.
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = unit::share)]
    pub duplicate: f64,
    /// Mean time from router to router; each message takes half of it to one and a half.
    #[arg(long, value_name = "TIME", default_value = "2ms", value_parser = unit::duration)]
    pub latency: Duration,
    /// How often routers gossip.
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = unit::duration)]
    pub interval: Duration,
    /// Prefix cache of each replica, tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 400_000)]
    pub cache: u64,
    /// Cut the fleet in two for a while.
    #[arg(long)]
    pub partition: bool,
    /// Let a router and a replica die and come back with nothing.
    #[arg(long)]
    pub crash: bool,
    /// Everything: partition, many crashes, farewells, one-way cuts, clocks that go back, and at least
    /// 5 % loss and 5 % duplicates.
    #[arg(long)]
    pub chaos: bool,
    /// Restart router 0 this often in a row.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub restarts: u32,
    /// Restart every router once, one after the other, in good order.
    #[arg(long)]
    pub rolling: bool,
    /// Watch the fleet this long after its last answer.
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = unit::duration)]
    pub quiet: Duration,
    /// First seed of everything random. One seed is one run, event by event.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// How many seeds to run, each in a process of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Measure CPU too. What is printed is then not the same each time.
    #[arg(long)]
    pub cpu: bool,
    /// Print what is held in memory each virtual minute. Leaves out the single tree, so that the process holds
    /// nothing else.
    #[arg(long)]
    pub memory: bool,
    /// Write the events of a single seed to this file, a line each.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Run one seed in this process and print its outcome for the process that collects them.
    #[arg(long, hide = true)]
    pub alone: bool,
}

impl FleetArgs {
    /// The flags that make the same world, without seed and output.
    pub fn world_flags(&self) -> Vec<String> {
        let mut flags: Vec<String> = Vec::new();
        let mut add = |name: &str, value: String| flags.extend([format!("--{name}"), value]);
        add("routers", self.routers.to_string());
        add("replicas", self.replicas.to_string());
        add("minutes", self.minutes.to_string());
        add("rate", self.rate.to_string());
        add("loss", self.loss.to_string());
        add("duplicate", self.duplicate.to_string());
        add("latency", format!("{}us", self.latency.as_micros()));
        add("interval", format!("{}us", self.interval.as_micros()));
        add("cache", self.cache.to_string());
        add("restarts", self.restarts.to_string());
        add("quiet", format!("{}ms", self.quiet.as_millis()));
        let kinds = [
            ("partition", self.partition),
            ("crash", self.crash),
            ("chaos", self.chaos),
            ("rolling", self.rolling),
        ];
        for (name, on) in kinds {
            if on {
                flags.push(format!("--{name}"));
            }
        }
        flags
    }
}
