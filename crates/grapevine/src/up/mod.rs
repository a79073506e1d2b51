//! `grapevine up`: a whole fleet on this machine, with traffic, to look at.
//!
//! With simulated engines two fleets run side by side under the same traffic: the one that was asked
//! for, and one router that places at random in front of engines of its own. With real engines
//! (`--replicas`) random placement gets the first third of the time instead. Either way the
//! comparison is measured, never a constant.
//!
//! ```text
//! load ──▶ router 1..n (processes of this binary, gossiping) ──▶ engines (simulated, here)
//! load ──▶ router, random ─────────────────────────────────────▶ as many engines again
//! ```

mod plain;
mod reach;
mod sample;
mod side;
mod view;

use std::time::Duration;

use clap::Args;
use grapevine_node::config::base_url;
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::sample::{Sample, SideSample};
use self::side::{Plan, Side};
use self::view::Live;
use crate::Failure;
use crate::runtime::{self, Signals};
use crate::screen;

/// How often the view is drawn anew.
const REFRESH: Duration = Duration::from_millis(500);

/// How often a line is printed where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// A fleet on this machine: routers, simulated engines, traffic, and what comes of it
#[derive(Args, Debug, Clone)]
pub(crate) struct UpArgs {
    /// Routers in the fleet
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=32))]
    routers: u16,

    /// Simulated engines behind them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,

    /// How long to run
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=86_400))]
    seconds: u32,

    /// How the fleet places requests
    #[arg(long, value_name = "NAME", default_value = "affinity",
          value_parser = ["affinity", "random", "round-robin", "least-loaded"])]
    policy: String,

    /// Real engines instead of simulated ones: base URLs
    #[arg(long, value_name = "URL", value_delimiter = ',', value_parser = base_url, conflicts_with = "engines")]
    replicas: Vec<String>,

    /// Model to ask real engines for; asked from them when not given
    #[arg(long, value_name = "NAME", requires = "replicas")]
    model: Option<String>,

    /// Requests at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,

    /// Plain lines instead of the live view
    #[arg(long)]
    plain: bool,
}

/// Runs it, to the end of the time or the first signal.
pub(crate) fn run(args: &UpArgs) -> Result<(), Failure> {
    let runtime = runtime::build(0).map_err(Box::new)?;
    runtime.block_on(up(args)).map_err(Failure::Run)
}

async fn up(args: &UpArgs) -> Result<(), Box<dyn std::error::Error>> {
    let signals = Signals::catch()?;
    let mut stop = std::pin::pin!(signals.first());
    let live = !args.plain && screen::can_draw();
    reach::all(&args.replicas).await?;
    let routers = if args.routers == 1 { "router" } else { "routers" };
    println!("starting {} {routers} and {} ...", args.routers, engines_of(args));
    let mut sides = Vec::new();
    let mut history = Vec::new();
    for plan in plans(args) {
        sides.push(tokio::select! {
            side = Side::start(plan) => side?,
            () = &mut stop => return Ok(()),
        });
    }
    for side in sides.iter().take(1) {
        println!("as long as it runs, in a browser:  {}", side.page());
        println!("and in another terminal:           {}", side.top());
    }
    let mut view = if live { Live::terminal()? } else { Live::lines(LINE_EVERY) };
    for stage in stages(args, sides.len()) {
        for side in &sides[stage.sides.clone()] {
            side.drive()?;
        }
        let end = Instant::now() + stage.time;
        let stopped = watch(&mut view, &mut sides, stage.sides, end, stop.as_mut(), &mut history).await?;
        if stopped {
            break;
        }
    }
    let last = Sample::of(&history);
    drop(view);
    for side in sides {
        side.stop().await;
    }
    print!("{}", plain::summary(&last));
    Ok(())
}

/// Shows the sides until `end`. True when somebody wants to stop.
async fn watch(
    view: &mut Live,
    sides: &mut [Side],
    active: std::ops::Range<usize>,
    end: Instant,
    mut stop: std::pin::Pin<&mut impl Future<Output = ()>>,
    history: &mut Vec<SideSample>,
) -> Result<bool, Box<dyn std::error::Error>> {
    let mut refresh = interval(REFRESH);
    refresh.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopped = false;
    while !stopped && Instant::now() < end {
        tokio::select! {
            _ = refresh.tick() => {}
            () = view.quit() => stopped = true,
            () = &mut stop => stopped = true,
        }
        for at in active.clone() {
            if let Some(side) = sides.get_mut(at) {
                let sample = side.sample().await;
                match history.iter_mut().find(|s| s.label == sample.label) {
                    Some(old) => *old = sample,
                    None => history.push(sample),
                }
            }
        }
        view.show(&Sample::of(history), end.saturating_duration_since(Instant::now()))?;
    }
    for at in active {
        if let Some(side) = sides.get_mut(at) {
            side.halt();
        }
    }
    Ok(stopped)
}

struct Stage {
    sides: std::ops::Range<usize>,
    time: Duration,
}

/// Simulated: both sides at once. Real: the baseline first, on its own.
fn stages(args: &UpArgs, sides: usize) -> Vec<Stage> {
    let time = Duration::from_secs(args.seconds.into());
    if args.replicas.is_empty() || sides < 2 {
        return vec![Stage { sides: 0..sides, time }];
    }
    vec![Stage { sides: 1..2, time: time / 3 }, Stage { sides: 0..1, time: time * 2 / 3 }]
}

fn plans(args: &UpArgs) -> Vec<Plan> {
    let main = Plan {
        label: args.policy.clone(),
        policy: args.policy.clone(),
        routers: args.routers.into(),
        engines: if args.replicas.is_empty() { args.engines.into() } else { 0 },
        replicas: args.replicas.clone(),
        model: args.model.clone(),
        connections: args.connections.into(),
        seed: 1,
    };
    // What other prompts leave in real caches must not help the second stage.
    let seed = if args.replicas.is_empty() { 1 } else { 2 };
    let baseline = Plan {
        label: "random, 1 router".to_owned(),
        policy: "random".to_owned(),
        routers: 1,
        seed,
        ..main.clone()
    };
    vec![main, baseline]
}

fn engines_of(args: &UpArgs) -> String {
    match args.replicas.len() {
        0 => format!("2 x {} simulated engines", args.engines),
        1 => "1 engine behind them".to_owned(),
        n => format!("{n} engines behind them"),
    }
}
