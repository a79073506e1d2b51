//! `grapevine soak`: a fleet on this machine under mixed traffic while its engines and routers die, hang,
//! are replaced, and come and go. It ends badly when a request fails that nothing excuses, or when memory,
//! descriptors, tasks, gossip or the hit rate are not at the end what they were.
//!
//! ```text
//! streams, whole answers, clients that leave ──▶ routers (processes) ──▶ simulated engines (processes)
//!                                                    ▲ troubles, one at a time ▲
//! ```
//!
//! The first router and the first engine are spared, so that what grows in them shows.

mod cast;
mod ledger;
mod probe;
mod traffic;
mod trouble;
mod verdict;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use self::cast::Cast;
use self::ledger::Ledger;
use self::probe::Probe;
use self::traffic::Traffic;
use self::trouble::Troubles;
use self::verdict::Verdict;
use crate::Failure;
use crate::runtime::{self, Signals};

/// How often the fleet is looked at.
const SAMPLE_EVERY: Duration = Duration::from_secs(5);

/// From one trouble's end to the next one's beginning: long enough for probes and gossip to notice.
const QUIET: Duration = Duration::from_secs(5);

/// A fleet on this machine whose engines and routers die and come back, and what it costs
#[derive(Args, Debug, Clone)]
pub(crate) struct SoakArgs {
    /// How long
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    minutes: u32,

    /// Routers; the first is spared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=32))]
    routers: u16,

    /// Simulated engines; the first is spared
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..=64))]
    engines: u16,

    /// Requests a second, to all routers together
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,

    /// No troubles: traffic only
    #[arg(long)]
    calm: bool,

    /// Troubles and traffic follow from it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs it to its end or the first signal. Fails when the verdict is bad.
pub(crate) fn run(args: &SoakArgs) -> Result<(), Failure> {
    let runtime = runtime::build(0).map_err(Box::new)?;
    runtime.block_on(soak(args)).map_err(Failure::Run)
}

async fn soak(args: &SoakArgs) -> Result<(), Box<dyn Error>> {
    let signals = Signals::catch()?;
    println!("starting {} routers and {} simulated engines ...", args.routers, args.engines);
    let mut cast = Cast::start(args.routers.into(), args.engines.into()).await?;
    let ledger = Arc::new(Ledger::new(cast.urls()));
    let mut probe = Probe::start(&cast);
    probe.look(&ledger).await;
    let traffic = Traffic::start(&cast.urls(), args.rate, args.seed, &ledger)?;
    let mut troubles = Troubles::new(SmallRng::seed_from_u64(args.seed));
    let end = Instant::now() + Duration::from_secs(u64::from(args.minutes) * 60);
    tokio::select! {
        () = sleep_until(end) => {}
        () = signals.first() => {}
        () = watch(&mut probe, &ledger) => {}
        done = trouble(&mut troubles, &mut cast, &ledger), if !args.calm => done?,
    }
    cast.mend().await?;
    traffic.stop().await;
    let rest = probe.at_rest().await;
    cast.stop().await;
    let verdict = Verdict::of(&probe, rest, &ledger, &troubles);
    print!("{}", verdict.text());
    if verdict.is_good() { Ok(()) } else { Err("the soak found something".into()) }
}

/// Looks at the fleet again and again, and says so.
async fn watch(probe: &mut Probe, ledger: &Ledger) {
    let mut tick = interval(SAMPLE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tick.tick().await;
    loop {
        tick.tick().await;
        probe.look(ledger).await;
        println!("{}", probe.line());
    }
}

/// One trouble after the other.
async fn trouble(troubles: &mut Troubles, cast: &mut Cast, ledger: &Ledger) -> Result<(), Box<dyn Error>> {
    loop {
        sleep(QUIET).await;
        troubles.next(cast, ledger).await?;
    }
}
