//! `grapevine replay`: what would grapevine do with this traffic?

use std::io::{stderr, stdout};

use grapevine_sim::replay::{ReplayArgs, run_replay};

use crate::Failure;

/// Replays a trace and prints what came of it.
pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    run_replay(args, &mut stdout().lock(), &mut stderr().lock()).map_err(|error| Box::new(error).into())
}
