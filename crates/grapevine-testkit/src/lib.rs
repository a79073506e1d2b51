//! What grapevine is tested with, and what `grapevine engine` and `grapevine up` are made of.
//!
//! - [`engine`]: a simulated inference engine with a real prefix cache and faults on demand
//! - [`workload`]: traffic whose best possible cache hit rate is known
//! - [`load`]: a driver that sends a workload to routers and reports what came back
//! - `otlp` (feature `otlp`): a receiver of traces

pub mod engine;
pub mod load;
#[cfg(feature = "otlp")]
pub mod otlp;
pub mod workload;
