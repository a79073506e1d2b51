//! What must hold: every second, after quiet, and when nothing happens at all.

use std::collections::BTreeMap;

use grapevine_mesh::MeshStatus;
use grapevine_mesh::fleet::SPAN;
use grapevine_mesh::{carrier, log, outbox};
use grapevine_tree::{PrefixKey, ReplicaId, TreeConfig, boundary};

use super::clock::SECOND;
use super::network::Network;
use super::nodes::{Node, Nodes};
use super::outcome::Outcome;
use super::router::Belief;
use super::workload;
use crate::replay::engine::Micros;
use crate::replay::trace::{Call, Start, Trace};

/// After the last answer, until routers must agree: gossip takes one or two, peers' load counts for 3.
pub(super) const SETTLED: Micros = 8 * SECOND;

/// After the last answer, until nothing but heartbeats may be sent: routers say once more that their
/// rings have grown stale, 16 s after their last segment.
pub(super) const SILENT: Micros = 20 * SECOND;

/// Prefixes that are compared after quiet.
const COMPARED: usize = 400;

/// How far back they go, at most: restarts and partitions of a run are to be among it.
const RECENT: Micros = 30 * SECOND;

/// And at most the time in which this share of a replica's cache is filled anew: what is about to be
/// evicted may be believed by one router and not by another.
const FRESH_SHARE: f64 = 0.25;

/// Changes that wait in a tree for gossip, at most (the tree's own bound).
const MAX_DIRTY: usize = 65_536;

/// Longest value in chitchat: base64 of 16 KiB.
const MAX_VALUE: u64 = 16 * 1024;

/// The same as text, with its key.
const MAX_TEXT: usize = MAX_VALUE as usize / 3 * 4 + 16;

/// Generations of one start, at most: a router whose clock went back takes another when it meets its past.
const GENERATIONS: usize = 2;

/// What a message of heartbeats is, at most, for each router it names, bytes.
const DIGEST_ENTRY: u64 = 100;

/// A replica's restart is noticed within this time by all routers. Until then some drop, with what was
/// lost, what was sent there since; others heard of it later and keep it.
const RESTART_DOUBT: Micros = 10 * SECOND;

/// What a router picked so shortly before its end may have reached some peers and not others; when it
/// comes back under a new generation, nobody asks for the old one's words any more.
const LAST_WORDS: Micros = 2 * SECOND;

/// What is remembered between checks.
#[derive(Debug, Default)]
pub(super) struct Checks {
    born: BTreeMap<usize, Micros>,
    published: BTreeMap<usize, (u64, u64)>,
    published_by_the_dead: u64,
    risen: BTreeMap<ReplicaId, Micros>,
    stopped: Vec<Micros>,
}

/// What has been said so far: bytes of values, bytes of datagrams, messages.
pub(super) type Said = (u64, u64, u64);

/// Sums over all routers.
pub(super) fn said(nodes: &Nodes, network: &Network) -> Said {
    let values = nodes.iter().filter_map(|(_, node)| node.status()).map(|s| value_bytes(&s)).sum();
    let traffic = (0..nodes.places()).map(|router| network.traffic(router));
    traffic.fold((values, 0, 0), |sum, t| (sum.0, sum.1 + t.bytes, sum.2 + t.messages))
}

fn value_bytes(status: &MeshStatus) -> u64 {
    status.totals.published.value_bytes
}

/// The last prompt of every chat that was asked something lately, and when: what its next turn will
/// share. All `caches` together hold so many tokens.
pub(super) fn recent_keys(trace: &Trace, lasted: Micros, caches: u64) -> Vec<(Micros, PrefixKey)> {
    let fresh = FRESH_SHARE * caches as f64 / trace.working_set_tokens().max(1) as f64 * lasted as f64;
    let recent = RECENT.min(fresh as Micros);
    let mut last: BTreeMap<u32, (Micros, &Call)> = BTreeMap::new();
    for call in &trace.calls {
        if let Start::At(at) = call.start
            && at + recent > lasted
            && !call.key.hashes.is_empty()
        {
            last.insert(workload::chat_of(call), (at, call));
        }
    }
    let step = (last.len() / COMPARED).max(1);
    last.values().step_by(step).map(|(at, call)| (*at, call.key.clone())).collect()
}

