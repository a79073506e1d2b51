//! The command line of a replay.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use grapevine_route::Weights;
use grapevine_tree::TreeConfig;

use super::engine::EngineSpec;
use super::router::Learning;
use super::rule::{RuleName, Rules};
use super::trace::{ReadOptions, Trace};
use super::unit::{self, CacheSize};
use super::world::Setup;

/// Replays recorded traffic through the code that routes, in virtual time, against a model of
/// engines.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// Trace: a router's decision log, an OpenAI request log (one JSON body a line), agents' calls or block
    /// ids (JSONL); plain, gzip, xz, a tar or a directory of them.
    pub trace: PathBuf,
    /// How replicas are chosen: names with commas between them, or `all` [affinity, random,
    /// round-robin, least-loaded, sticky, bounded-hash, sglang, llm-d].
    #[arg(long, value_name = "POLICIES", default_value = "random,round-robin,least-loaded,affinity")]
    pub policy: Rules,
    /// Print one JSON object instead of a table: of affinity if it is among the policies, else of the
    /// first; all of them are in it under `policies`.
    #[arg(long)]
    pub json: bool,
    /// Draw hit rate and time to first token of the policies into this SVG file.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Seed of everything random. Same seed, same output.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Read no more requests than this.
    #[arg(long, value_name = "N", default_value_t = usize::MAX, hide_default_value = true)]
    pub limit: usize,
    /// Replay this many times faster.
    #[arg(long, value_name = "FACTOR", value_parser = unit::positive, default_value = "1")]
    pub speed: f64,
    /// Requests a second where the trace has no time stamps.
    #[arg(long, value_name = "N", value_parser = unit::positive, default_value = "4")]
    pub rate: f64,
    /// Tokens of an answer where the trace does not say.
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub output_tokens: u32,
    /// Tokens of an engine's cache block where the trace is text. Memory of a replay falls as it grows.
    #[arg(long, value_name = "TOKENS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub block_tokens: u32,
    #[command(flatten)]
    engines: EngineArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    votes: VoteArgs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Engines")]
