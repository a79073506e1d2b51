//! Rules between settings.

use std::net::{IpAddr, SocketAddr};

use super::mistake::Mistake;
use super::{Config, replicas};

const ADVERTISE: &str = "GRAPEVINE_GOSSIP_ADVERTISE";
const GOSSIP: &str = "GRAPEVINE_GOSSIP_LISTEN";
const SECRET: &str =
    "set GRAPEVINE_CLUSTER_SECRET or GRAPEVINE_CLUSTER_SECRET_FILE, the same on every router";

/// Adds what is wrong with `config` as a whole.
pub(super) fn check(config: &Config, mistakes: &mut Vec<Mistake>) {
    let mut refuse = |setting: &str, problem: String| mistakes.push(Mistake::new(setting, problem));
    if config.replicas.is_empty() && !config.discovers() {
        refuse("GRAPEVINE_REPLICAS", replicas::EMPTY.to_owned());
    }
    if overlap(config.listen, config.admin_listen) {
        let problem =
            format!("{} is GRAPEVINE_LISTEN's address too: give it a port of its own", config.admin_listen);
        refuse("GRAPEVINE_ADMIN_LISTEN", problem);
    }
    if config.cluster_secret.is_none() && config.cluster_secret_previous.is_some() {
        let problem = format!("is set without a current secret: {SECRET}");
        refuse("GRAPEVINE_CLUSTER_SECRET_PREVIOUS", problem);
    }
    for (set, missing, other) in [
        (&config.tls_cert, &config.tls_key, "GRAPEVINE_TLS_CERT"),
        (&config.tls_key, &config.tls_cert, "GRAPEVINE_TLS_KEY"),
    ] {
        if set.is_some() && missing.is_none() {
            refuse(other, "is set alone: set both GRAPEVINE_TLS_CERT and GRAPEVINE_TLS_KEY".to_owned());
        }
    }
    let open = !config.gossip_listen.ip().is_loopback();
    if open && config.cluster_secret.is_none() {
        let problem =
            format!("{} is open to the network, so gossip must be sealed: {SECRET}", config.gossip_listen);
        refuse(GOSSIP, problem);
    }
    if let Some(problem) = advertise_problem(config.gossip_listen, config.gossip_advertise) {
        refuse(ADVERTISE, problem);
    }
    let far = |seed: &&String| seed.parse::<SocketAddr>().is_ok_and(|seed| !seed.ip().is_loopback());
    if let (false, Some(seed)) = (open, config.gossip_seeds.iter().find(far)) {
        let problem = format!("{seed} cannot be reached from {}: set {GOSSIP} too", config.gossip_listen);
        refuse("GRAPEVINE_GOSSIP_SEEDS", problem);
    }
}

/// What `config` as a whole allows and hardly anybody wants, a sentence each: what is so, and what to do.
pub(super) fn warnings(config: &Config) -> Vec<String> {
    let mut found = Vec::new();
    if !config.admin_listen.ip().is_loopback() && config.admin_token.is_none() {
        found.push(format!(
            "GRAPEVINE_ADMIN_LISTEN: {} is open to the network and there is no token, so it answers health checks \
             alone: set GRAPEVINE_ADMIN_TOKEN or GRAPEVINE_ADMIN_TOKEN_FILE to see metrics, status and the page",
            config.admin_listen
        ));
    }
    found
}

/// Both would bind one TCP port.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && a.port() != 0 && same_ip
}

fn advertise_problem(listen: SocketAddr, advertise: Option<SocketAddr>) -> Option<String> {
    // Without one, a listener on all addresses tells peers the address from which this machine sends.
    let advertise = advertise?;
    if advertise.ip().is_unspecified() {
        return Some(format!("peers cannot send to {}: give this machine's own address", advertise.ip()));
    }
    if advertise.port() == 0 {
        return Some(format!("{advertise} has port 0: give the port that peers send to"));
    }
    if listen.ip().is_loopback() && !advertise.ip().is_loopback() {
        return Some(format!("{advertise} does not lead to {listen}, which is loopback: set {GOSSIP} too"));
    }
    let dual = listen.ip() == IpAddr::from([0u16; 8]);
    if listen.is_ipv4() != advertise.is_ipv4() && !dual {
        return Some(format!("{advertise} and {GOSSIP} {listen} are of different IP versions"));
    }
    None
}
