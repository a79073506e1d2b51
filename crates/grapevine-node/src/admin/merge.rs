//! From the routers' statuses to one picture of the fleet. No I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::fleet_view::{Fleet, FleetGossip, FleetReplica, FleetRouter, FleetTotals, FleetTree, Link};
use super::status::{PeerStatus, Point, ReplicaStatus, ShadowStatus, Status};
use crate::metrics::outcome::Outcome;
use crate::observe::history::STEP_MS;

/// Warnings of the fleet, at most.
const MAX_WARNINGS: usize = 100;

/// What asking a peer brought.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) peer: PeerStatus,
    /// Its status, or why there is none.
    pub(super) answer: Result<Box<Status>, &'static str>,
}

/// The fleet, seen from the router whose status is `own`.
pub(super) fn merge(own: &Status, peers: &[Asked]) -> Fleet {
    let answered = || std::iter::once(own).chain(peers.iter().filter_map(|p| p.answer.as_deref().ok()));
    let mut routers = vec![FleetRouter { itself: true, live: true, ..router(own) }];
    routers.extend(peers.iter().map(peer));
    Fleet {
        at_ms: own.at_ms,
        asked: own.router.id.clone(),
        step_ms: STEP_MS,
        routers,
        links: answered().flat_map(links).collect(),
        replicas: replicas(answered()),
        totals: totals(answered()),
        warnings: {
            let mut warnings: Vec<_> = answered().flat_map(|s| s.warnings.iter().cloned()).collect();
            warnings.sort_by_key(|warning| Reverse(warning.level));
            warnings.truncate(MAX_WARNINGS);
            warnings
        },
        points: points(answered()),
    }
}

fn peer(asked: &Asked) -> FleetRouter {
    let said = match &asked.answer {
        Ok(status) => router(status),
        Err(error) => FleetRouter {
            phase: "unknown".to_owned(),
            error: Some((*error).to_owned()),
            ..FleetRouter::default()
        },
    };
    FleetRouter {
        name: asked.peer.name.clone(),
        live: asked.peer.live,
        admin_url: asked.peer.admin_url.clone(),
        ..said
    }
}

fn router(status: &Status) -> FleetRouter {
    let good = [Outcome::Ok, Outcome::ClientError, Outcome::ClientClosed].map(Outcome::name);
    let failed = status.requests.iter().filter(|(outcome, _)| !good.contains(&outcome.as_str()));
    FleetRouter {
        name: status.router.id.clone(),
        reached: true,
        phase: status.router.phase.clone(),
        version: status.router.version.clone(),
        policy: status.router.policy.clone(),
        mode: status.router.mode.clone(),
        admin_url: Some(format!("http://{}", status.router.admin_listen)),
        listen: Some(status.router.listen.to_string()),
        uptime_seconds: status.router.uptime_seconds,
        inflight: status.inflight,
        waiting: status.waiting,
        requests_total: status.requests.values().sum(),
        failed_total: failed.map(|(_, n)| n).sum(),
        lookups: status.lookups,
        hits: status.hits,
        tokens: status.tokens,
        tree: FleetTree { nodes: status.tree.nodes, bytes: status.tree.bytes, evicted: status.tree.evicted },
        gossip: FleetGossip {
            bytes_sent: status.gossip.bytes_sent,
            bytes_received: status.gossip.bytes_received,
            agreement: status.gossip.agreement,
            level_pairs: status.gossip.level_pairs,
            pairs: status.gossip.pairs,
            rejected_total: status.gossip.rejected.values().sum(),
            strained: status.gossip.strained,
            sealed: status.gossip.sealed,
        },
        ..FleetRouter::default()
    }
}

fn links(status: &Status) -> impl Iterator<Item = Link> + '_ {
    status.peers.iter().map(|peer| Link {
        from: status.router.id.clone(),
        to: peer.name.clone(),
        live: peer.live,
        lag_ms: peer.lag_ms,
        heard_ms_ago: peer.heard_ms_ago,
        missed: peer.missed,
        entries: peer.entries,
        bytes_sent: peer.bytes_sent,
        bytes_received: peer.bytes_received,
        agreement: peer.agreement,
        taught_tokens: peer.taught_tokens,
        taught_share: peer.taught_share,
    })
}

/// Each replica once, in the order of names.
fn replicas<'a>(statuses: impl Iterator<Item = &'a Status>) -> Vec<FleetReplica> {
    let mut merged: BTreeMap<(String, String), Merged> = BTreeMap::new();
    let mut picks = 0.0;
    for status in statuses {
        // Requests of the last minute: what a router's shares are of.
        let recent = recent_requests(status);
        picks += recent;
        for replica in &status.replicas {
            merged.entry((replica.name.clone(), replica.id.clone())).or_default().add(replica, recent);
        }
    }
    merged.into_values().map(|m| m.finish(picks)).collect()
}

fn recent_requests(status: &Status) -> f64 {
    let minute = (60_000 / STEP_MS) as usize;
    status.points.iter().rev().take(minute).map(|point| point.requests).sum::<u64>() as f64
}

#[derive(Default)]
struct Merged {
    replica: FleetReplica,
    recent_picks: f64,
    errors: Vec<f32>,
}

