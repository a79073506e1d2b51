//! Settings of the process: its end, its threads, its log lines.

use std::time::Duration;

use super::super::LogFormat;
use super::super::scalar::{Choice, Filter, Number, time};
use super::super::setting::{Setting, row};
use super::{HOUR, MINUTE};

const LOG_FORMATS: Choice<LogFormat> = Choice(&[("text", LogFormat::Text), ("json", LogFormat::Json)]);

pub(super) fn rows() -> Vec<Setting> {
    vec![
        row(
            "GRAPEVINE_DRAIN_DELAY",
            time(Duration::ZERO, 10 * MINUTE),
            |c| &mut c.drain_delay,
            "After SIGTERM the router is not ready, but serves new requests for this long: load balancers \
             need seconds to notice.",
        ),
        row(
            "GRAPEVINE_DRAIN_TIMEOUT",
            time(Duration::ZERO, 24 * HOUR),
            |c| &mut c.drain_timeout,
            "After the delay, requests in flight may take this long to end. The supervisor's grace period \
             must be longer than both together.",
        ),
        row(
            "GRAPEVINE_WORKERS",
            Number { min: 0, max: 1_024, of: "threads" },
            |c| &mut c.workers,
            "Threads that serve requests; 0 = one per core.",
        ),
        row("GRAPEVINE_LOG_FORMAT", LOG_FORMATS, |c| &mut c.log_format, "Shape of log lines on stderr."),
        row(
            "GRAPEVINE_LOG",
            Filter,
            |c| &mut c.log_filter,
            "What is logged, in the directives of tracing's filter: `info`, `warn,grapevine_node=debug`. \
             Prompts and secrets are logged at no level.",
        ),
    ]
}
