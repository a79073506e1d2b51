//! Floods against a real router: what each costs is bounded, and whoever does nothing wrong is served meanwhile.

mod clients;
mod engine;
mod gossip;
mod healthy;
mod large_bodies;
mod names;
mod ports;

use super::process::Router;

/// Descriptors that a router has open.
fn descriptors(router: &Router) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", router.process.id())).unwrap().count()
}

fn addr(router: &Router) -> String {
    router.url.trim_start_matches("http://").to_owned()
}

/// Looks at engines would only be in the way.
fn quiet_settings() -> Vec<(&'static str, String)> {
    let set = |name, value: &str| (name, value.to_owned());
    vec![
        set("GRAPEVINE_HEALTH_INTERVAL", "1h"),
        set("GRAPEVINE_METRICS_INTERVAL", "0s"),
        set("GRAPEVINE_MODELS_INTERVAL", "0s"),
    ]
}
