//! A fleet's life: requests arrive at real routers, which pick among model engines and gossip over a
//! simulated network, while things go wrong.
//!
//! ```text
//!  workload ──arrive──▶ a live router: tree, votes, guard, picker ──▶ engine: queue ▶ prefill ▶ decode
//!                            │ ▲                                          │first byte      │end
//!  faults ──strike──▶        ▼ │ collect, deliver                         └── load guard ──┘
//!                       mesh actor, chitchat ◀──▶ network (loss, delay, cuts)
//! ```
//!
//! [`World`] is the only task of the driver; meshes run between its events, all on one thread and one
//! paused clock, so one seed is one run.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_route::{Decision, LoadGuard};
use grapevine_tree::{TreeConfig, boundary};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::admin::Admins;
use super::agenda::{Agenda, Event};
use super::checks::{self, Checks};
use super::clock::{Clock, MINUTE, SECOND};
use super::cpu::Stopwatch;
use super::engines::{Server, servers};
use super::faults::Fault;
use super::gauges::Gauges;
use super::health::VERDICT_MS;
use super::host::Shared;
use super::journal::Journal;
use super::network::{Network, Weather};
use super::nodes::{Maker, Nodes};
use super::outcome::Outcome;
use crate::replay::engine::{EngineSpec, Micros};
use crate::replay::trace::{BYTES_PER_TOKEN, Start, Trace};

/// How often a router keeps house.
const HOUSEKEEPING: Micros = 100_000;

/// Replicas that are tried for one request.
const TRIES: usize = 3;

/// After a cut is mended, until new prefixes are followed again: meshes must find each other first.
const CALM: Micros = 8 * SECOND;

/// Hits count after this part of the run: a fleet starts with empty caches and no idea, which is worth
/// a look of its own.
const WARM_UP: Micros = 3;

/// One of so many new prefixes is followed.
const FOLLOWED: usize = 8;

/// How long a fleet is watched when nothing happens any more.
const IDLE: Micros = 5 * SECOND;

/// What the network, and the load balancer, draw from is not what the workload draws from.
const NETWORK_SALT: u64 = 0x6e65_7477_6f72_6b00;
const DICE_SALT: u64 = 0x6469_6365_0000_0000;

/// Everything about a world but its traffic.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) routers: usize,
    pub(super) replicas: usize,
    pub(super) weather: Weather,
    /// How often routers gossip.
    pub(super) interval: Duration,
    pub(super) faults: Vec<(Micros, Fault)>,
    pub(super) engine: EngineSpec,
    pub(super) tree: TreeConfig,
    /// How long requests arrive.
    pub(super) lasts: Micros,
    /// How long the world is watched after the last answer.
    pub(super) quiet: Micros,
    pub(super) measure_cpu: bool,
    pub(super) measure_memory: bool,
}

/// A request on its way.
#[derive(Default)]
struct Flight {
    load: Option<LoadGuard>,
    router: usize,
    life: u32,
}

pub(super) struct World<'a> {
    setup: &'a Setup,
    trace: &'a Trace,
    agenda: Agenda,
    clock: Clock,
    nodes: Nodes,
    network: Arc<Network>,
    shared: Shared,
    engines: Vec<Server>,
    flights: Vec<Flight>,
    flying: usize,
    dice: SmallRng,
    calm_from: Micros,
    checks: Checks,
    outcome: Outcome,
}

/// Plays a world to its end.
pub(super) async fn play(setup: &Setup, trace: &Trace, journal: Arc<Journal>) -> Outcome {
    let watch = Stopwatch::start(setup.measure_cpu);
    let mut world = World::new(setup, trace, journal);
    world.begin();
    world.run(setup.lasts).await;
    world.land().await;
    world.hush().await;
    world.end(&watch)
}

