//! Places in a fleet whose routers are replaced one after the other.

use std::process::Command;

use super::process::{Router, free_tcp, get, wait_for};

/// Longer than a client needs to see that a router is not ready, on a machine that is busy.
const DRAIN_DELAY: &str = "1500ms";

/// A router's addresses, which stay the same when another takes its place.
pub(crate) struct Seat {
    settings: Vec<(&'static str, String)>,
}

impl Seat {
    pub(crate) fn new(number: usize, seeds: &[String]) -> Self {
        let set = |name, value: &str| (name, value.to_owned());
        let settings = vec![
            set("GRAPEVINE_ROUTER_ID", &format!("r{number}")),
            set("GRAPEVINE_LISTEN", &free_tcp()),
            set("GRAPEVINE_ADMIN_LISTEN", &free_tcp()),
            set("GRAPEVINE_GOSSIP_LISTEN", &seeds[number]),
            set("GRAPEVINE_GOSSIP_SEEDS", &seeds.join(",")),
            set("GRAPEVINE_DRAIN_DELAY", DRAIN_DELAY),
        ];
        Self { settings }
    }

    /// Starts the router that a command runs.
    pub(crate) fn start(&self, command: Command, replicas: &[String]) -> Router {
        Router::start_with(command, replicas, &self.settings)
    }
}

/// Stops a router as a supervisor does, and says how it went.
pub(crate) fn retire(router: &mut Router) {
    router.process.signal("TERM");
    wait_for("readiness to fall", || (get(&format!("{}/readyz", router.admin)).0 != 200).then_some(()));
    assert_eq!(router.process.end().code(), Some(0), "{}", router.process.log());
    let log = router.process.log();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("{text} in\n{log}"));
    assert!(at("draining: not ready") < at("stopped"), "{log}");
}
