//! One run of chitchat: this router's state in it, and what is read of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chitchat::transport::Transport;
use chitchat::{
    Chitchat, ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, ListenerHandle, NodeState,
    spawn_chitchat,
};
use grapevine_tree::Millis;
use grapevine_tree::boundary::SCHEME;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::carrier::{self, META_KEY, Meta, RING_PREFIX, SEEN_KEY, VITALS_KEY, from_text};
use crate::codec::{
    CodecError, Seen, WIRE_VERSION, decode_pointer, decode_seen, decode_segment, decode_vitals, is_pointer,
    number_of,
};
use crate::config::MeshConfig;
use crate::counters::{Counters, SegmentReject};
use crate::fleet::{Fleet, Heard, MAX_ROUTERS, News, Standing};
use crate::outbox::Write;
use crate::peer::Peer;

/// Changes that come within this time of each other are read together: in a large fleet a tick
/// brings dozens.
const GATHER: Duration = Duration::from_millis(10);

/// Suspicion at which a silent router counts as dead, in mean times between its heartbeats: 5 to 8 s at the default
/// interval. With 8, routers of a healthy fleet of 16 took each other for dead now and then.
const PHI_THRESHOLD: f64 = 10.0;

/// Least time between two looks at how much chitchat holds, in milliseconds.
const MEASURE_EVERY_MS: Millis = 1_000;

/// Heartbeat intervals that the failure detector averages.
const SAMPLING_WINDOW: usize = 1_000;

/// Longest pause between heartbeats that says anything about the next one.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// How long chitchat keeps and relays a dead router's state. Longer than a rolling restart, short
/// enough that hundreds of restarts an hour do not fill the digest.
const DEAD_NODE_GRACE: Duration = Duration::from_secs(300);

/// Life of tombstones. There are none: nothing is ever deleted.
const TOMBSTONE_GRACE: Duration = Duration::from_secs(60);

/// A running chitchat.
pub(crate) struct Session {
    handle: ChitchatHandle,
    started: Instant,
    changed: Arc<Notify>,
    read_at: Option<Instant>,
    /// Dropping these would stop the notices.
    _listeners: [ListenerHandle; 4],
    name: Arc<str>,
    tells_url: bool,
    namesake: Option<Namesake>,
    live_addresses: BTreeSet<SocketAddr>,
    cursors: BTreeMap<ChitchatId, u64>,
    state_size: (usize, usize),
    measured_at: Option<Millis>,
}

/// A state under our own name that is newer than ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Namesake {
    pub(crate) generation: u64,
    pub(crate) addr: SocketAddr,
    /// It gossiped from our own address: only we can have been that.
    pub(crate) is_ours: bool,
    pub(crate) live: bool,
}

/// Texts of one router that changed, copied out under chitchat's lock and decoded after it.
struct Raw {
    id: ChitchatId,
    vitals: Option<String>,
    seen: Option<String>,
    slots: Vec<String>,
}

/// What one router published since the last look.
pub(crate) struct Told {
    pub(crate) news: News,
    /// Its version vector, when it changed.
    pub(crate) seen: Option<Seen>,
}

impl Session {
    /// chitchat gossips every `exchange`.
    pub(crate) async fn open(
        config: &MeshConfig,
        generation: u64,
        advertised: SocketAddr,
        mut first: Vec<Write>,
        transport: &dyn Transport,
        exchange: Duration,
    ) -> anyhow::Result<Self> {
        let url = config.admin_url.as_deref();
        let admin_url = url.and_then(|url| carrier::reachable_url(url, advertised.ip()));
        let tells_url = admin_url.is_some();
        if url.is_some() && !tells_url {
            warn!(
                "the admin port is on loopback, gossip is not: peers cannot ask this router for what they miss"
            );
        }
        let meta = Meta { wire: WIRE_VERSION, scheme: SCHEME, admin_url };
        first.insert(0, (META_KEY.to_owned(), meta.to_text()));
        let id = ChitchatId::new(config.router_name.as_str(), generation, advertised);
        let name = id.node_id.clone();
        let handle = spawn_chitchat(chitchat_config(config, id, exchange), first, transport).await?;
        let changed = Arc::new(Notify::new());
        let listeners = handle
            .with_chitchat(|chitchat| {
                [RING_PREFIX, VITALS_KEY, META_KEY, SEEN_KEY].map(|key| listen(chitchat, key, &changed))
            })
            .await;
        Ok(Self {
            handle,
            started: Instant::now(),
            changed,
            read_at: None,
            _listeners: listeners,
            name,
            tells_url,
            namesake: None,
            live_addresses: BTreeSet::from([advertised]),
            cursors: BTreeMap::new(),
            state_size: (0, 0),
            measured_at: None,
        })
    }