struct EngineArgs {
    /// Engine replicas.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    replicas: u32,
    /// Prefix cache of each replica: tokens, or % of the trace's working set.
    #[arg(long, value_name = "SIZE", default_value = "5%")]
    cache: CacheSize,
    /// Tokens a second that a replica prefills.
    #[arg(long, value_name = "TOKENS", value_parser = unit::positive, default_value = "12000")]
    prefill_rate: f64,
    /// Time of a prefill beside its tokens.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "20ms")]
    prefill_fixed: Duration,
    /// Time for a token of an answer, alone on its replica.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "20ms")]
    decode_token: Duration,
    /// More of it for each other request that runs there.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "250us")]
    decode_share: Duration,
    /// Most requests that run at once on a replica.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_running: u32,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Routers")]
struct FleetArgs {
    /// Routers.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    routers: u32,
    /// A session's requests all go to one router, instead of each to any.
    #[arg(long)]
    by_session: bool,
    /// Time from a router's gossip tick (every 250 ms) to its peers' trees.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "250ms")]
    tree_delay: Duration,
    /// Time from a router's gossip tick to its peers' view of load.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "250ms")]
    load_delay: Duration,
    /// Share of gossip messages that never arrive; 1 cuts routers off from each other.
    #[arg(long, value_name = "SHARE", value_parser = unit::share, default_value = "0")]
    loss: f64,
    /// How routers come to know what a cache holds.
    #[arg(long, value_enum, default_value_t = CapacityFrom::Known)]
    capacity: CapacityFrom,
    /// What routers are told a cache holds, times what it does; learning starts from there.
    #[arg(long, value_name = "FACTOR", value_parser = unit::positive)]
    capacity_error: Option<f64>,
    /// Routers do not notice when a replica has lost its cache.
    #[arg(long)]
    no_feedback: bool,
    /// At this time a replica loses its cache; several: one replica after the other.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, value_delimiter = ',')]
    reset: Vec<Duration>,
    /// Half-life of pick counts.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "120s")]
    half_life: Duration,
    /// Unused for this long is forgotten.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "30m")]
    idle_ttl: Duration,
    /// Used this recently is believed, whatever was prefilled since.
    #[arg(long, value_name = "TIME", value_parser = unit::duration, default_value = "5s")]
    grace: Duration,
}

/// How routers come to know what a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CapacityFrom {
    /// The engine says.
    Known,
    /// From what answers say they found, starting at the router's default.
    Learn,
    /// They do not: the router's default.
    Default,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Votes (policy affinity)")]
struct VoteArgs {
    /// Cost of a token that would have to be prefilled.
    #[arg(long = "prefix", value_name = "WEIGHT", default_value_t = Weights::default().prefix)]
    prefix: f32,
    /// Cost of a queued prefill token.
    #[arg(long = "queue", value_name = "WEIGHT", default_value_t = Weights::default().queue)]
    queue: f32,
    /// Cost of a request in flight, tokens.
    #[arg(long = "inflight", value_name = "WEIGHT", default_value_t = Weights::default().inflight)]
    inflight: f32,
    /// Discount for a cold prompt's home.
    #[arg(long = "home", value_name = "WEIGHT", default_value_t = Weights::default().home)]
    home: f32,
    /// Surcharge for more than a fair share of cold tokens.
    #[arg(long = "spread", value_name = "WEIGHT", default_value_t = Weights::default().spread)]
    spread: f32,
    /// Guard: requests in flight above the mean.
    #[arg(long = "guard-abs", value_name = "N", default_value_t = Weights::default().guard_abs)]
    guard_abs: f32,
    /// Guard: times the mean.
    #[arg(long = "guard-rel", value_name = "FACTOR", default_value_t = Weights::default().guard_rel)]
    guard_rel: f32,
}

impl FleetArgs {
    /// What routers believe at first of caches that hold `cache_tokens`.
    fn believed_tokens(&self, cache_tokens: u64) -> u64 {
        let told = match (self.capacity, self.capacity_error) {
            (CapacityFrom::Known, error) => cache_tokens as f64 * error.unwrap_or(1.0),
            (CapacityFrom::Learn, Some(error)) => cache_tokens as f64 * error,
            _ => TreeConfig::default().default_capacity_tokens as f64,
        };
        (told as u64).max(1)
    }
}

impl ReplayArgs {
    /// How to read the trace.
    pub fn read_options(&self) -> ReadOptions {
        ReadOptions {
            rate: self.rate,
            output_tokens: self.output_tokens,
            block_tokens: self.block_tokens,
            limit: self.limit,
        }
    }

    /// What to replay `trace` with, by `rule`.
    pub fn setup(&self, trace: &Trace, rule: RuleName) -> Setup {
        let Self { engines, fleet, votes, .. } = self;
        let micros = |d: Duration| d.as_micros() as u64;
        let millis = |d: Duration| d.as_millis() as u64;
        let cache_tokens = engines.cache.tokens(trace.working_set_tokens());
        let believed_tokens = fleet.believed_tokens(cache_tokens);
        Setup {
            rule,
            weights: Weights {
                prefix: votes.prefix,
                queue: votes.queue,
                inflight: votes.inflight,
                home: votes.home,
                spread: votes.spread,
                guard_abs: votes.guard_abs,
                guard_rel: votes.guard_rel,
                ..Weights::default()
            },
            tree: TreeConfig {
                half_life_ms: millis(fleet.half_life),
                idle_ttl_ms: millis(fleet.idle_ttl),
                grace_ms: millis(fleet.grace),
                ..TreeConfig::default()
            },
            engine: EngineSpec {
                cache_tokens,
                prefill_rate: engines.prefill_rate,
                prefill_fixed: micros(engines.prefill_fixed),
                decode_token: micros(engines.decode_token),
                decode_share: micros(engines.decode_share),
                max_running: engines.max_running as usize,
            },
            replicas: engines.replicas as usize,
            believed_tokens,
            learning: Learning {
                capacity_from: (fleet.capacity == CapacityFrom::Learn).then_some(believed_tokens),
                lost_caches: !fleet.no_feedback,
            },
            resets: fleet.reset.clone(),
            routers: fleet.routers as usize,
            by_session: fleet.by_session,
            tree_delay: fleet.tree_delay,
            load_delay: fleet.load_delay,
            loss: fleet.loss,
            speed: self.speed,
            seed: self.seed,
        }
    }
}
