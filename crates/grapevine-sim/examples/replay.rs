//! `cargo run --release -p grapevine-sim --example replay -- TRACE [flags]`: the replay alone,
//! without the router around it.

use std::io::{stderr, stdout};

use clap::Parser;
use grapevine_sim::replay::{ReplayArgs, ReplayError, run_replay};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    replay: ReplayArgs,
}

fn main() -> Result<(), ReplayError> {
    run_replay(&Cli::parse().replay, &mut stdout().lock(), &mut stderr().lock())
}
