//! `grapevine engine`: simulated engines, which print their URLs on stdout.

use grapevine_node::config::Config;
use grapevine_node::telemetry;
use grapevine_testkit::engine::{EngineArgs, run_engine};

use crate::{Failure, runtime};

/// Runs engines until a signal ends them.
pub(crate) fn run(args: EngineArgs) -> Result<(), Failure> {
    telemetry::init(&Config::default()).map_err(Box::new)?;
    let runtime = runtime::build(0).map_err(Box::new)?;
    runtime.block_on(run_engine(args)).map_err(Box::new)?;
    Ok(())
}
