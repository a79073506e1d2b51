//! The runtime of a router: configuration, actors, HTTP, engine clients, telemetry.

pub mod config;
