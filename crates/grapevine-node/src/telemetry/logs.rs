//! Log lines on stderr.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{Config, LogFormat};

/// The exporter's failures are logged once by [`super::export`], not with every batch by the SDK.
/// Whoever names these targets in the filter hears them.
const QUIET: &str = "opentelemetry=off,opentelemetry_sdk=off,opentelemetry-otlp=off,opentelemetry-http=off";

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

/// Makes the process's log lines.
pub(super) fn init(config: &Config) -> Result<(), LogsError> {
    let lines = tracing_subscriber::fmt().with_writer(stderr).with_env_filter(filter(&config.log_filter)?);
    match config.log_format {
        LogFormat::Text => lines.with_ansi(stderr().is_terminal()).finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
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
    fn the_sdk_is_quiet_unless_asked() {
        let quiet = filter("info").expect("parses").to_string();
        assert!(quiet.contains("opentelemetry_sdk=off") && quiet.contains("info"), "{quiet}");
        let asked = filter("info,opentelemetry_sdk=debug").expect("parses").to_string();
        assert!(
            asked.contains("opentelemetry_sdk=debug") && !asked.contains("opentelemetry_sdk=off"),
            "{asked}"
        );
    }
}
