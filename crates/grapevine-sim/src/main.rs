//! `grapevine-sim fleet`: many routers, one seed, no surprise.
//!
//! One seed must give one run, but chitchat draws from the thread's random generator and walks std's
//! hash maps, both of which are seeded by the system's `getrandom`. `mad-turmoil` puts a seeded one in
//! its place, once per process. So this process starts itself again for each seed, as many at a time
//! as there are cores, and sums up.

use std::io::{self, Write, stderr, stdout};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;

use clap::{Parser, Subcommand};
use grapevine_sim::fleet::{FleetArgs, FleetReport, Outcome, run_seed};
use rand::SeedableRng;
use rand::rngs::StdRng;

/// Simulations over the code that serves.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Subject,
}

#[derive(Subcommand)]
enum Subject {
    /// Let a fleet of routers live through virtual time; exit code 1 if something is broken.
    Fleet(Box<FleetArgs>),
}

fn main() -> ExitCode {
    let Subject::Fleet(args) = Cli::parse().command;
    let result = if args.alone { alone(*args) } else { together(&args) };
    result.unwrap_or_else(|error| {
        let _ = writeln!(stderr(), "grapevine-sim: {error}");
        ExitCode::FAILURE
    })
}

/// One seed, in this process. On a thread of its own: this one may have seeded its hash maps.
fn alone(args: FleetArgs) -> io::Result<ExitCode> {
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(args.seed));
    let run = thread::Builder::new().spawn(move || run_seed(&args, args.seed))?;
    let outcome = run.join().map_err(|_| io::Error::other("the simulation panicked"))??;
    serde_json::to_writer(stdout().lock(), &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// All seeds, each in a process.
fn together(args: &FleetArgs) -> io::Result<ExitCode> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let seeds: Vec<u64> = (args.seed..args.seed.saturating_add(args.seeds)).collect();
    let mut outcomes = Vec::new();
    for batch in seeds.chunks(cores) {
        let children: Vec<Child> = batch.iter().map(|&seed| start(args, seed)).collect::<io::Result<_>>()?;
        for child in children {
            outcomes.push(collect(child)?);
        }
    }
    let report = FleetReport::new(args, outcomes);
    match args.json {
        true => writeln!(stdout(), "{}", report.json())?,
        false => write!(stdout(), "{}", report.table())?,
    }
    write!(stderr(), "{}", report.complaints())?;
    Ok(if report.violated() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(args: &FleetArgs, seed: u64) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("fleet").args(args.world_flags()).args(["--alone", "--seed", &seed.to_string()]);
    if args.cpu {
        command.arg("--cpu");
    }
    if args.memory {
        command.arg("--memory");
    }
    if let Some(log) = &args.log {
        command.arg("--log").arg(log);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
}

fn collect(child: Child) -> io::Result<Outcome> {
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("a seed's process ended with {}", output.status)));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
