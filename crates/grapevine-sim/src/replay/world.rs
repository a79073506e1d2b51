//! The replay itself: a queue of events in virtual time.
//!
//! ```text
//!  trace ──arrive──▶ router (dealt by seed) ──dispatch──▶ engine: queue ▶ prefill ▶ decode
//!    ▲                  │ ▲                                          │first token  │finish
//!    └──gates: children─┘ └── peers' trees and loads, when they have arrived ◀── every tick
//! ```
//!
//! Nothing depends on the wall clock or on the order of a hash map: one seed, one result.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use grapevine_route::{Answer, Decision, LoadGuard, LoadView, Weights};
use grapevine_tree::{DeltaEntry, Matches, ReplicaId, TreeConfig};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::engine::cache::BlockCache;
use super::engine::{self, Engine, EngineSpec, Micros};
use super::report::Tally;
use super::router::{Learning, LoadReport, Router};
use super::rule::{EngineView, Question, Rule, RuleName};
use super::trace::{Gate, Start, Trace};

/// How often a router decays, ages and tells: grapevine's gossip interval.
const TICK: Micros = 250_000;

/// Everything about a replay but the trace.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How replicas are chosen.
    pub rule: RuleName,
    /// Weights of grapevine's votes.
    pub weights: Weights,
    /// The router's trees.
    pub tree: TreeConfig,
    /// The engines.
    pub engine: EngineSpec,
    /// Engine replicas.
    pub replicas: usize,
    /// What routers believe a replica's cache holds, at first if they learn it, tokens.
    pub believed_tokens: u64,
    /// What routers make of the answers.
    pub learning: Learning,
    /// When caches are lost, one replica's each time, in turn.
    pub resets: Vec<Duration>,
    /// Routers.
    pub routers: usize,
    /// A session's requests all go to one router; else each to any.
    pub by_session: bool,
    /// Time from a router's tick to its peers' trees.
    pub tree_delay: Duration,
    /// Time from a router's tick to its peers' loads.
    pub load_delay: Duration,
    /// Share of messages between routers that never arrive. 1 cuts them off.
    pub loss: f64,
    /// Start times are divided by this.
    pub speed: f64,
    /// Seed of everything random.
    pub seed: u64,
}

#[derive(Debug)]
enum Event {
    Arrive(usize),
    FirstToken { replica: usize, call: usize },
    Finish { replica: usize, call: usize },
    Tick(usize),
    Reset(usize),
    HearTree { from: usize, to: usize, entries: Rc<Vec<DeltaEntry>> },
    HearLoads { from: usize, to: usize, reports: Rc<Vec<LoadReport>> },
}

/// Events in the order of their times, equal times in the order of their making.
#[derive(Debug)]
struct Timed {
    at: Micros,
    number: u64,
    event: Event,
}

impl Ord for Timed {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timed {}

/// A call on its way.
#[derive(Default)]
struct Flight {
    arrived: Micros,
    router: usize,
    load: Option<LoadGuard>,
    answer: Answer,
}

struct World<'a> {
    setup: &'a Setup,
    trace: &'a Trace,
    agenda: BinaryHeap<Reverse<Timed>>,
    made: u64,
    now: Micros,
    left: usize,
    replicas: Vec<ReplicaId>,
    engines: Vec<Engine>,
    routers: Vec<Router>,
    rule: Rule,
    flights: Vec<Flight>,
    /// Calls that wait for a call, by its number.
    children: Vec<Vec<usize>>,
    /// One cache of the size of all, in which every call is looked up as it arrives.
    pool: BlockCache,
    turns: Vec<u64>,
    dice: SmallRng,
    tally: Tally,
    loads: Vec<LoadView>,
    views: Vec<EngineView>,
    matches: Matches,
}

/// Replays `trace`.
pub fn replay(trace: &Trace, setup: &Setup) -> Tally {
    let mut world = World::new(trace, setup);
    world.begin();
    while world.left > 0
        && let Some(Reverse(timed)) = world.agenda.pop()
    {
        world.now = timed.at;
        world.handle(timed.event);
    }
    world.end()
}

