//! The mesh actor: owns this router's gossip, asks the host a few times a second what there is to
//! say, hands over what peers said, and has asked for what is missing.
//!
//! ```text
//!            tick                    ask (spawned, never cancelled)
//!   timer ----------> mesh actor ---------------------------------> Host::collect
//!                      |   ^  \---- decoded, once, in order ------> Host::deliver
//!         set own keys |   | woken by changed keys; reads new ones
//!                      v   |                     errands (spawned)
//!                    chitchat server task  <--->  Transport  <--->  peers
//! ```
//!
//! [`word`] tells peers directly what would be stale by the time gossip brought it, [`mend`] finds what is missing and answers peers, [`errand`] has it fetched, [`pace`] says how much may
//! go into gossip, [`namesake`] knows this router's own past.
//!
//! The actor survives its parts: a port that is busy is tried again, a chitchat task that ended is
//! started again under a new generation, a host that does not answer is asked again when it did, and
//! [`start`] begins it anew, with nothing but its name, should it panic itself.
//! Routing never waits for any of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use grapevine_tree::{Millis, RouterId};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tracing::{info, warn};

use crate::answer::Asked;
use crate::ask::Asker;
use crate::config::MeshConfig;
use crate::counters::Counters;
use crate::fleet::Fleet;
use crate::handle::Msg;
use crate::join::Joiner;
use crate::log::Log;
use crate::net::turns::{InTurns, Turns};
use crate::outbox::Outbox;
use crate::peer::Peer;
use crate::port::Port;
use crate::pull::Puller;
use crate::seeds::Dialler;
use crate::seen::Vectors;
use crate::session::Session;
use crate::status::{Held, MeshStatus, MeshTotals, PeerStatus};
use crate::{Host, Incoming, Outgoing};

mod errand;
mod mend;
mod namesake;
mod pace;
mod start;
mod word;

use errand::Errand;
use namesake::NamesakeTicks;
use pace::Strain;
pub use start::{spawn, spawn_with_transport};
use word::beat;

/// Pause before gossip is started again after its task ended or its port was busy.
const RETRY: Duration = Duration::from_secs(1);

/// How long before chitchat's own tick ours is, at most: the host has answered by then, and what it
/// said goes out at once instead of waiting for the tick after. Both run on one clock.
const LEAD: Duration = Duration::from_millis(25);

/// Ticks for the last words to spread: who lives is told directly, and for who missed that there is an exchange at
/// once and one or two later ones.
const LEAVE_TICKS: u32 = 5;

/// Routers that were just met and are gossiped with in one tick, at most: as many as chitchat itself turns to.
const MAX_MET: usize = 3;

/// Routers that are gossiped with at once when this one leaves, at most.
const MAX_FAREWELLS: usize = 64;

/// How a session of gossip ended.
enum End {
    /// The actor is to stop.
    Stop,
    /// Another session is to follow.
    Again,
}

/// This router is on its way out.
struct Leaving {
    ticks_left: u32,
    tell: Vec<oneshot::Sender<()>>,
}

