//! `grapevine serve`: config, telemetry, runtime, app; then all of it in reverse.

use std::error::Error;
use std::time::Duration;

use grapevine_node::config::{Config, ProcessEnv};
use grapevine_node::telemetry::{self, Tracer};
use grapevine_node::{App, Deps};

use crate::Failure;
use crate::descriptors;
use crate::runtime::{self, Signals};

/// For blocking calls that still run when everything else has ended (a DNS lookup, say).
const RUNTIME_LIMIT: Duration = Duration::from_secs(1);

/// For the last spans. A supervisor kills at the end of its grace period: spans are not worth it.
const TRACES_LIMIT: Duration = Duration::from_secs(3);

/// Runs a router until a signal ends it.
pub(crate) fn run() -> Result<(), Failure> {
    let config = Config::from_env(&ProcessEnv)?;
    let telemetry = telemetry::init(&config).map_err(Box::new)?;
    descriptors::raise(config.max_inflight);
    let runtime = runtime::build(config.workers).map_err(Box::new)?;
    let served = runtime.block_on(serve(config, telemetry.tracer()));
    // Spans end with the bodies that hold them, so the runtime goes first.
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    telemetry.shutdown(TRACES_LIMIT);
    served.map_err(Failure::Run)
}

async fn serve(config: Config, tracer: Tracer) -> Result<(), Box<dyn Error>> {
    let signals = Signals::catch()?;
    let app = App::build(config, Deps { tracer, ..Deps::default() }).await?;
    Box::pin(app.run(signals.first())).await?;
    Ok(())
}
