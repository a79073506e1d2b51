//! Statuses for tests: a router that is well, with nothing around it.

use std::collections::BTreeMap;

use super::status::*;

pub(super) fn status(id: &str) -> Status {
    Status {
        at_ms: 1_700_000_000_000,
        router: RouterStatus {
            id: id.to_owned(),
            version: "0.1.0".to_owned(),
            uptime_seconds: 10.0,
            tasks: 40,
            phase: "serving".to_owned(),
            policy: "affinity".to_owned(),
            mode: "route".to_owned(),
            listen: "127.0.0.1:8080".parse().unwrap(),
            admin_listen: "127.0.0.1:9090".parse().unwrap(),
            gossip_listen: None,
        },
        peers: Vec::new(),
        replicas: Vec::new(),
        tree: TreeStatus::default(),
        inflight: 0,
        waiting: 0,
        requests: BTreeMap::new(),
        decisions: BTreeMap::new(),
        lookups: 0,
        hits: 0,
        tokens: TokenStatus::default(),
        gossip: GossipStatus { running: true, sealed: true, live_peers: 1, ..GossipStatus::default() },
        discovery: Vec::new(),
        mailboxes: BTreeMap::new(),
        telemetry: BTreeMap::new(),
        shadow: None,
        warnings: Vec::new(),
        step_ms: 2_000,
        points: Vec::new(),
    }
}

pub(super) fn replica(name: &str) -> ReplicaStatus {
    ReplicaStatus {
        name: name.to_owned(),
        url: format!("http://{name}"),
        id: name.to_owned(),
        source: "static".to_owned(),
        weight: 1.0,
        models: None,
        health: "up".to_owned(),
        epoch: 0,
        inflight: 0,
        queued_tokens: 0,
        peer_inflight: 0.0,
        peer_queued_tokens: 0.0,
        intake_tokens: 0.0,
        drain: false,
        picks: 0,
        share: None,
        tokens: TokenStatus::default(),
        credit_error_tokens: None,
        capacity_tokens: None,
        capacity_source: "engine".to_owned(),
        lost_caches: 0,
        engine: EngineStatus::default(),
    }
}

pub(super) fn peer(name: &str) -> PeerStatus {
    PeerStatus {
        name: name.to_owned(),
        gossip_addr: "127.0.0.1:7946".parse().unwrap(),
        admin_url: None,
        live: true,
        draining: false,
        compatible: true,
        entries: 0,
        segments: 0,
        missed: 0,
        open: 0,
        lag_ms: 0,
        heard_ms_ago: 0,
        bytes_sent: 0,
        bytes_received: 0,
        agreement: None,
        taught_tokens: 0,
        taught_share: None,
    }
}