impl<'a> World<'a> {
    fn new(setup: &'a Setup, trace: &'a Trace, journal: Arc<Journal>) -> Self {
        let clock = Clock::start();
        let network = Network::new(
            setup.seed ^ NETWORK_SALT,
            setup.routers,
            setup.weather,
            clock,
            Arc::clone(&journal),
        );
        let shared = Shared {
            clock,
            journal,
            witness: Arc::default(),
            admins: Admins::new(Arc::clone(&network)),
            delta_bytes: Arc::default(),
        };
        let engines = servers(setup.replicas, &setup.engine, trace);
        let maker = Maker {
            replicas: engines.iter().map(|server| server.id).collect(),
            capacity_tokens: setup.engine.cache_tokens,
            tree: setup.tree.clone(),
            interval: setup.interval,
            seed: setup.seed,
        };
        Self {
            setup,
            trace,
            agenda: Agenda::default(),
            clock,
            nodes: Nodes::new(setup.routers, maker, Arc::clone(&network), shared.clone()),
            network,
            shared,
            engines,
            flights: trace.calls.iter().map(|_| Flight::default()).collect(),
            flying: 0,
            dice: SmallRng::seed_from_u64(setup.seed ^ DICE_SALT),
            calm_from: CALM,
            checks: Checks::default(),
            outcome: Outcome { seed: setup.seed, ..Outcome::default() },
        }
    }

    fn begin(&mut self) {
        for router in 0..self.setup.routers {
            self.start_router(router, 0, 0);
        }
        self.expect_call(0);
        for (at, fault) in &self.setup.faults {
            self.agenda.add(*at, Event::Strike(fault.clone()));
        }
        self.agenda.add(SECOND, Event::Second);
    }

    async fn run(&mut self, end: Micros) {
        while let Some((at, event)) = self.agenda.next(end) {
            self.clock.until(at).await;
            let watch = Stopwatch::start(self.setup.measure_cpu);
            self.handle(event, at);
            self.outcome.driver_cpu_ns += watch.elapsed_ns();
        }
        self.clock.until(end).await;
    }

    /// Until the last answer is out.
    async fn land(&mut self) {
        let mut end = self.setup.lasts;
        while self.flying > 0 {
            end += SECOND;
            self.run(end).await;
        }
    }