    /// Resolves when chitchat's task ended, to the reason.
    pub(crate) fn ended(&self) -> impl Future<Output = String> + use<> {
        let ended = self.handle.termination_watcher();
        async move { ended.await.map_or_else(|error| format!("{error:#}"), |()| "no reason given".to_owned()) }
    }

    /// Resolves a moment after something was changed since the last time. Cancel-safe.
    pub(crate) async fn changed(&mut self) {
        if self.read_at.is_none() {
            self.changed.notified().await;
            self.read_at = Some(Instant::now() + GATHER);
        }
        if let Some(at) = self.read_at {
            sleep_until(at).await;
            self.read_at = None;
        }
    }

    pub(crate) async fn close(self) {
        // It may have ended by itself, which is just as well.
        let _ = self.handle.shutdown().await;
    }

    /// When chitchat's first tick was.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    pub(crate) fn advertised(&self) -> SocketAddr {
        self.handle.chitchat_id().gossip_advertise_addr
    }

    /// Whether peers know where to ask this router.
    pub(crate) fn tells_url(&self) -> bool {
        self.tells_url
    }

    /// Routers besides this one that are live.
    pub(crate) fn others(&self) -> usize {
        self.live_addresses.len().saturating_sub(1)
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.others() == 0
    }

    /// Addresses of live routers, this one included.
    pub(crate) fn live_addresses(&self) -> &BTreeSet<SocketAddr> {
        &self.live_addresses
    }

    pub(crate) fn newer_namesake(&self) -> Option<Namesake> {
        self.namesake
    }

    /// States that chitchat holds, and bytes of the keys and values in them.
    pub(crate) fn state_size(&self) -> (usize, usize) {
        self.state_size
    }

    /// Says hello to each of `seeds`.
    pub(crate) fn dial(&self, seeds: Vec<SocketAddr>) {
        for seed in seeds {
            // Fails only when the task has ended, which is noticed elsewhere.
            let _ = self.handle.gossip(seed);
        }
    }

    pub(crate) async fn write(&self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let chitchat = self.handle.chitchat();
        let mut chitchat = chitchat.lock().await;
        let own = chitchat.self_node_state();
        for (key, value) in writes {
            own.set(key, value);
        }
    }

    /// What changed since the last call, decoded. Brings `peers` up to date.
    pub(crate) async fn read(
        &mut self,
        fleet: &Fleet,
        peers: &mut BTreeMap<Arc<str>, Peer>,
        counters: &Counters,
        now: Millis,
    ) -> Vec<Told> {
        let raws = {
            let chitchat = self.handle.chitchat();
            let mut chitchat = chitchat.lock().await;
            self.look(&mut chitchat, fleet, peers, now)
        };
        raws.into_iter().map(|raw| decode(raw, fleet, counters)).collect()
    }

    /// The part that needs chitchat's lock: no decoding, only copies of what is new.
    fn look(
        &mut self,
        chitchat: &mut Chitchat,
        fleet: &Fleet,
        peers: &mut BTreeMap<Arc<str>, Peer>,
        now: Millis,
    ) -> Vec<Raw> {
        let own = chitchat.self_chitchat_id().clone();
        let live: BTreeSet<ChitchatId> = chitchat.live_nodes().cloned().collect();
        self.live_addresses = live.iter().map(|id| id.gossip_advertise_addr).collect();
        self.namesake = None;
        self.measure(chitchat, now);
        let newest = newest_generations(chitchat, fleet);
        let (mut raws, mut outdated, mut silent) = (Vec::new(), Vec::new(), Vec::new());
        for (id, state) in chitchat.node_states() {
            if id.node_id == self.name {
                self.note_namesake(&own, id, live.contains(id));
                outdated.extend((id.generation_id < own.generation_id).then(|| id.clone()));
            } else if newest.get(&id.node_id) != Some(id) {
                outdated.push(id.clone());
            } else if peers.len() < MAX_ROUTERS || peers.contains_key(&id.node_id) {
                let peer = peers.entry(id.node_id.clone()).or_insert_with(|| Peer::new(id, now));
                peer.look(id, state, live.contains(id), now);
                if peer.is_compatible() {
                    raws.extend(self.take_new(id, state));
                }
                silent.extend(peer.is_silent(now).then(|| id.clone()));
            }
        }
        peers.retain(|name, _| newest.contains_key(name));
        self.cursors.retain(|id, _| newest.get(&id.node_id) == Some(id));
        outdated.iter().for_each(|id| forget(chitchat, id, |_| true));
        silent.iter().for_each(|id| forget(chitchat, id, |key| key.starts_with(RING_PREFIX)));
        raws
    }

    /// Walks all keys of all routers, so not each time.
    fn measure(&mut self, chitchat: &Chitchat, now: Millis) {
        if self.measured_at.is_some_and(|at| now.saturating_sub(at) < MEASURE_EVERY_MS) {
            return;
        }
        let values = chitchat.node_states().values().flat_map(NodeState::key_values);
        let bytes = values.map(|(key, value)| key.len() + value.len()).sum();
        self.state_size = (chitchat.node_states().len(), bytes);
        self.measured_at = Some(now);
    }

    fn note_namesake(&mut self, own: &ChitchatId, id: &ChitchatId, live: bool) {
        let newest = self.namesake.map_or(own.generation_id, |it| it.generation);
        if id.generation_id > newest {
            let addr = id.gossip_advertise_addr;
            let is_ours = addr == own.gossip_advertise_addr;
            self.namesake = Some(Namesake { generation: id.generation_id, addr, is_ours, live });
        }
    }

    /// Copies what changed. A router is read from its vitals on: without them its segments mean nothing.
    fn take_new(&mut self, id: &ChitchatId, state: &NodeState) -> Option<Raw> {
        let vitals = state.get_versioned(VITALS_KEY)?;
        let cursor = self.cursors.entry(id.clone()).or_insert(0);
        if *cursor == state.max_version() {
            return None;
        }
        // chitchat starts a state over when it lost track; then all of it is new to us as well.
        let since = if *cursor > state.max_version() { 0 } else { *cursor };
        *cursor = state.max_version();
        let slots = state.iter_prefix(RING_PREFIX).filter(|(_, value)| value.version > since);
        let seen = state.get_versioned(SEEN_KEY).filter(|seen| seen.version > since);
        Some(Raw {
            id: id.clone(),
            vitals: (vitals.version > since).then(|| vitals.value.clone()),
            seen: seen.map(|seen| seen.value.clone()),
            slots: slots.map(|(_, value)| value.value.clone()).collect(),
        })
    }
}

