//! The routers of a world: who is alive, and how one starts and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use grapevine_mesh::{MeshConfig, MeshHandle, MeshStatus, spawn_with_transport};
use grapevine_tree::{ReplicaId, TreeConfig};

use super::admin;
use super::host::{Shared, SimHost};
use super::network::{Network, address};
use super::router::Router;

/// Seeds that a router is given: enough that one of them lives.
const SEEDS: usize = 3;

/// Unix milliseconds at which a world begins; any would do.
const EPOCH_MS: i64 = 1_800_000_000_000;

/// One router as long as it lives.
pub(super) struct Node {
    pub(super) host: Arc<SimHost>,
    /// There is none in a world of one router.
    mesh: Option<MeshHandle>,
    power: Arc<AtomicBool>,
}

/// How routers are made.
pub(super) struct Maker {
    pub(super) replicas: Vec<ReplicaId>,
    pub(super) capacity_tokens: u64,
    pub(super) tree: TreeConfig,
    /// How often routers gossip.
    pub(super) interval: Duration,
    pub(super) seed: u64,
}

/// All routers, the dead ones' places too.
pub(super) struct Nodes {
    maker: Maker,
    network: Arc<Network>,
    shared: Shared,
    places: Vec<Place>,
}

#[derive(Default)]
struct Place {
    node: Option<Node>,
    lives: u32,
}

impl Node {
    /// What its mesh says of itself.
    pub(super) fn status(&self) -> Option<Arc<MeshStatus>> {
        self.mesh.as_ref().map(MeshHandle::status)
    }

    /// Whether a load balancer would send it requests.
    fn is_ready(&self) -> bool {
        self.mesh.as_ref().is_none_or(MeshHandle::is_joined)
    }
}

impl Nodes {
    /// Places for `count` routers, all empty.
    pub(super) fn new(count: usize, maker: Maker, network: Arc<Network>, shared: Shared) -> Self {
        Self { maker, network, shared, places: (0..count).map(|_| Place::default()).collect() }
    }

    /// Numbers of those that live.
    pub(super) fn live(&self) -> Vec<usize> {
        self.iter().map(|(index, _)| index).collect()
    }

    /// Numbers of those that are ready; of all that live if none is.
    pub(super) fn ready(&self) -> Vec<usize> {
        let ready: Vec<usize> =
            self.iter().filter(|(_, node)| node.is_ready()).map(|(index, _)| index).collect();
        if ready.is_empty() { self.live() } else { ready }
    }

    /// Those that live.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.places.iter().enumerate().filter_map(|(index, place)| Some((index, place.node.as_ref()?)))
    }

    /// Router `index`, if it lives.
    pub(super) fn get(&self, index: usize) -> Option<&Node> {
        self.places.get(index)?.node.as_ref()
    }

    /// How many routers there are when all live.
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// Which of its lives router `index` is in.
    pub(super) fn life(&self, index: usize) -> u32 {
        self.places[index].lives
    }

    /// How often routers were started.
    pub(super) fn starts(&self) -> u32 {
        self.places.iter().map(|place| place.lives).sum()
    }

    /// Router `index` starts, unless it lives. Its clock is wrong by `clock_jump_ms`.
    pub(super) fn start(&mut self, index: usize, clock_jump_ms: i64) {
        let alone = self.places.len() == 1;
        let place = &mut self.places[index];
        if place.node.is_some() {
            return;
        }
        place.lives += 1;
        let seed = self.maker.seed ^ (index as u64) << 32 ^ u64::from(place.lives);
        let Maker { replicas, capacity_tokens, tree, .. } = &self.maker;
        let router = Router::new(replicas, *capacity_tokens, tree.clone(), seed);
        let host = Arc::new(SimHost::new(index, router, self.shared.clone()));
        let power = Arc::new(AtomicBool::new(true));
        let mesh = (!alone).then(|| {
            let config = self.config(index, clock_jump_ms);
            let plug = self.network.plug(index, Arc::clone(&power));
            spawn_with_transport(config, Arc::clone(&host), plug.clone(), Some(plug))
                .expect("names and intervals are right")
        });
        if let Some(mesh) = &mesh {
            self.shared.admins.open(index, mesh);
        }
        self.places[index].node = Some(Node { host, mesh, power });
    }

    fn config(&self, index: usize, clock_jump_ms: i64) -> MeshConfig {
        let now_ms = (self.shared.clock.now() / 1_000) as i64;
        let generation = (EPOCH_MS + now_ms + clock_jump_ms) as u64;
        MeshConfig {
            seeds: (0..self.places.len().min(SEEDS)).map(|seed| address(seed).to_string()).collect(),
            generation: Some(generation),
            interval: self.maker.interval,
            admin_url: Some(admin::url(index)),
            seed: Some(self.maker.seed ^ generation),
            ..MeshConfig::new(format!("router-{index}"), address(index))
        }
    }

    /// Router `index` stops: at once, or after it told the others. The requests it carried end with
    /// its load guards, which the caller holds.
    pub(super) fn stop(&mut self, index: usize, farewell: bool) {
        let Some(node) = self.places[index].node.take() else { return };
        self.shared.admins.close(index);
        match node.mesh {
            Some(mesh) if farewell => {
                node.host.with(|router, _| router.drain());
                tokio::spawn(async move {
                    mesh.leave().await;
                    node.power.store(false, Relaxed);
                });
            }
            _ => node.power.store(false, Relaxed),
        }
    }
}