struct Mesh<H> {
    config: MeshConfig,
    id: RouterId,
    host: Arc<H>,
    port: Port,
    local: watch::Sender<Option<SocketAddr>>,
    joined: watch::Sender<bool>,
    seeds: watch::Receiver<Vec<SocketAddr>>,
    dialler: Dialler,
    status: Arc<ArcSwap<MeshStatus>>,
    counters: Arc<Counters>,
    commands: mpsc::Receiver<Msg>,
    /// What peers tell directly.
    words: mpsc::Receiver<Vec<u8>>,
    words_sender: mpsc::Sender<Vec<u8>>,
    /// Not before this are peers told of load again.
    load_at: Instant,
    turns: Arc<Turns>,
    /// Whom chitchat was sent to this beat, for what was skipped.
    revisited: BTreeSet<Arc<str>>,
    leaving: Option<Leaving>,
    collecting: Option<JoinHandle<Outgoing>>,
    asker: Asker<H>,
    errands: JoinSet<Errand>,
    answers: JoinSet<()>,
    asked: Asked,
    fleet: Fleet,
    outbox: Outbox,
    log: Log,
    puller: Puller,
    vectors: Vectors,
    joiner: Joiner,
    /// Segments missed of each origin, at the last tick.
    missed: BTreeMap<RouterId, u64>,
    /// Origins of what was lost since the last snapshot.
    lacking: BTreeSet<RouterId>,
    lacking_since: Option<Millis>,
    strain: Strain,
    rng: SmallRng,
    /// The next session's generation is above this one.
    generation: u64,
    namesake: NamesakeTicks,
    peers: BTreeMap<Arc<str>, Peer>,
    totals: MeshTotals,
    started: Instant,
}

impl<H: Host> Mesh<H> {
    /// Until it is to stop. Whoever drops this halfway can begin it again.
    async fn run(&mut self) {
        loop {
            let end = match self.open().await {
                Some(session) => self.serve(session).await,
                None => self.wait().await,
            };
            self.publish_status(None);
            if let End::Stop = end {
                break;
            }
        }
        for done in self.leaving.take().into_iter().flat_map(|leaving| leaving.tell) {
            let _ = done.send(());
        }
        info!(router = %self.config.router_name, "gossip stopped");
    }

    /// A session, if the port can be bound.
    async fn open(&mut self) -> Option<Session> {
        let bound = self.port.bind(&self.config, &self.counters).await?;
        self.local.send_replace(Some(bound));
        let transport = self.port.transport()?;
        if let Some(direct) = self.port.direct() {
            direct.listen(self.words_sender.clone());
        }
        let advertised = match self.config.advertised(bound) {
            Ok(addr) => addr,
            Err(error) => {
                warn!(%error, "gossip does not start");
                return None;
            }
        };
        self.vectors.begin();
        let now = self.now();
        let first = self.outbox.begin(self.generation, &mut self.log, now);
        let exchange = self.config.exchange_every(self.port.is_direct());
        self.turns = Arc::new(Turns::new(exchange));
        let transport = InTurns { inner: transport, turns: self.turns.clone() };
        match Session::open(&self.config, self.generation, advertised, first, &transport, exchange).await {
            Ok(session) => {
                info!(router = %self.config.router_name, generation = self.generation, %advertised, "gossip started");
                Some(session)
            }
            Err(error) => {
                warn!(%error, "gossip does not start");
                None
            }
        }
    }

    /// Waits for the next try.
    async fn wait(&mut self) -> End {
        self.look_after_joining();
        tokio::select! {
            () = sleep(RETRY) => End::Again,
            msg = self.commands.recv() => match msg {
                Some(Msg::Leave(done)) => {
                    self.start_leaving(0, done);
                    End::Stop
                }
                Some(Msg::Ask { ask, salt, reply }) => {
                    self.on_ask(&ask, salt, reply);
                    End::Again
                }
                None => End::Stop,
            }
        }
    }

