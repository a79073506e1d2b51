//! What the mesh tells of itself: one snapshot a tick, read without asking the actor.

use std::net::SocketAddr;
use std::sync::Arc;

use grapevine_tree::RouterId;

use crate::counters::Traffic;
use crate::outbox::Tally;

/// The mesh at its last tick.
#[derive(Clone, Debug, Default)]
pub struct MeshStatus {
    /// This router's generation; 0 before gossip first started.
    pub generation: u64,
    /// Address that peers are told; `None` before gossip first started.
    pub advertised: Option<SocketAddr>,
    /// Gossip is up. Without it the router serves alone, and the mesh keeps trying.
    pub running: bool,
    /// Datagrams are sealed.
    pub sealed: bool,
    /// Another live router uses this router's name: peers believe only the newer of the two.
    pub name_conflict: bool,
    /// All that the seeds stand for is this router: it was not told of any other.
    pub seeded_by_itself: bool,
    /// It has what its peers know, or waited long enough for it.
    pub joined: bool,
    /// It would like a snapshot: its first one, or because it missed too much.
    pub wants_snapshot: bool,
    /// Gossip is behind: peers are pointed to what they then ask for.
    pub strained: bool,
    /// Peers can ask this router for what it points to, as far as they let on.
    pub pointers: bool,
    /// What it keeps in memory.
    pub held: Held,
    /// Pairs of a live peer and an origin in which the peer has all that was known a moment before it
    /// last told.
    pub level_pairs: usize,
    /// All such pairs.
    pub pairs: usize,
    /// The other routers, by name.
    pub peers: Vec<PeerStatus>,
    /// Counts since the start of the process.
    pub totals: MeshTotals,
}

/// What a mesh keeps in memory: all of it is bounded, whatever the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes of recent segments kept for peers that miss some.
    pub log_bytes: usize,
    /// Bytes of all routers' keys and values in chitchat.
    pub state_bytes: usize,
    /// Names and generations that chitchat knows.
    pub states: usize,
    /// Entries that wait to be told.
    pub backlog: usize,
    /// Segments of all peers that were skipped and may still come.
    pub holes: u64,
    /// Routers that are remembered, the silent ones too.
    pub routers: usize,
    /// Questions that are remembered so that none is answered twice.
    pub questions: usize,
}

/// One other router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Its id in entries and loads.
    pub id: RouterId,
    /// Its newest generation.
    pub generation: u64,
    /// Its gossip address.
    pub gossip_addr: SocketAddr,
    /// Where its admin port answers, as it says.
    pub admin_url: Option<Arc<str>>,
    /// The failure detector has heard of it lately. A hint: it is wrong for some seconds after any pause.
    pub live: bool,
    /// It said that it is going away.
    pub draining: bool,
    /// Wire version and hash scheme it speaks; `None` before it said so.
    pub speaks: Option<(u8, u16)>,
    /// It speaks what this router speaks. Otherwise nothing of it is read.
    pub compatible: bool,
    /// Segments received.
    pub segments: u64,
    /// Segments that nobody had any more when they were missed here.
    pub missed: u64,
    /// Segments that were skipped and may still come.
    pub open: u64,
    /// Entries received.
    pub entries: u64,
    /// Ticks by which the oldest of the latest segments was late.
    pub lag_ticks: u64,
    /// Extra delay of the latest segments over the fastest of the last minute or two, in milliseconds.
    pub lag_ms: u64,
    /// Other origins of which it has all that was known here a moment before it last told.
    pub level_pairs: usize,
    /// Other origins of which that can be said.
    pub pairs: usize,
    /// Bytes sent to its gossip address.
    pub bytes_sent: u64,
    /// Bytes accepted from there.
    pub bytes_received: u64,
    /// Time since its state or heartbeat last moved, in milliseconds.
    pub heard_ms_ago: u64,
}

/// Counts since the start of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeshTotals {
    /// Ticks.
    pub ticks: u64,
    /// Times that gossip ended, by itself or by a mistake of ours, and was started again.
    pub restarts: u64,
    /// Ticks at which the host had not yet answered the tick before.
    pub late_collects: u64,
    /// Segments received from all peers.
    pub segments_received: u64,
    /// Entries received from all peers.
    pub entries_received: u64,
    /// Questions to peers for missing segments.
    pub pulls: Pulls,
    /// Snapshots of peers that were asked for.
    pub snapshots: Snapshots,
    /// What was published, and what had to wait.
    pub published: Tally,
    /// Datagrams and bytes, and what was rejected.
    pub traffic: Traffic,
}

/// Questions to peers for missing segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulls {
    /// Answered with something that was missing.
    pub answered: u64,
    /// Answered without.
    pub empty: u64,
    /// Not answered, or with what cannot be believed.
    pub failed: u64,
    /// Segments that came this way.
    pub segments: u64,
    /// Segments given up: nobody had them any more.
    pub given_up: u64,
}

/// Snapshots of peers that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Taken over.
    pub restored: u64,
    /// Refused by peers that were joining themselves.
    pub joining: u64,
    /// Not come, or not whole.
    pub failed: u64,
}

impl MeshStatus {
    /// Share of [`Self::pairs`] that are level; 1 when there are none.
    pub fn agreement(&self) -> f64 {
        if self.pairs == 0 { 1.0 } else { self.level_pairs as f64 / self.pairs as f64 }
    }

    /// Peers that are live, speak what this router speaks and are not going away.
    pub fn live_peers(&self) -> usize {
        self.peers.iter().filter(|peer| peer.live && peer.compatible && !peer.draining).count()
    }
}
