//! `grapevine serve`: config, telemetry, runtime, app; then all of it in reverse.

use std::error::Error;
use std::time::Duration;

use grapevine_node::config::{Config, ProcessEnv};
use grapevine_node::telemetry::{self, Telemetry};
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
    let mut telemetry = telemetry::init(&config).map_err(Box::new)?;
    descriptors::raise(config.max_inflight);
    let runtime = runtime::build(config.workers).map_err(Box::new)?;
    let served = runtime.block_on(serve(config, &mut telemetry));
    // Spans end with the bodies that hold them, so the runtime goes first.
    runtime.shutdown_timeout(RUNTIME_LIMIT);
    telemetry.shutdown(TRACES_LIMIT);
    served.map_err(Failure::Run)
}

async fn serve(config: Config, telemetry: &mut Telemetry) -> Result<(), Box<dyn Error>> {
    let signals = Signals::catch()?;
    let (tracer, exports) = (telemetry.tracer(), telemetry.exports());
    let app = App::build(config, Deps { tracer, exports, ..Deps::default() }).await?;
    telemetry.push_metrics(app.exposition())?;
    Box::pin(app.run(signals.first())).await?;
    Ok(())
}