    async fn serve(&mut self, mut session: Session) -> End {
        let every = self.config.interval;
        let mut tick_at = session.started() + every - LEAD.min(every / 4);
        let mut beats = interval_at(tick_at, beat(every));
        beats.set_missed_tick_behavior(MissedTickBehavior::Skip);
        self.dial(&session);
        let mut ended = pin!(session.ended());
        loop {
            tokio::select! {
                _ = beats.tick() => {
                    let now = Instant::now();
                    if now < tick_at {
                        self.on_beat(&session);
                        continue;
                    }
                    while tick_at <= now {
                        tick_at += every;
                    }
                    if let Some(end) = self.on_tick(&mut session).await {
                        session.close().await;
                        return end;
                    }
                }
                outgoing = collected(&mut self.collecting) => self.on_collected(&mut session, outgoing).await,
                () = session.changed() => self.read(&mut session).await,
                Some(message) = self.words.recv() => self.on_word(&message, &session),
                Some(errand) = self.errands.join_next() => self.on_errand(errand),
                Some(_) = self.answers.join_next() => {}
                why = &mut ended => {
                    warn!(error = %why, "gossip task ended, starting it again");
                    self.totals.restarts += 1;
                    self.generation = self.generation.saturating_add(1);
                    self.publish_status(None);
                    return self.wait().await;
                }
                msg = self.commands.recv() => match msg {
                    Some(Msg::Leave(done)) => self.on_leave(&mut session, done).await,
                    Some(Msg::Ask { ask, salt, reply }) => self.on_ask(&ask, salt, reply),
                    None => {
                        session.close().await;
                        return End::Stop;
                    }
                },
            }
        }
    }

    async fn on_tick(&mut self, session: &mut Session) -> Option<End> {
        self.totals.ticks += 1;
        self.read(session).await;
        self.revisit_all(session);
        self.publish_status(Some(session));
        if let Some(leaving) = &mut self.leaving {
            let is_over = leaving.ticks_left == 0;
            leaving.ticks_left = leaving.ticks_left.saturating_sub(1);
            return is_over.then_some(End::Stop);
        }
        if let Some(past) = self.newer_self(session) {
            info!(own = self.generation, past, "this router's past is ahead of its clock, catching up");
            self.generation = past.saturating_add(1);
            self.namesake = NamesakeTicks::default();
            return Some(End::Again);
        }
        self.dial(session);
        self.collect(session);
        self.mend(session).await;
        None
    }

    fn dial(&mut self, session: &Session) {
        let picked = self.dialler.pick(&self.seeds.borrow(), session.live_addresses(), session.is_alone());
        let now = self.now();
        let mut met: Vec<SocketAddr> =
            self.peers.values().filter(|peer| peer.is_just_met(now)).map(Peer::addr).collect();
        // Who was met counts as live at chitchat's next exchange, if its second heartbeat is there by then.
        met.shuffle(&mut self.rng);
        met.truncate(MAX_MET);
        session.dial(picked);
        self.exchange_with(met, session);
    }

    /// Gossips with `peers` now, whatever they began themselves a moment ago.
    fn exchange_with(&self, peers: Vec<SocketAddr>, session: &Session) {
        peers.iter().for_each(|&addr| self.turns.take(addr));
        session.dial(peers);
    }

    /// Asks the host, unless it still owes the answer before: that one is never thrown away.
    fn collect(&mut self, session: &Session) {
        if self.collecting.is_some() {
            self.totals.late_collects += 1;
            return;
        }
        let (host, room) = (self.host.clone(), self.outbox.room(self.pace(session)));
        self.collecting = Some(tokio::spawn(async move { host.collect(room).await }));
    }

    async fn on_collected(&mut self, session: &mut Session, outgoing: Option<Outgoing>) {
        self.collecting = None;
        if self.leaving.is_some() {
            return;
        }
        let Some(outgoing) = outgoing else { return };
        let (pace, now) = (self.pace(session), self.now());
        let writes = self.outbox.publish(outgoing, pace, &mut self.log, now);
        session.write(writes).await;
        self.tell(session);
    }

    async fn on_leave(&mut self, session: &mut Session, done: oneshot::Sender<()>) {
        let now = self.now();
        let writes = self.outbox.farewell(session.others(), &mut self.log, now);
        session.write(writes).await;
        self.load_at = Instant::now();
        self.tell(session);
        // For whoever does not get the last word directly.
        self.exchange_with(self.peers.values().map(Peer::addr).take(MAX_FAREWELLS).collect(), session);
        self.start_leaving(LEAVE_TICKS, done);
    }