impl Merged {
    fn add(&mut self, one: &ReplicaStatus, recent_requests: f64) {
        let all = &mut self.replica;
        (all.name, all.url, all.id) = (one.name.clone(), one.url.clone(), one.id.clone());
        if rank(&one.health) >= rank(&all.health) {
            all.health.clone_from(&one.health);
        }
        all.drain |= one.drain;
        all.inflight += one.inflight;
        all.queued_tokens += one.queued_tokens;
        all.picks += one.picks;
        all.tokens += one.tokens;
        all.lost_caches += one.lost_caches;
        all.epoch = all.epoch.max(one.epoch);
        if all.capacity_source.is_empty() || one.capacity_source == "engine" {
            all.capacity_source.clone_from(&one.capacity_source);
            all.capacity_tokens = one.capacity_tokens;
        }
        let age = |age: Option<u64>| age.unwrap_or(u64::MAX);
        if all.engine.kind.is_empty() || age(one.engine.age_ms) < age(all.engine.age_ms) {
            all.engine = one.engine.clone();
        }
        self.errors.extend(one.credit_error_tokens);
        self.recent_picks += one.share.unwrap_or_default() * recent_requests;
    }

    fn finish(mut self, picks: f64) -> FleetReplica {
        self.replica.share = (picks > 0.0).then(|| (self.recent_picks / picks).min(1.0));
        let known = self.errors.len() as f32;
        self.replica.credit_error_tokens = (known > 0.0).then(|| self.errors.iter().sum::<f32>() / known);
        self.replica
    }
}

/// How bad a health is.
fn rank(health: &str) -> usize {
    ["", "up", "suspect", "unreachable", "not_ready"].iter().position(|known| *known == health).unwrap_or(0)
}

fn totals<'a>(statuses: impl Iterator<Item = &'a Status>) -> FleetTotals {
    let mut totals = FleetTotals::default();
    for status in statuses {
        totals.inflight += status.inflight;
        totals.waiting += status.waiting;
        totals.lookups += status.lookups;
        totals.hits += status.hits;
        add_counts(&mut totals.requests, &status.requests);
        add_counts(&mut totals.decisions, &status.decisions);
        totals.tokens += status.tokens;
        if let Some(shadow) = &status.shadow {
            add_shadow(totals.shadow.get_or_insert_default(), shadow);
        }
    }
    totals
}

fn add_counts(all: &mut BTreeMap<String, u64>, one: &BTreeMap<String, u64>) {
    for (name, count) in one {
        *all.entry(name.clone()).or_default() += count;
    }
}

fn add_shadow(all: &mut ShadowStatus, one: &ShadowStatus) {
    all.decisions += one.decisions;
    all.agreed += one.agreed;
    all.prompt_tokens += one.prompt_tokens;
    all.done_tokens += one.done_tokens;
    all.affinity_tokens += one.affinity_tokens;
}

fn points<'a>(statuses: impl Iterator<Item = &'a Status>) -> Vec<Point> {
    let mut merged: BTreeMap<u64, Point> = BTreeMap::new();
    for one in statuses.flat_map(|status| &status.points) {
        let all = merged.entry(one.at_ms).or_default();
        all.at_ms = one.at_ms;
        all.requests += one.requests;
        all.tokens += one.tokens;
    }
    merged.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::examples::{peer, replica, status};
    use super::super::status::TokenStatus;
    use super::*;

    fn busy(id: &str, requests: u64, share: f64) -> Status {
        let mut status = status(id);
        status.requests = BTreeMap::from([("ok".to_owned(), requests), ("engine_cut".to_owned(), 1)]);
        status.replicas = vec![ReplicaStatus { share: Some(share), picks: requests, ..replica("r0") }];
        let tokens = TokenStatus { prompt: 10, ..TokenStatus::default() };
        status.points = vec![Point { at_ms: 2_000, requests, tokens }];
        status
    }

    #[test]
    fn figures_add_up_and_the_worst_health_counts() {
        let own = Status { peers: vec![peer("b"), peer("c")], ..busy("a", 30, 1.0) };
        let mut other = busy("b", 10, 0.0);
        other.replicas[0].health = "suspect".to_owned();
        other.points.push(Point { at_ms: 4_000, ..Point::default() });
        let asked = [
            Asked { peer: peer("b"), answer: Ok(Box::new(other)) },
            Asked { peer: peer("c"), answer: Err("timeout") },
        ];
        let fleet = merge(&own, &asked);
        let names: Vec<_> = fleet.routers.iter().map(|r| (r.name.as_str(), r.itself, r.reached)).collect();
        assert_eq!(names, [("a", true, true), ("b", false, true), ("c", false, false)]);
        assert_eq!(fleet.routers[2].error.as_deref(), Some("timeout"));
        assert_eq!((fleet.routers[0].requests_total, fleet.routers[0].failed_total), (31, 1));
        assert_eq!((fleet.totals.requests["ok"], fleet.links.len()), (40, 2));
        let replica = &fleet.replicas[0];
        assert_eq!((replica.picks, replica.health.as_str(), replica.share), (40, "suspect", Some(0.75)));
        let points: Vec<_> = fleet.points.iter().map(|p| (p.at_ms, p.requests, p.tokens.prompt)).collect();
        assert_eq!(points, [(2_000, 40, 20), (4_000, 0, 0)]);
    }

    #[test]
    fn what_nobody_knows_stays_unknown() {
        let fleet = merge(&Status { replicas: vec![replica("r0")], ..status("a") }, &[]);
        assert_eq!((fleet.replicas[0].share, fleet.replicas[0].credit_error_tokens), (None, None));
        assert!(fleet.totals.shadow.is_none());
    }
}
