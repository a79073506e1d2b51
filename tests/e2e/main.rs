//! Real processes on loopback: the binary's routers in front of the binary's engines.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod burst;
mod client;
mod collector;
mod fleet;
mod floods;
mod hit_rate;
mod lifecycle;
mod lost_cache;
mod memory;
mod process;
mod rolling;
mod seat;
mod silence;
mod top;
mod trouble;