    fn start_leaving(&mut self, ticks_left: u32, done: oneshot::Sender<()>) {
        self.leaving.get_or_insert(Leaving { ticks_left, tell: Vec::new() }).tell.push(done);
    }

    /// Takes in what changed since the last look.
    async fn read(&mut self, session: &mut Session) {
        let now = self.now();
        for told in session.read(&self.fleet, &mut self.peers, &self.counters, now).await {
            let name = told.news.name.clone();
            let has_segments = !told.news.segments.is_empty();
            let incoming = self.fleet.hear(told.news, &mut self.log, now);
            self.hand_over(incoming);
            if let Some(router) = self.fleet.router(&name).filter(|_| has_segments) {
                self.strain.note_lag(router.lag_ms, now);
            }
            if let Some(seen) = told.seen {
                self.on_seen(RouterId::of_name(&name), &seen, now);
            }
        }
    }

    fn hand_over(&mut self, incoming: Vec<Incoming>) {
        for incoming in incoming {
            self.totals.segments_received += u64::from(!incoming.entries.is_empty());
            self.totals.entries_received += incoming.entries.len() as u64;
            self.host.deliver(incoming);
        }
    }

    fn publish_status(&mut self, session: Option<&Session>) {
        let now = self.now();
        let peers = self.peer_statuses(now);
        let totals = MeshTotals {
            published: self.outbox.tally(),
            traffic: self.counters.read(),
            ..self.totals.clone()
        };
        self.status.store(Arc::new(MeshStatus {
            generation: self.generation,
            advertised: session.map(Session::advertised),
            running: session.is_some(),
            sealed: self.port.is_udp() && self.config.secret.is_some(),
            name_conflict: self.namesake.is_twin(),
            seeded_by_itself: session.is_some_and(|session| self.is_seeded_by_itself(session.advertised())),
            joined: self.joiner.is_ready(),
            wants_snapshot: self.joiner.is_wanted(),
            strained: self.strain.is_strained(now),
            pointers: self.strain.may_point(now),
            held: self.held(session),
            level_pairs: peers.iter().map(|peer| peer.level_pairs).sum(),
            pairs: peers.iter().map(|peer| peer.pairs).sum(),
            peers,
            totals,
        }));
    }

    fn peer_statuses(&self, now: Millis) -> Vec<PeerStatus> {
        let addresses: BTreeSet<SocketAddr> = self.peers.values().map(Peer::addr).collect();
        self.counters.peers.keep_only(|addr| addresses.contains(&addr));
        let status = |(name, peer): (&Arc<str>, &Peer)| {
            let traffic = self.counters.peers.of(peer.addr());
            let heard = peer.is_heard().then(|| self.vectors.agreement(RouterId::of_name(name), now));
            peer.status(name, self.fleet.router(name), traffic, heard.unwrap_or_default(), now)
        };
        self.peers.iter().map(status).collect()
    }

    /// Names that do not resolve may stand for others.
    fn is_seeded_by_itself(&self, own: SocketAddr) -> bool {
        let seeds = self.seeds.borrow();
        !seeds.is_empty() && seeds.iter().all(|seed| *seed == own)
    }

    fn held(&self, session: Option<&Session>) -> Held {
        let (states, state_bytes) = session.map_or((0, 0), Session::state_size);
        Held {
            log_bytes: self.log.bytes(),
            state_bytes,
            states,
            backlog: self.outbox.backlog(),
            holes: self.fleet.routers().map(|(_, router)| router.open()).sum(),
            routers: self.fleet.routers().count(),
            questions: self.asked.len(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The host's answer, when it was asked; `None` when it panicked.
async fn collected(collecting: &mut Option<JoinHandle<Outgoing>>) -> Option<Outgoing> {
    match collecting {
        Some(task) => match task.await {
            Ok(outgoing) => Some(outgoing),
            Err(error) => {
                warn!(%error, "host did not say what changed");
                None
            }
        },
        None => std::future::pending().await,
    }
}
