//! The router against scripted engines over loopback. Tests are named after the cases they hold.

#![allow(clippy::unwrap_used, reason = "tests say what should be by panicking")]

mod access;
mod api;
mod body;
mod disconnect;
mod drain;
mod fleet;
mod headers;
mod health;
mod load;
mod metrics;
mod retry;
mod socket;
mod stream;
mod support;
mod tls;