fn chitchat_config(config: &MeshConfig, id: ChitchatId, exchange: Duration) -> ChitchatConfig {
    ChitchatConfig {
        chitchat_id: id,
        cluster_id: config.cluster_id.clone(),
        gossip_interval: exchange,
        listen_addr: config.listen,
        // Ours to dial: see `seeds`.
        seed_nodes: Vec::new(),
        failure_detector_config: FailureDetectorConfig {
            phi_threshold: PHI_THRESHOLD,
            sampling_window_size: SAMPLING_WINDOW,
            max_interval: MAX_HEARTBEAT_INTERVAL,
            initial_interval: exchange,
            dead_node_grace_period: DEAD_NODE_GRACE,
        },
        marked_for_deletion_grace_period: TOMBSTONE_GRACE,
        catchup_callback: None,
        // Only says whose state is copied for watchers, of which there are none: all of it, at each exchange.
        extra_liveness_predicate: Some(Box::new(|_| false)),
    }
}

/// The callback runs under chitchat's lock, so it only rings.
fn listen(chitchat: &Chitchat, prefix: &str, changed: &Arc<Notify>) -> ListenerHandle {
    let changed = changed.clone();
    chitchat.subscribe_event(prefix, move |_| changed.notify_one())
}

/// For each name the state that counts: its newest generation, unless a newer one was heard before.
fn newest_generations(chitchat: &Chitchat, fleet: &Fleet) -> BTreeMap<Arc<str>, ChitchatId> {
    let mut newest: BTreeMap<Arc<str>, ChitchatId> = BTreeMap::new();
    for id in chitchat.node_states().keys() {
        if fleet.standing(&id.node_id, id.generation_id) == Standing::Old {
            continue;
        }
        let best = newest.entry(id.node_id.clone()).or_insert_with(|| id.clone());
        if best.generation_id < id.generation_id {
            *best = id.clone();
        }
    }
    newest
}

