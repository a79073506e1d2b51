//! A load driver: sends a workload to one or several routers and reports what came back.
//!
//! Closed loop by default (each connection sends its next request when the last answer is read), open
//! loop with a rate. Conversations keep their order: a turn waits for the answer to the one before.
//!
//! ```no_run
//! # async fn demo() -> Result<(), grapevine_testkit::load::ClientError> {
//! use grapevine_testkit::load::{Load, LoadConfig};
//! use grapevine_testkit::workload::{Workload, WorkloadConfig};
//!
//! let config = LoadConfig::new(["http://127.0.0.1:8080", "http://127.0.0.1:8081"]);
//! let report = Load::new(config)?
//!     .on_outcome(|outcome| println!("{:?} {}", outcome.latency, outcome.cached_tokens))
//!     .run(Workload::new(WorkloadConfig::default()))
//!     .await;
//! println!("{:.1} %", report.hit_rate() * 100.0);
//! # Ok(())
//! # }
//! ```

mod client;
mod driver;
mod report;
mod sse;
mod turns;

#[cfg(test)]
mod tests;

pub use client::{ClientError, HttpClient, describe, http_client};
pub use driver::{Load, LoadConfig, Stop};
pub use report::{Outcome, Report, Times};