impl Checks {
    /// A router started.
    pub(super) fn born(&mut self, router: usize, at: Micros) {
        self.born.insert(router, at);
        if let Some((total, _)) = self.published.remove(&router) {
            self.published_by_the_dead += total;
        }
    }

    /// A replica is back with an empty cache.
    pub(super) fn risen(&mut self, replica: ReplicaId, at: Micros) {
        self.risen.insert(replica, at);
    }

    /// A router stopped.
    pub(super) fn stopped(&mut self, at: Micros) {
        self.stopped.push(at);
    }

    /// How long a router has lived.
    pub(super) fn age(&self, router: usize, at: Micros) -> Micros {
        self.born.get(&router).map_or(0, |born| at.saturating_sub(*born))
    }

    /// Bytes of values that all routers ever published.
    pub(super) fn published_bytes(&mut self, nodes: &Nodes) -> u64 {
        for (router, node) in nodes.iter() {
            if let Some(status) = node.status() {
                self.published.insert(router, (value_bytes(&status), 0));
            }
        }
        self.published_by_the_dead + self.published.values().map(|(total, _)| total).sum::<u64>()
    }

    /// Bounds.
    pub(super) fn every_second(
        &mut self,
        nodes: &Nodes,
        network: &Network,
        tree: &TreeConfig,
        at: Micros,
        outcome: &mut Outcome,
    ) {
        outcome.starts = nodes.starts();
        for (router, node) in nodes.iter() {
            let stats = node.host.with(|router, _| router.stats());
            let mut must = |holds: bool, what: &str, value: usize| {
                if !holds {
                    outcome.violate(at, format!("router {router}: {what}: {value}"));
                }
            };
            must(stats.boundaries <= tree.max_boundaries, "boundaries past the limit", stats.boundaries);
            must(stats.nodes <= stats.boundaries, "more nodes than boundaries", stats.nodes);
            must(stats.dirty <= MAX_DIRTY, "changes waiting past the limit", stats.dirty);
            must(stats.contradictions == 0, "contradictions", stats.contradictions as usize);
            let largest = network.traffic(router).largest;
            must(largest <= usize::from(u16::MAX), "message longer than a datagram", largest);
            if let Some(status) = node.status() {
                must(status.peers.len() < nodes.places(), "peers that cannot be", status.peers.len());
                let said = self.said_this_second(router, &status);
                let most = MAX_VALUE.max(carrier::tick_budget(nodes.places() - 1) as u64) * 5;
                must(said <= most, "bytes published in a second", said as usize);
                let held = status.held;
                must(held.log_bytes <= log::MAX_BYTES, "bytes of segments kept", held.log_bytes);
                must(held.backlog <= outbox::MAX_BACKLOG, "entries waiting", held.backlog);
                must(held.holes <= SPAN * nodes.places() as u64, "segments missing", held.holes as usize);
                let names = GENERATIONS * nodes.starts() as usize;
                must(held.states <= names, "names in chitchat", held.states);
                let most = nodes.places() * carrier::SLOTS as usize * MAX_TEXT;
                must(held.state_bytes <= most, "bytes in chitchat", held.state_bytes);
            }
        }
    }

    fn said_this_second(&mut self, router: usize, status: &MeshStatus) -> u64 {
        let total = value_bytes(status);
        let (before, _) = self.published.insert(router, (total, 0)).unwrap_or_default();
        total.saturating_sub(before)
    }