    fn handle(&mut self, event: Event, at: Micros) {
        match event {
            Event::Arrive(call) => self.arrive(call, at),
            Event::FirstToken { replica, life, call } => self.first_token(replica, life, call, at),
            Event::Finish { replica, life, call } => self.finish(replica, life, call, at),
            Event::Housekeep { router, life } => self.keep_house(router, life, at),
            Event::Strike(fault) => self.strike(&fault, at),
            Event::Second => self.second(at),
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.shared.journal.note(self.clock.now(), what);
    }

    fn expect_call(&mut self, call: usize) {
        if let Some(Start::At(at)) = self.trace.calls.get(call).map(|call| call.start) {
            self.agenda.add(at, Event::Arrive(call));
        }
    }

    fn arrive(&mut self, call: usize, at: Micros) {
        self.expect_call(call + 1);
        self.outcome.requests += 1;
        let ready = self.nodes.ready();
        if ready.is_empty() {
            self.outcome.failed += 1;
            return;
        }
        let router = ready[self.dice.random_range(0..ready.len())];
        let mut tried = Vec::new();
        while tried.len() < TRIES {
            let Some((replica, decision)) = self.try_one(router, call, &tried, at) else { break };
            if self.engines[replica].is_up() {
                return self.board(router, replica, call, &decision, at);
            }
            tried.push(replica);
        }
        self.outcome.failed += 1;
    }

    /// The router picks and connects: which replica, and why. Its count is held by the flight.
    fn try_one(
        &mut self,
        router: usize,
        call: usize,
        tried: &[usize],
        at: Micros,
    ) -> Option<(usize, Decision)> {
        let key = &self.trace.calls[call].key;
        let node = self.nodes.get(router)?;
        let decision = node.host.with(|router, now| router.pick(key, tried, now))?;
        let replica = decision.index;
        self.note(format_args!("pick {call} {router} {replica} {:?}", decision.reason));
        let server = &self.engines[replica];
        let guard =
            node.host.with(|router, now| router.dispatch(replica, key, decision.uncached_tokens(), now));
        if let Some(dead_since) = server.dead_since {
            drop(guard);
            node.host.with(|router, now| router.refused(replica, key, now));
            let dead_ms = (at - dead_since) / 1_000;
            // A router that just started has not probed yet.
            let old = self.checks.age(router, at) / 1_000 > VERDICT_MS;
            if dead_ms > VERDICT_MS && old && tried.is_empty() {
                let what = format!("router {router} chose replica {replica}, dead for {dead_ms} ms");
                self.outcome.violate(at, what);
            }
        } else {
            self.flights[call] = Flight { load: Some(guard), router, life: self.nodes.life(router) };
            self.flying += 1;
        }
        Some((replica, decision))
    }

    fn board(&mut self, router: usize, replica: usize, call: usize, decision: &Decision, at: Micros) {
        self.follow(router, replica, call, decision, at);
        self.engines[replica].arrive(call);
        self.start_prefill(replica, at);
    }

    /// Has the witness follow one of [`FOLLOWED`] prefixes that are new, while nothing keeps routers from
    /// hearing of them.
    fn follow(&mut self, router: usize, replica: usize, call: usize, decision: &Decision, at: Micros) {
        let key = &self.trace.calls[call].key;
        let whole = key.hashes.len().checked_sub(1).map_or(0, boundary::depth);
        let is_new = (decision.matched_tokens as usize) * BYTES_PER_TOKEN < whole;
        if !is_new || !call.is_multiple_of(FOLLOWED) || at < self.calm_from || !self.network.is_whole() {
            return;
        }
        let grown = |index: &usize| self.checks.age(*index, at) > CALM;
        let peers: BTreeSet<usize> =
            self.nodes.live().into_iter().filter(|&peer| peer != router).filter(grown).collect();
        if grown(&router) {
            let replica = self.engines[replica].id;
            self.shared.witness().seen(router, Arc::new(key.clone()), replica, self.clock.now(), peers);
        }
    }

    fn start_prefill(&mut self, replica: usize, at: Micros) {
        let server = &mut self.engines[replica];
        let life = server.life;
        let Some(prefill) = server.start(&self.setup.engine, self.trace, at) else { return };
        let call = prefill.call;
        if at >= self.setup.lasts / WARM_UP {
            self.outcome.input_tokens += u64::from(self.trace.calls[call].input_tokens);
            self.outcome.cached_tokens += u64::from(prefill.cached_tokens);
        }
        self.agenda.add(prefill.first_token_at, Event::FirstToken { replica, life, call });
    }

    fn first_token(&mut self, replica: usize, life: u32, call: usize, at: Micros) {
        if self.engines[replica].life != life {
            return;
        }
        let Flight { load, router, life: router_life } = &mut self.flights[call];
        if let Some(load) = load {
            load.first_byte();
        }
        let is_same = self.nodes.life(*router) == *router_life;
        if let Some(node) = self.nodes.get(*router).filter(|_| is_same) {
            node.host.with(|router, now| router.served(replica, now));
        }
        let done = self.engines[replica].prefilled(&self.setup.engine, &self.trace.calls[call], at);
        self.agenda.add(done, Event::Finish { replica, life, call });
        self.start_prefill(replica, at);
    }

    fn finish(&mut self, replica: usize, life: u32, call: usize, at: Micros) {
        if self.engines[replica].life != life {
            return;
        }
        self.engines[replica].finish(call, &self.trace.calls[call]);
        self.flights[call].load = None;
        self.flying -= 1;
        self.start_prefill(replica, at);
    }

    fn start_router(&mut self, router: usize, clock_jump_ms: i64, at: Micros) {
        if self.nodes.get(router).is_some() {
            return;
        }
        self.nodes.start(router, clock_jump_ms);
        self.checks.born(router, at);
        let life = self.nodes.life(router);
        // Routers do not keep house together.
        let phase = HOUSEKEEPING * router as Micros / self.setup.routers as Micros;
        self.agenda.add(at + phase, Event::Housekeep { router, life });
    }

    fn keep_house(&mut self, router: usize, life: u32, at: Micros) {
        if self.nodes.life(router) != life {
            return;
        }
        let Some(node) = self.nodes.get(router) else { return };
        let engines = &self.engines;
        node.host.with(|router, now| {
            for replica in router.due_probes(now) {
                router.probed(replica, engines[replica].is_up(), now);
            }
            router.tick(now);
        });
        self.agenda.add(at + HOUSEKEEPING, Event::Housekeep { router, life });
    }

    fn strike(&mut self, fault: &Fault, at: Micros) {
        self.note(format_args!("fault {fault:?}"));
        match *fault {
            Fault::Partition(ref side) => {
                let others = (0..self.setup.routers).filter(|router| !side.contains(router));
                for (one, other) in others.flat_map(|other| side.iter().map(move |&one| (one, other))) {
                    self.network.cut(one, other);
                    self.network.cut(other, one);
                }
                self.shared.witness().forget();
            }
            Fault::Cut(from, to) => {
                self.network.cut(from, to);
                self.shared.witness().forget();
            }
            Fault::Heal => {
                self.network.heal();
                self.calm_from = at + CALM;
            }
            Fault::RouterStops { router, farewell } => self.stop_router(router, farewell, at),
            Fault::RouterStarts { router, clock_jump_ms } => self.start_router(router, clock_jump_ms, at),
            Fault::ReplicaDies(replica) => self.kill_replica(replica, at),
            Fault::ReplicaRises(replica) => {
                self.engines[replica].rise(&self.setup.engine, self.trace);
                self.checks.risen(self.engines[replica].id, at);
            }
        }
    }

    fn stop_router(&mut self, router: usize, farewell: bool, at: Micros) {
        self.checks.stopped(at);
        self.nodes.stop(router, farewell);
        self.shared.witness().gone(router);
        // Its clients are cut off; engines finish what they do for nobody.
        for flight in self.flights.iter_mut().filter(|flight| flight.router == router) {
            self.outcome.broken += u64::from(flight.load.take().is_some());
        }
    }

    fn kill_replica(&mut self, replica: usize, at: Micros) {
        let victims = self.engines[replica].die(at);
        self.flying -= victims.len();
        for call in victims {
            self.outcome.broken += u64::from(self.flights[call].load.take().is_some());
        }
        self.shared.witness().emptied(self.engines[replica].id);
    }

    fn second(&mut self, at: Micros) {
        if self.setup.measure_memory && at.is_multiple_of(MINUTE) {
            self.outcome.gauges.push(Gauges::read(&self.nodes, at / MINUTE));
        }
        self.checks.every_second(&self.nodes, &self.network, &self.setup.tree, at, &mut self.outcome);
        while let Some((origin, since, missing)) = self.shared.witness().overdue(at) {
            let what = format!("a prefix of router {origin} from {since} us is still unknown to {missing:?}");
            self.outcome.violate(at, what);
        }
        self.agenda.add(at + SECOND, Event::Second);
    }

    /// No more requests: what must hold then?
    async fn hush(&mut self) {
        let began = self.clock.now();
        self.run(began + checks::SETTLED).await;
        let caches = self.setup.engine.cache_tokens * self.setup.replicas as u64;
        let keys = checks::recent_keys(self.trace, self.setup.lasts, caches);
        self.checks.after_quiet(&self.nodes, &keys, began + checks::SETTLED, &mut self.outcome);
        if self.setup.quiet >= checks::SILENT + IDLE {
            self.run(began + self.setup.quiet - IDLE).await;
            let before = checks::said(&self.nodes, &self.network);
            self.run(began + self.setup.quiet).await;
            let after = checks::said(&self.nodes, &self.network);
            self.checks.idle(&self.nodes, before, after, IDLE, &mut self.outcome);
        }
    }

    fn end(mut self, watch: &Stopwatch) -> Outcome {
        let outcome = &mut self.outcome;
        outcome.cpu_ns = watch.elapsed_ns();
        outcome.spread_us = self.shared.witness().spread().to_vec();
        outcome.lasted_us = self.clock.now();
        outcome.wire_bytes = (0..self.setup.routers).map(|router| self.network.traffic(router).bytes).sum();
        outcome.delta_bytes = self.shared.delta_bytes.load(Relaxed);
        outcome.wire_bytes += self.shared.admins.bytes();
        outcome.published_bytes = self.checks.published_bytes(&self.nodes);
        (outcome.trace, outcome.events) = self.shared.journal.digest();
        self.outcome
    }
}
