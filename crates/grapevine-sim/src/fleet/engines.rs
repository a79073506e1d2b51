//! The engine replicas: the replay's model of an engine, and processes that die and come back empty.

use grapevine_tree::ReplicaId;

use crate::replay::engine::{Engine, EngineSpec, Micros, Prefill};
use crate::replay::trace::{Call, Trace};

/// One replica.
#[derive(Debug)]
pub(super) struct Server {
    /// Its name on the wire.
    pub(super) id: ReplicaId,
    /// Counts its starts: what a former life was doing is void.
    pub(super) life: u32,
    /// When it died, while it is dead.
    pub(super) dead_since: Option<Micros>,
    engine: Engine,
    on_board: Vec<usize>,
}

/// All replicas, in the order of their ids.
pub(super) fn servers(count: usize, spec: &EngineSpec, trace: &Trace) -> Vec<Server> {
    let id = |i| ReplicaId::of_url(&format!("http://replica-{i}"));
    let server = |id| {
        let engine = Engine::new(spec, trace);
        Server { id, life: 0, dead_since: None, engine, on_board: Vec::new() }
    };
    let mut servers: Vec<Server> = (0..count).map(|i| server(id(i))).collect();
    servers.sort_unstable_by_key(|server| server.id);
    servers
}

impl Server {
    /// Whether it listens.
    pub(super) fn is_up(&self) -> bool {
        self.dead_since.is_none()
    }

    /// A request is here. Call [`Self::start`] next.
    pub(super) fn arrive(&mut self, call: usize) {
        self.on_board.push(call);
        self.engine.arrive(call);
    }

    /// Starts the next prefill if one can start.
    pub(super) fn start(&mut self, spec: &EngineSpec, trace: &Trace, now: Micros) -> Option<Prefill> {
        self.engine.start(spec, trace, now)
    }

    /// A prefill is done; when the request will be. Call [`Self::start`] next.
    pub(super) fn prefilled(&mut self, spec: &EngineSpec, call: &Call, now: Micros) -> Micros {
        self.engine.prefilled(spec, call, now)
    }

    /// A request is done. Call [`Self::start`] next.
    pub(super) fn finish(&mut self, index: usize, call: &Call) {
        self.on_board.retain(|&other| other != index);
        self.engine.finish(call);
    }

    /// Dies; the requests that die with it.
    pub(super) fn die(&mut self, now: Micros) -> Vec<usize> {
        self.dead_since = Some(now);
        self.life += 1;
        std::mem::take(&mut self.on_board)
    }

    /// Is back, with an empty cache.
    pub(super) fn rise(&mut self, spec: &EngineSpec, trace: &Trace) {
        self.dead_since = None;
        self.engine = Engine::new(spec, trace);
    }
}