    /// Nothing in flight, everybody knows everybody, and all would send each prefix to the same place.
    pub(super) fn after_quiet(
        &self,
        nodes: &Nodes,
        keys: &[(Micros, PrefixKey)],
        at: Micros,
        outcome: &mut Outcome,
    ) {
        let live = nodes.live().len();
        for (router, node) in nodes.iter() {
            let (inflight, queued, with_peers) = node.host.with(|router, _| router.load());
            if (inflight, queued) != (0, 0) || with_peers > 0.0 {
                let what = format!(
                    "router {router} counts {inflight} in flight ({with_peers} with peers'), {queued} queued"
                );
                outcome.violate(at, what);
            }
            let Some(status) = node.status() else { continue };
            let (peers, others) = (status.live_peers(), live - 1);
            if peers != others {
                outcome.violate(at, format!("router {router} sees {peers} of {others} live peers"));
            }
            if status.level_pairs != status.pairs {
                let (level, pairs) = (status.level_pairs, status.pairs);
                outcome.violate(at, format!("router {router} finds {level} of {pairs} pairs level"));
            }
        }
        for (asked_at, key) in keys {
            let Some(agreement) = self.agreement(nodes, key, *asked_at) else { continue };
            outcome.compared += 1;
            match agreement {
                Ok(()) => outcome.agreed += 1,
                Err(what) => outcome.violate(at, format!("a prefix of {} bytes: {what}", key.bytes)),
            }
        }
    }

    /// Only heartbeats.
    pub(super) fn idle(
        &self,
        nodes: &Nodes,
        before: Said,
        after: Said,
        spent: Micros,
        outcome: &mut Outcome,
    ) {
        let live = nodes.live().len().max(1) as f64;
        let seconds = spent as f64 / SECOND as f64;
        outcome.idle_bytes_per_router_s = (after.1 - before.1) as f64 / live / seconds;
        if after.0 != before.0 {
            outcome
                .violate(outcome.lasted_us, format!("an idle fleet published {} bytes", after.0 - before.0));
        }
        let messages = (after.2 - before.2).max(1);
        let mean = (after.1 - before.1) / messages;
        let most = DIGEST_ENTRY * (1 + u64::from(nodes.starts()));
        if nodes.places() > 1 && mean > most {
            outcome.violate(outcome.lasted_us, format!("an idle fleet's messages have {mean} bytes"));
        }
    }

    /// Whether all routers would send a prefix to the same place. `None` when that cannot be asked: no
    /// router knows it whole any more, or what was told of it may have died with whoever told it.
    fn agreement(&self, nodes: &Nodes, key: &PrefixKey, asked_at: Micros) -> Option<Result<(), String>> {
        let ask =
            |(index, node): (usize, &Node)| (index, node.host.with(|router, now| router.belief(key, now)));
        let beliefs: Vec<(usize, Option<Belief>)> = nodes.iter().map(ask).collect();
        let known = || beliefs.iter().filter_map(|(_, belief)| belief.as_ref());
        let whole = boundary::depth(key.hashes.len() - 1);
        let emptied =
            |id: &ReplicaId| self.risen.get(id).is_some_and(|risen| asked_at < risen + RESTART_DOUBT);
        let last_words = self.stopped.iter().any(|&stop| asked_at <= stop && stop < asked_at + LAST_WORDS);
        if last_words
            || known().any(|belief| belief.holders.iter().any(emptied))
            || !known().any(|belief| belief.bytes as usize >= whole)
        {
            return None;
        }
        let (first, rest) = beliefs.split_first()?;
        let other = rest.iter().find(|other| !agree(first.1.as_ref(), other.1.as_ref()));
        Some(other.map_or(Ok(()), |other| Err(format!("{first:?} {other:?}"))))
    }
}

/// The same depth, and a replica in common that holds it. Counts are left out: at equal depth they only
/// break ties, and those of a head that many prompts share are each router's own estimate.
fn agree(one: Option<&Belief>, other: Option<&Belief>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => {
            one.bytes == other.bytes && one.holders.iter().any(|id| other.holders.contains(id))
        }
        (one, other) => one.is_none() && other.is_none(),
    }
}
