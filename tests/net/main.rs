//! Real processes in network namespaces: partitions, one-way cuts, kills, names that do not resolve,
//! ports that are taken, IPv6. Each test runs in a namespace of its own, so nothing of the machine's
//! network is touched. Where namespaces are forbidden a test says that it was skipped, and passes.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod cuts;
mod hub;
#[allow(dead_code, reason = "shared with the tests of faults, which use all of it")]
mod node;
#[path = "../e2e/process.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the end-to-end tests, which use all of it")]
mod process;
mod starts;
