//! What peers said of their load, with its age.

use std::collections::BTreeMap;

use grapevine_tree::{Millis, ReplicaId, RouterId};

use crate::load::PeerLoad;

/// Origins kept; beyond that new ones are ignored. Far above any fleet.
const MAX_ORIGINS: usize = 1_024;

/// An origin silent for this long is forgotten, ms.
const ORIGIN_TTL_MS: Millis = 600_000;

/// What one peer says of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedLoad {
    /// The replica.
    pub replica: ReplicaId,
    /// What it has in flight there.
    pub load: PeerLoad,
    /// Tokens it has newly sent there since its start.
    pub new_tokens: u64,
}

/// Load by origin.
#[derive(Debug, Default)]
pub struct PeerBook {
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

impl PeerBook {
    /// Replaces what `origin` has in flight and returns by how much its token counts grew. Counts
    /// are absolute, so a repeated or late report adds nothing. Only replicas that `known` accepts
    /// are kept.
    pub fn report(
        &mut self,
        origin: RouterId,
        restarted: bool,
        loads: Option<impl IntoIterator<Item = ReportedLoad>>,
        known: impl Fn(ReplicaId) -> bool,
        now: Millis,
    ) -> Vec<(ReplicaId, u64)> {
        if self.origins.len() >= MAX_ORIGINS && !self.origins.contains_key(&origin) {
            return Vec::new();
        }
        let peer = self.origins.entry(origin).or_default();
        if restarted {
            peer.known_from_start = true;
            peer.tokens.clear();
        }
        let Some(loads) = loads else { return Vec::new() };
        peer.heard_at = now;
        peer.loads.clear();
        let mut growth = Vec::new();
        for report in loads.into_iter().filter(|report| known(report.replica)) {
            peer.loads.insert(report.replica, report.load);
            growth.extend(peer.growth(&report).map(|tokens| (report.replica, tokens)));
        }
        growth
    }

    /// What every origin has in flight on `replica`, with the age of the report.
    pub fn on(&self, replica: ReplicaId, now: Millis) -> impl Iterator<Item = (PeerLoad, Millis)> + '_ {
        self.origins.values().filter_map(move |peer| {
            peer.loads.get(&replica).map(|load| (*load, now.saturating_sub(peer.heard_at)))
        })
    }

    /// Forgets origins that are long silent.
    pub fn prune(&mut self, now: Millis) {
        self.origins.retain(|_, peer| now.saturating_sub(peer.heard_at) < ORIGIN_TTL_MS);
    }
}

impl Origin {
    fn growth(&mut self, report: &ReportedLoad) -> Option<u64> {
        // What was counted before we listened is part of no clock here.
        let start = if self.known_from_start { 0 } else { report.new_tokens };
        let before = self.tokens.entry(report.replica).or_insert(start);
        let grown = report.new_tokens.saturating_sub(*before);
        *before = report.new_tokens.max(*before);
        (grown > 0).then_some(grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ReplicaId = ReplicaId(1);
    const PEER: RouterId = RouterId(9);

    const NONE: Option<[ReportedLoad; 0]> = None;

    fn load(new_tokens: u64) -> ReportedLoad {
        ReportedLoad { replica: A, load: PeerLoad { inflight: 2, queued_tokens: 30 }, new_tokens }
    }

    #[test]
    fn counts_are_absolute_and_only_their_growth_counts() {
        let mut peers = PeerBook::default();
        let mut report = |restarted, tokens| peers.report(PEER, restarted, Some([load(tokens)]), |_| true, 0);
        assert_eq!(report(false, 1_000_000), [], "counted before we listened");
        assert_eq!(report(false, 1_000_100), [(A, 100)]);
        assert_eq!(report(false, 1_000_100), [], "twice");
        assert_eq!(report(false, 1_000_050), [], "late");
        assert_eq!(report(true, 70), [(A, 70)], "a new generation starts from 0");
        peers.report(PEER, true, NONE, |_| true, 0);
        assert_eq!(peers.report(PEER, false, Some([load(5)]), |_| true, 0), [(A, 5)]);
    }

    #[test]
    fn load_is_replaced_and_ages() {
        let mut peers = PeerBook::default();
        peers.report(PEER, false, Some([load(1)]), |_| true, 100);
        let seen: Vec<_> = peers.on(A, 150).collect();
        assert_eq!(seen, [(PeerLoad { inflight: 2, queued_tokens: 30 }, 50)]);
        peers.report(PEER, false, Some([]), |_| true, 200);
        assert_eq!(peers.on(A, 250).count(), 0);
        peers.prune(200 + ORIGIN_TTL_MS);
        assert!(peers.origins.is_empty());
    }

    #[test]
    fn a104_replicas_that_we_do_not_have_are_ignored() {
        let mut peers = PeerBook::default();
        assert_eq!(peers.report(PEER, true, Some([load(5)]), |_| false, 0), []);
        assert_eq!(peers.on(A, 0).count(), 0);
    }
}
