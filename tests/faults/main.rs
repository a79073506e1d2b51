//! The fault matrix: three routers and four engines, real processes on hosts of their own in a network
//! namespace, under load with long streams, and what becomes of the requests when something breaks.
//!
//! `cargo test -p grapevine --test faults -- --ignored --nocapture matrix` goes through all of it and prints a
//! table; with `UPDATE_DOCS=1` it writes it to docs/reliability.md; `FAULTS=dns` runs those whose name says so.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod clock;
mod collector;
mod dns;
mod fault;
mod files;
mod fleet;
#[path = "../net/hub.rs"]
mod hub;
mod list;
mod matrix;
#[path = "../net/node.rs"]
#[allow(dead_code, reason = "shared with the tests of networks, which use all of it")]
mod node;
#[path = "../e2e/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests, which use all of it")]
mod process;
mod seats;
mod table;
mod traffic;
