//! Log lines on stderr.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, fmt};

use super::records::Records;
use crate::config::{Config, LogFormat};

/// The exporter's failures are logged once by [`super::batch`], not by the SDK. Gossip's library warns of each
/// router that starts anew, in every exchange until all have heard of it; metrics and status show peers.
/// Whoever names these targets in the filter hears them.
const QUIET: &str = "opentelemetry=off,opentelemetry_sdk=off,chitchat=error";

/// Logging cannot start.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter does not parse.
    #[error("bad log filter")]
    Filter(#[from] ParseError),
    /// The process has a subscriber already.
    #[error("logging is set up already")]
    Twice(#[from] TryInitError),
}

/// Makes the process's log lines, and `records` of them.
pub(super) fn init(config: &Config, records: Option<Records>) -> Result<(), LogsError> {
    let lines = fmt::layer().with_writer(stderr);
    let lines = match config.log_format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(lines).with(records).with(filter(&config.log_filter)?).try_init()?;
    Ok(())
}

fn filter(directives: &str) -> Result<EnvFilter, ParseError> {
    // Of two directives for one target the later wins.
    EnvFilter::builder().parse(format!("{QUIET},{directives}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_quiet_unless_asked() {
        let quiet = filter("info").expect("parses").to_string();
        assert!(quiet.contains("opentelemetry_sdk=off") && quiet.contains("info"), "{quiet}");
        let asked = filter("info,opentelemetry_sdk=debug").expect("parses").to_string();
        assert!(
            asked.contains("opentelemetry_sdk=debug") && !asked.contains("opentelemetry_sdk=off"),
            "{asked}"
        );
    }
}
