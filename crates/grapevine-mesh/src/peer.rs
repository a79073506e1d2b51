//! What chitchat itself knows of another router: whether it lives, and what it says it speaks.

use std::net::SocketAddr;
use std::sync::Arc;

use chitchat::{ChitchatId, Heartbeat, NodeState};
use grapevine_tree::boundary::SCHEME;
use grapevine_tree::{Millis, RouterId};

use crate::carrier::{META_KEY, Meta};
use crate::codec::WIRE_VERSION;
use crate::counters::PeerTraffic;
use crate::fleet::Router;
use crate::pull::Candidate;
use crate::status::PeerStatus;

/// A router whose heartbeat was heard within this time may live, in milliseconds: one that was just met counts as live
/// only after its second one.
const JUST_HEARD_MS: Millis = 2_000;

/// How long chitchat holds the ring of a router that died, in milliseconds: twice the ring's span. Who joins later has
/// what it said from a snapshot.
const LAST_WORDS_MS: Millis = 32_000;

/// What chitchat knows of a router's newest generation.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    generation: u64,
    addr: SocketAddr,
    meta: Option<Meta>,
    admin_url: Option<Arc<str>>,
    live: bool,
    pulse: Option<(Heartbeat, u64)>,
    heard_at: Millis,
}

impl Peer {
    pub(crate) fn new(id: &ChitchatId, now: Millis) -> Self {
        Self {
            generation: id.generation_id,
            addr: id.gossip_advertise_addr,
            meta: None,
            admin_url: None,
            live: false,
            pulse: None,
            heard_at: now,
        }
    }

    /// Takes in the state of its newest generation.
    pub(crate) fn look(&mut self, id: &ChitchatId, state: &NodeState, live: bool, now: Millis) {
        if self.generation != id.generation_id {
            *self = Self::new(id, now);
        }
        self.live = live;
        let pulse = Some((state.heartbeat(), state.max_version()));
        if self.pulse != pulse {
            self.pulse = pulse;
            self.heard_at = now;
        }
        let meta = state.get(META_KEY).and_then(Meta::parse);
        if self.meta != meta {
            self.admin_url = meta.as_ref().and_then(|meta| meta.admin_url.as_deref()).map(Arc::from);
            self.meta = meta;
        }
    }

    /// Whether what it says can be read here.
    pub(crate) fn is_compatible(&self) -> bool {
        self.meta.as_ref().is_some_and(|meta| meta.wire == WIRE_VERSION && meta.scheme == SCHEME)
    }

    /// Whether it lives and what it says can be read here.
    pub(crate) fn is_heard(&self) -> bool {
        self.live && self.is_compatible()
    }

    /// Whether it is worth telling anything: it lives, or was heard of too lately for the failure detector to say.
    pub(crate) fn is_told(&self, now: Millis) -> bool {
        self.is_compatible() && (self.live || now.saturating_sub(self.heard_at) <= JUST_HEARD_MS)
    }

    /// Whether it was met so lately that the failure detector has nothing to say yet.
    pub(crate) fn is_just_met(&self, now: Millis) -> bool {
        !self.live && self.is_told(now)
    }

    /// Whether it is dead for so long that everyone has had its last words.
    pub(crate) fn is_silent(&self, now: Millis) -> bool {
        !self.live && now.saturating_sub(self.heard_at) > LAST_WORDS_MS
    }

    /// Whom to ask, if it can be asked.
    pub(crate) fn candidate(&self, name: &Arc<str>) -> Option<Candidate> {
        let url = self.admin_url.clone().filter(|_| self.is_heard())?;
        Some(Candidate { id: RouterId::of_name(name), name: name.clone(), url })
    }

    /// Its gossip address.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How it looks, with what is known of it elsewhere.
    pub(crate) fn status(
        &self,
        name: &Arc<str>,
        router: Option<&Router>,
        traffic: PeerTraffic,
        (level_pairs, pairs): (usize, usize),
        now: Millis,
    ) -> PeerStatus {
        PeerStatus {
            name: name.clone(),
            id: RouterId::of_name(name),
            generation: self.generation,
            gossip_addr: self.addr,
            admin_url: self.admin_url.clone(),
            live: self.live,
            draining: router.is_some_and(|it| it.draining),
            speaks: self.meta.as_ref().map(|meta| (meta.wire, meta.scheme)),
            compatible: self.is_compatible(),
            segments: router.map_or(0, |it| it.segments),
            missed: router.map_or(0, Router::missed),
            open: router.map_or(0, Router::open),
            entries: router.map_or(0, |it| it.entries),
            lag_ticks: router.map_or(0, |it| it.lag_segments),
            lag_ms: router.map_or(0, |it| it.lag_ms),
            level_pairs,
            pairs,
            bytes_sent: traffic.bytes_sent,
            bytes_received: traffic.bytes_received,
            heard_ms_ago: now.saturating_sub(self.heard_at),
        }
    }
}
