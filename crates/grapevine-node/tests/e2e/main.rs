//! The router against scripted engines over loopback. Tests are named after the cases they hold.

#![allow(clippy::unwrap_used, reason = "tests say what should be by panicking")]

mod access;
mod api;
mod body;
mod cancel;
mod disconnect;
mod discovery;
mod drain;
mod fleet;
mod floods;
mod framing;
mod h2_floods;
mod headers;
mod health;
mod http2;
mod load;
mod look;
mod metrics;
mod models;
mod names;
mod patience;
mod prometheus;
mod protocol;
mod recorded;
mod retry;
mod socket;
mod stream;
mod support;
mod tls;