/// Drops keys of a router that says no more, keeping its version so that nobody sends them again. Twenty restarts
/// within chitchat's grace then cost twenty names, not twenty rings; and a ring is not sent with each exchange
/// between routers of which one leaves the dead out of its digest by now and the other, which met them later,
/// not yet.
fn forget(chitchat: &mut Chitchat, id: &ChitchatId, is_dropped: impl Fn(&str) -> bool) {
    let Some(state) = chitchat.node_state(id) else { return };
    let (version, keys) = (state.max_version(), || state.key_values_including_deleted());
    if state.last_gc_version() < version && keys().any(|(key, _)| is_dropped(key)) {
        let kept = keys().filter(|(key, _)| !is_dropped(key));
        let kept: Vec<_> = kept.map(|(key, value)| (key.to_owned(), value.clone())).collect();
        chitchat.reset_node_state_if_update(id, kept.into_iter(), version, version);
    }
}

fn decode(raw: Raw, fleet: &Fleet, counters: &Counters) -> Told {
    let generation = raw.id.generation_id;
    let vitals = raw.vitals.and_then(|text| {
        let vitals = counted(bytes_of(&text).and_then(|bytes| decode_vitals(&bytes)), counters)?;
        of_generation(vitals.generation == generation, counters).then_some(vitals)
    });
    let seen = raw.seen.and_then(|text| {
        let seen = counted(bytes_of(&text).and_then(|bytes| decode_seen(&bytes)), counters)?;
        of_generation(seen.generation == generation, counters).then_some(seen)
    });
    let mut news =
        News { name: raw.id.node_id, generation, vitals, segments: Vec::new(), pointers: Vec::new() };
    for bytes in raw.slots.iter().filter_map(|text| counted(bytes_of(text), counters)) {
        take_value(bytes, &mut news, fleet, counters);
    }
    Told { news, seen }
}

/// A value of the ring: a segment, unless it is known already, or a pointer to one.
pub(crate) fn take_value(bytes: Vec<u8>, news: &mut News, fleet: &Fleet, counters: &Counters) {
    let router = fleet.router(&news.name).filter(|router| router.generation == news.generation);
    let is_known = |(generation, seq)| generation == news.generation && router.is_some_and(|it| it.has(seq));
    if number_of(&bytes).is_some_and(is_known) {
        return;
    }
    if is_pointer(&bytes) {
        let pointer = counted(decode_pointer(&bytes), counters);
        let of_router =
            pointer.filter(|pointer| of_generation(pointer.generation == news.generation, counters));
        news.pointers.extend(of_router);
    } else if let Some(segment) = counted(decode_segment(&bytes), counters)
        && of_generation(segment.generation == news.generation, counters)
    {
        news.segments.push(Heard { segment, bytes: bytes.into() });
    }
}

fn bytes_of(text: &str) -> Result<Vec<u8>, CodecError> {
    from_text(text).ok_or(CodecError::Malformed)
}

fn counted<T>(decoded: Result<T, CodecError>, counters: &Counters) -> Option<T> {
    decoded.map_err(|error| counters.reject_value(error)).ok()
}

fn of_generation(right: bool, counters: &Counters) -> bool {
    if !right {
        counters.reject_segment(SegmentReject::Generation);
    }
    right
}