impl<'a> World<'a> {
    fn new(trace: &'a Trace, setup: &'a Setup) -> Self {
        let mut replicas: Vec<ReplicaId> =
            (0..setup.replicas).map(|i| ReplicaId::of_url(&format!("http://replica-{i}"))).collect();
        // The order in which a replica set is kept.
        replicas.sort_unstable();
        let (tree, capacity) = setup.rule.tree(&setup.tree, setup.believed_tokens.max(1));
        let learning = if setup.rule.learns() { setup.learning } else { Learning::default() };
        let router = |i| {
            let mut router = Router::new(i, setup.routers, &replicas, tree.clone(), learning);
            router.set_capacity(capacity);
            router
        };
        let pool = setup.engine.cache_tokens / u64::from(trace.block_tokens) * setup.replicas as u64;
        Self {
            setup,
            trace,
            agenda: BinaryHeap::new(),
            made: 0,
            now: 0,
            left: trace.calls.len(),
            engines: (0..setup.replicas).map(|_| Engine::new(&setup.engine, trace)).collect(),
            routers: (0..setup.routers).map(router).collect(),
            rule: Rule::new(setup.rule, &setup.weights),
            flights: trace.calls.iter().map(|_| Flight::default()).collect(),
            children: children(trace),
            pool: BlockCache::new(pool.max(1) as usize, trace.ids),
            turns: vec![0; setup.routers],
            dice: SmallRng::seed_from_u64(setup.seed),
            tally: Tally::default(),
            loads: Vec::new(),
            views: Vec::new(),
            matches: Matches::new(),
            replicas,
        }
    }

