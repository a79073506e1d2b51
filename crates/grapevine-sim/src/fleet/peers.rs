//! What peers said of their load, with its age, as the serving router keeps it.

use std::collections::BTreeMap;

use grapevine_mesh::LoadReport;
use grapevine_route::PeerLoad;
use grapevine_tree::{Millis, ReplicaId, RouterId};

/// Load by origin.
#[derive(Debug, Default)]
pub(super) struct Peers {
    origins: BTreeMap<RouterId, Origin>,
}

#[derive(Debug, Default)]
struct Origin {
    heard_at: Millis,
    /// Its generation began while we listened, so its counts began at 0.
    known_from_start: bool,
    loads: BTreeMap<ReplicaId, PeerLoad>,
    tokens: BTreeMap<ReplicaId, u64>,
}

impl Peers {
    /// Replaces what `origin` has in flight; by how much its token counts grew.
    pub(super) fn report(
        &mut self,
        origin: RouterId,
        restarted: bool,
        loads: Option<Vec<LoadReport>>,
        now: Millis,
    ) -> Vec<(ReplicaId, u64)> {
        let peer = self.origins.entry(origin).or_default();
        if restarted {
            peer.known_from_start = true;
            peer.tokens.clear();
        }
        let Some(loads) = loads else { return Vec::new() };
        peer.heard_at = now;
        peer.loads.clear();
        let mut growth = Vec::new();
        for load in loads {
            let seen = PeerLoad { inflight: load.inflight, queued_tokens: load.queued_tokens };
            peer.loads.insert(load.replica, seen);
            growth.extend(peer.growth(&load).map(|tokens| (load.replica, tokens)));
        }
        growth
    }

    /// What every origin has in flight on `replica`, with the age of the report.
    pub(super) fn on(
        &self,
        replica: ReplicaId,
        now: Millis,
    ) -> impl Iterator<Item = (PeerLoad, Millis)> + '_ {
        self.origins.values().filter_map(move |peer| {
            peer.loads.get(&replica).map(|load| (*load, now.saturating_sub(peer.heard_at)))
        })
    }
}

impl Origin {
    fn growth(&mut self, load: &LoadReport) -> Option<u64> {
        // What was counted before we listened is part of no clock here.
        let start = if self.known_from_start { 0 } else { load.new_tokens };
        let before = self.tokens.entry(load.replica).or_insert(start);
        let grown = load.new_tokens.saturating_sub(*before);
        *before = load.new_tokens.max(*before);
        (grown > 0).then_some(grown)
    }
}
