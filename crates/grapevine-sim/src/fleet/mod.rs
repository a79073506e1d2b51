//! Fleet simulation: `grapevine-sim fleet`.
//!
//! N routers, each with the real prefix tree, votes, picker and mesh actor over real chitchat, live
//! through virtual time on a simulated network, before model engines, while things go wrong by one
//! seed. `world` is the event loop; `nodes`, `router` and `host` are a router; `network`,
//! `faults`, `engines` and `workload` its surroundings; `checks` says what must hold; `witness`
//! measures how fast news spreads; `journal` proves that one seed is one run.
//!
//! chitchat draws from the thread's random generator and walks std's hash maps. One seed gives one run
//! only in a process whose `getrandom` is seeded: the `grapevine-sim` binary is one, and starts a
//! process for each seed. Nothing in this library depends on that.

mod admin;
mod agenda;
mod args;
mod checks;
mod clock;
mod cpu;
mod engines;
mod faults;
mod gauges;
mod health;
mod host;
mod journal;
mod network;
mod nodes;
mod outcome;
mod report;
mod router;
mod witness;
mod workload;
mod world;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::TreeConfig;

pub use self::args::FleetArgs;
use self::faults::{Fault, Mishaps, Scene};
pub use self::gauges::Gauges;
use self::journal::Journal;
use self::network::Weather;
pub use self::outcome::{Outcome, Violation};
pub use self::report::FleetReport;
use self::workload::Load;
use self::world::Setup;
use crate::replay::engine::{EngineSpec, Micros};
use crate::replay::trace::Trace;

/// Share of the single tree's hit rate that a fleet must reach while nothing goes wrong, and while
/// things do: a router that comes back knows nothing for a moment.
const FLOOR: f64 = 0.97;
const FLOOR_IN_TROUBLE: f64 = 0.85;

/// Requests below which a hit rate is noise.
const ENOUGH: u64 = 1_000;

/// Loss and duplicates that chaos brings at least.
const CHAOS: f64 = 0.05;

/// Speeds of the model engines: a mid-sized model on one accelerator.
const PREFILL_TOKENS_PER_SECOND: f64 = 16_000.0;

/// Lives through one seed, and through the same traffic with one shared tree.
pub fn run_seed(args: &FleetArgs, seed: u64) -> io::Result<Outcome> {
    let lasts = (args.minutes * 60e6) as Micros;
    let trace = workload::generate(&Load { seed, rate: args.rate, lasts });
    let setup = setup(args, seed, lasts);
    let mut outcome = play(&setup, &trace, Arc::new(Journal::new(args.log.as_deref())?))?;
    if args.routers > 1 && !args.memory {
        let single = play(&alone(&setup), &trace, Arc::new(Journal::new(None)?))?;
        outcome.single_input_tokens = single.input_tokens;
        outcome.single_cached_tokens = single.cached_tokens;
        check_floor(&mut outcome, &setup);
    }
    Ok(outcome)
}

fn setup(args: &FleetArgs, seed: u64, lasts: Micros) -> Setup {
    let (routers, replicas) = (args.routers as usize, args.replicas as usize);
    let mishaps = Mishaps {
        partition: args.partition,
        crash: args.crash,
        chaos: args.chaos,
        restarts: args.restarts,
        rolling: args.rolling,
    };
    let least = if args.chaos { CHAOS } else { 0.0 };
    Setup {
        seed,
        routers,
        replicas,
        weather: Weather {
            loss: args.loss.max(least),
            duplicate: args.duplicate.max(least),
            latency: args.latency,
        },
        interval: args.interval,
        faults: faults::plan(mishaps, Scene { routers, replicas, lasts }, seed),
        engine: EngineSpec {
            cache_tokens: args.cache,
            prefill_rate: PREFILL_TOKENS_PER_SECOND,
            prefill_fixed: 2_000,
            decode_token: 15_000,
            decode_share: 50,
            max_running: 512,
        },
        tree: TreeConfig::default(),
        lasts,
        quiet: args.quiet.as_micros() as Micros,
        measure_cpu: args.cpu,
        measure_memory: args.memory,
    }
}

/// The same world with one router that never stops, so with one tree.
fn alone(setup: &Setup) -> Setup {
    let of_replicas =
        |fault: &&(Micros, Fault)| matches!(fault.1, Fault::ReplicaDies(_) | Fault::ReplicaRises(_));
    Setup {
        routers: 1,
        faults: setup.faults.iter().filter(of_replicas).cloned().collect(),
        quiet: 0,
        measure_cpu: false,
        measure_memory: false,
        ..setup.clone()
    }
}

/// One thread, one paused clock.
fn play(setup: &Setup, trace: &Trace, journal: Arc<Journal>) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let outcome = runtime.block_on(world::play(setup, trace, journal));
    runtime.shutdown_timeout(Duration::ZERO);
    Ok(outcome)
}

fn check_floor(outcome: &mut Outcome, setup: &Setup) {
    let floor = if setup.faults.is_empty() { FLOOR } else { FLOOR_IN_TROUBLE };
    let (own, single) = (outcome.hit_rate(), outcome.hit_rate_single());
    if outcome.requests >= ENOUGH && own < floor * single {
        let what = format!("hit rate {own:.4} is below {floor} of the single tree's {single:.4}");
        outcome.violate(setup.lasts, what);
    }
}