    fn begin(&mut self) {
        for (index, call) in self.trace.calls.iter().enumerate() {
            if let Start::At(at) = call.start {
                self.at((at as f64 / self.setup.speed) as Micros, Event::Arrive(index));
            }
        }
        for (number, at) in self.setup.resets.iter().enumerate() {
            self.at(at.as_micros() as Micros, Event::Reset(number % self.replicas.len()));
        }
        for router in 0..self.routers.len() {
            // Routers do not tick together.
            let phase = TICK * router as Micros / self.routers.len() as Micros;
            self.at(phase, Event::Tick(router));
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.made += 1;
        self.agenda.push(Reverse(Timed { at, number: self.made, event }));
    }

    fn handle(&mut self, event: Event) {
        let now_ms = self.now / 1_000;
        match event {
            Event::Arrive(call) => self.arrive(call),
            Event::FirstToken { replica, call } => self.first_token(replica, call),
            Event::Finish { replica, call } => self.finish(replica, call),
            Event::Tick(router) => self.tick(router),
            Event::Reset(replica) => {
                self.engines[replica].reset();
                self.tally.cache_lost(self.now);
            }
            Event::HearTree { from, to, entries } => {
                let origin = self.routers[from].id;
                self.routers[to].hear_tree(origin, &entries, now_ms);
            }
            Event::HearLoads { from, to, reports } => {
                self.routers[to].hear_loads(from, &reports, now_ms);
            }
        }
    }

    fn arrive(&mut self, index: usize) {
        let trace = self.trace;
        let call = &trace.calls[index];
        self.release_children(index, Gate::Arrival);
        self.tally.pooled_tokens += u64::from(engine::cached_tokens(&self.pool, call, trace.block_tokens));
        if self.pool.admit(&call.runs) {
            self.pool.release(&call.runs);
        }
        let router = self.deal(call.session);
        let decision = self.decide(router, index);
        let uncached = decision.uncached_tokens();
        let (load, last_use) =
            self.routers[router].dispatch(decision.index, &call.key, uncached, self.now / 1_000);
        let answer = Answer {
            prompt_tokens: decision.prompt_tokens,
            predicted_tokens: decision.matched_tokens,
            last_use,
            reported_prompt_tokens: Some(call.input_tokens),
            reported_cached_tokens: None,
            textual: true,
            picked_at: self.now / 1_000,
            answered_at: 0,
        };
        self.flights[index] = Flight { arrived: self.now, router, load: Some(load), answer };
        self.tally.decided(&decision);
        self.engines[decision.index].arrive(index);
        self.start(decision.index);
    }

    /// Which router a request comes to.
    fn deal(&mut self, session: u32) -> usize {
        let routers = self.routers.len();
        match self.setup.by_session {
            true => SmallRng::seed_from_u64(self.setup.seed ^ u64::from(session)).random_range(0..routers),
            false => self.dice.random_range(0..routers),
        }
    }

    fn decide(&mut self, router: usize, index: usize) -> Decision {
        let call = &self.trace.calls[index];
        self.matches.clear();
        if self.setup.rule.matches() {
            self.routers[router].lookup(&call.key, self.now / 1_000, &mut self.matches);
        }
        self.loads.clear();
        self.loads.extend((0..self.replicas.len()).map(|i| self.routers[router].load(i)));
        self.views.clear();
        let view = |e: &Engine| EngineView { waiting: e.waiting(), kv_use: e.kv_use() };
        self.views.extend(self.engines.iter().map(view));
        let turn = self.turns[router];
        self.turns[router] += 1;
        let question = Question {
            call,
            turn,
            replicas: &self.replicas,
            loads: &self.loads,
            matches: &self.matches,
            engines: &self.views,
            // Lost for good, gossip is as if the others were not there: known from the seeds.
            informed: self.routers.len() == 1 || self.setup.loss < 1.0,
        };
        let seed = self.setup.seed ^ turn ^ ((router as u64) << 48);
        self.rule.pick(&question, &mut SmallRng::seed_from_u64(seed))
    }

    fn start(&mut self, replica: usize) {
        let engine = &mut self.engines[replica];
        let Some(prefill) = engine.start(&self.setup.engine, self.trace, self.now) else { return };
        let flight = &mut self.flights[prefill.call];
        flight.answer.reported_cached_tokens = Some(prefill.cached_tokens);
        self.tally.prefilled(&flight.answer, &self.trace.calls[prefill.call], self.now);
        self.at(prefill.first_token_at, Event::FirstToken { replica, call: prefill.call });
    }

    fn first_token(&mut self, replica: usize, index: usize) {
        let flight = &mut self.flights[index];
        if let Some(load) = &mut flight.load {
            load.first_byte();
        }
        flight.answer.answered_at = self.now / 1_000;
        self.tally.ttft(self.now - flight.arrived, self.now);
        let call = &self.trace.calls[index];
        let end = self.engines[replica].prefilled(&self.setup.engine, call, self.now);
        self.at(end, Event::Finish { replica, call: index });
        self.start(replica);
    }

    fn finish(&mut self, replica: usize, index: usize) {
        let flight = std::mem::take(&mut self.flights[index]);
        self.routers[flight.router].answered(replica, &flight.answer, self.now / 1_000);
        self.engines[replica].finish(&self.trace.calls[index]);
        self.release_children(index, Gate::Finish);
        self.left -= 1;
        self.start(replica);
    }

    fn release_children(&mut self, parent: usize, when: Gate) {
        let trace = self.trace;
        for at in 0..self.children[parent].len() {
            let child = self.children[parent][at];
            if let Start::After { gate, delay, .. } = trace.calls[child].start
                && gate == when
            {
                let delay = (delay as f64 / self.setup.speed) as Micros;
                self.at(self.now + delay, Event::Arrive(child));
            }
        }
    }

    fn tick(&mut self, from: usize) {
        let now_ms = self.now / 1_000;
        self.routers[from].tick(now_ms);
        if self.routers.len() > 1 && self.setup.rule.gossips() {
            let entries = Rc::new(self.routers[from].publish_tree(now_ms));
            let reports = Rc::new(self.routers[from].publish_loads());
            for to in (0..self.routers.len()).filter(|&to| to != from) {
                if !entries.is_empty() && !self.lost() {
                    let at = self.now + self.setup.tree_delay.as_micros() as Micros;
                    self.at(at, Event::HearTree { from, to, entries: Rc::clone(&entries) });
                }
                if !self.lost() {
                    let at = self.now + self.setup.load_delay.as_micros() as Micros;
                    self.at(at, Event::HearLoads { from, to, reports: Rc::clone(&reports) });
                }
            }
        }
        self.at(self.now + TICK, Event::Tick(from));
    }

    fn lost(&mut self) -> bool {
        self.setup.loss > 0.0 && self.dice.random_bool(self.setup.loss)
    }

    fn end(mut self) -> Tally {
        self.tally.lasted = self.now;
        self.tally.by_replica = self.engines.iter().map(|e| (e.requests, e.prefilled_tokens)).collect();
        self.tally.published_bytes = self.routers.iter().map(|r| r.published_bytes).sum();
        self.tally.published_entries = self.routers.iter().map(|r| r.published_entries).sum();
        self.tally.verdicts = self.routers.iter().map(|r| r.verdicts).sum();
        self.tally.believed_tokens = self.routers.first().map_or(0, Router::believed_tokens);
        self.tally.tree = self.routers.first().map(Router::tree_stats).unwrap_or_default();
        self.tally
    }
}

/// Who waits for whom.
fn children(trace: &Trace) -> Vec<Vec<usize>> {
    let mut children = vec![Vec::new(); trace.calls.len()];
    for (index, call) in trace.calls.iter().enumerate() {
        if let Start::After { parent, .. } = call.start {
            children[parent].push(index);
        }
    }
    children
}
