//! `grapevine`: an LLM inference router that runs as a fleet.
//!
//! Each subcommand is a module. Exit codes: 0 all went well, 1 it did not (the reason is on stderr),
//! 2 the command line is wrong, 64 the configuration is wrong, 130 a second signal ended a drain.

mod admin;
mod config;
mod descriptors;
mod engine;
mod explain;
mod figures;
mod fleet;
mod health;
mod key;
mod load;
mod local;
mod replay;
mod runtime;
mod screen;
mod serve;
mod shell;
mod soak;
mod top;
mod up;
mod verdict;
mod version;

use std::error::Error;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Requests are many small allocations that one thread makes and another frees: what each costs is in
/// docs/performance.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An LLM inference router that runs as a fleet and keeps the prefix-cache hit rate of one.
///
/// Requests go to the engine replica that most likely still holds their prompt's prefix in its KV
/// cache. Routers tell each other by gossip what they have routed where, so any of them knows.
#[derive(Parser)]
#[command(name = "grapevine", version, propagate_version = true, after_help = EXAMPLE)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLE: &str = "\
Example: a router in front of two engines
  GRAPEVINE_REPLICAS=http://10.0.0.1:8000,http://10.0.0.2:8000 grapevine serve

Exit codes: 0 good, 1 failed, 2 wrong command line, 64 wrong configuration.";

#[derive(Subcommand)]
enum Command {
    /// Run a router; its settings are environment variables, listed by `serve --help`
    #[command(after_long_help = grapevine_node::config::help())]
    Serve,
    /// Print the settings that `serve` would run with, and where they come from
    Config(config::ConfigArgs),
    /// Run a fleet on this machine, with simulated engines and traffic, and watch its hit rate
    Up(up::UpArgs),
    /// Watch a fleet in the terminal, as any of its routers sees it
    Top(top::TopArgs),
    /// Ask a router where a request would go, and why
    Explain(explain::ExplainArgs),
    /// Run simulated engines to test routers with
    Engine(grapevine_testkit::engine::EngineArgs),
    /// Send traffic with shared prefixes to routers that run already
    Load(load::LoadArgs),
    /// Run a fleet on this machine whose engines and routers die and come back, and judge what it costs
    Soak(soak::SoakArgs),
    /// Replay recorded traffic through the code that serves, in virtual time
    Replay(grapevine_sim::replay::ReplayArgs),
    /// Ask the router of this environment whether it is ready; exit code 0 or 1, for container checks
    Health,
    /// Make a key for a client, and its line for the file of keys
    Key(key::KeyArgs),
    /// Print completions for a shell
    Completions(shell::CompletionsArgs),
    /// Print the manual page
    Man(shell::ManArgs),
    /// Print the version, and what routers must agree on
    Version(version::VersionArgs),
}

fn main() -> ExitCode {
    // Before anything makes a TLS client. It fails only when one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match Cli::parse().command {
        Command::Serve => serve::run(),
        Command::Config(args) => config::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Engine(args) => engine::run(args),
        Command::Load(args) => load::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Health => health::run(),
        Command::Key(args) => key::run(&args),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
        Command::Version(args) => version::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Why a command ended badly.
enum Failure {
    /// The configuration is wrong in these ways.
    Config(grapevine_node::config::Mistakes),
    /// Anything else.
    Run(Box<dyn Error>),
}

/// Exit code for a wrong configuration: EX_USAGE of sysexits.h.
const EXIT_CONFIG: u8 = 64;

impl Failure {
    fn report(self) -> ExitCode {
        match self {
            Self::Config(mistakes) => {
                let count = mistakes.0.len();
                let plural = if count == 1 { "" } else { "s" };
                eprintln!("grapevine: {count} mistake{plural} in the configuration\n{mistakes}");
                ExitCode::from(EXIT_CONFIG)
            }
            Self::Run(error) => {
                eprint!("grapevine: {error}");
                let mut source = error.source();
                while let Some(cause) = source {
                    eprint!(": {cause}");
                    source = cause.source();
                }
                eprintln!();
                ExitCode::FAILURE
            }
        }
    }
}

impl From<grapevine_node::config::Mistakes> for Failure {
    fn from(mistakes: grapevine_node::config::Mistakes) -> Self {
        Self::Config(mistakes)
    }
}

impl<E: Error + 'static> From<Box<E>> for Failure {
    fn from(error: Box<E>) -> Self {
        Self::Run(error)
    }
}
