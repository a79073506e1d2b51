//! The lock-free parts of a router, with loom's atomics in place of the standard library's.
//!
//! Those parts name their atomics `crate::atomic`. Here that is loom, which runs a model in every order
//! in which its threads may run, and lets a load see every value that its ordering allows.

#[path = "../../../../crates/grapevine-route/src/health.rs"]
pub mod health;
#[path = "../../../../crates/grapevine-route/src/load.rs"]
pub mod load;
#[path = "../../../../crates/grapevine-node/src/observe/pace.rs"]
pub mod pace;

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
}
