//! The runtime of a router: configuration, actors, HTTP, engine clients, telemetry.
//!
//! [`App::build`] wires everything in one place; [`App::run`] serves until it is told to stop and
//! then drains.

pub mod actors;
pub mod admin;
pub mod app;
mod atomic;
pub mod auth;
pub mod bounded;
mod client;
pub mod clock;
pub mod config;
pub mod discovery;
pub mod engine;
pub mod error;
pub mod mesh;
pub mod metrics;
pub mod observe;
mod percent;
pub mod proxy;
pub mod replica;
pub mod server;
pub mod telemetry;
pub mod tls;
mod watch;

pub use app::{Addresses, App, BuildError, Deps, RunError};
