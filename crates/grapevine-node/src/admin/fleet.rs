//! What the mesh tells of itself, as status shows it.

use std::collections::BTreeMap;

use grapevine_mesh::{MeshStatus, Pulls, Snapshots, Traffic};
use grapevine_tree::RouterId;

use super::status::{GossipStatus, PeerStatus};

/// The other routers; `taught` are the predicted tokens that rest on each one's word, out of `predicted`.
pub(super) fn peers(mesh: &MeshStatus, taught: &BTreeMap<RouterId, u64>, predicted: u64) -> Vec<PeerStatus> {
    let tokens = |id| taught.get(&id).copied().unwrap_or_default();
    let peer = |peer: &grapevine_mesh::PeerStatus| PeerStatus {
        name: peer.name.to_string(),
        gossip_addr: peer.gossip_addr,
        admin_url: peer.admin_url.as_deref().map(str::to_owned),
        live: peer.live,
        draining: peer.draining,
        compatible: peer.compatible,
        entries: peer.entries,
        segments: peer.segments,
        missed: peer.missed,
        open: peer.open,
        lag_ms: peer.lag_ms,
        heard_ms_ago: peer.heard_ms_ago,
        bytes_sent: peer.bytes_sent,
        bytes_received: peer.bytes_received,
        agreement: (peer.pairs > 0).then(|| peer.level_pairs as f64 / peer.pairs as f64),
        taught_tokens: tokens(peer.id),
        taught_share: (predicted > 0).then(|| tokens(peer.id) as f64 / predicted as f64),
    };
    mesh.peers.iter().map(peer).collect()
}

/// Gossip since the start.
pub(super) fn gossip(mesh: &MeshStatus) -> GossipStatus {
    let (published, traffic) = (&mesh.totals.published, &mesh.totals.traffic);
    GossipStatus {
        running: mesh.running,
        sealed: mesh.sealed,
        live_peers: mesh.live_peers(),
        entries_published: published.entries,
        entries_received: mesh.totals.entries_received,
        entries_dropped: published.dropped,
        entries_deferred: published.deferred,
        segments_pointed: published.pointed,
        delta_bytes: published.value_bytes,
        strained: mesh.strained,
        level_pairs: mesh.level_pairs,
        pairs: mesh.pairs,
        agreement: mesh.agreement(),
        pulls: pulls(&mesh.totals.pulls),
        pulled_segments: mesh.totals.pulls.segments,
        snapshots: snapshots(&mesh.totals.snapshots),
        wants_snapshot: mesh.wants_snapshot,
        resets: mesh.totals.restarts,
        answers: traffic.answers,
        answered_bytes: traffic.answered_bytes,
        rejected: rejected(traffic),
        largest_datagram_bytes: traffic.largest_datagram,
        largest_message_bytes: traffic.largest_message,
        bytes_sent: traffic.bytes_sent,
        bytes_received: traffic.bytes_received,
        datagrams_sent: traffic.datagrams_sent,
        datagrams_received: traffic.datagrams_received,
    }
}

fn pulls(pulls: &Pulls) -> BTreeMap<String, u64> {
    named([("answered", pulls.answered), ("empty", pulls.empty), ("failed", pulls.failed)])
}

fn snapshots(snapshots: &Snapshots) -> BTreeMap<String, u64> {
    let Snapshots { restored, joining, failed } = *snapshots;
    named([("restored", restored), ("joining", joining), ("failed", failed)])
}

/// Everything that was not taken: `datagram_foreign`, `value_version`, `question_busy`, ...
fn rejected(traffic: &Traffic) -> BTreeMap<String, u64> {
    let kinds = [
        ("datagram", &traffic.datagrams_rejected),
        ("value", &traffic.segments_rejected),
        ("question", &traffic.questions_refused),
    ];
    let of_kind = |(kind, counts): (&str, &Vec<(&'static str, u64)>)| -> Vec<_> {
        counts.iter().map(|(reason, count)| (format!("{kind}_{reason}"), *count)).collect()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
}
