//! Routers that gossip on a simulated network and ask each other through its admin ports.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::sync::Arc;

use grapevine_mesh::transport::Direct;
use grapevine_mesh::{MeshConfig, MeshHandle, spawn_with_transport};

use crate::common::{Admins, TestHost, until};
use crate::network::Network;

pub(crate) struct Router {
    pub(crate) mesh: MeshHandle,
    pub(crate) host: Arc<TestHost>,
}

/// A network with its admin ports.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) admins: Arc<Admins>,
}

pub(crate) fn addr(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

pub(crate) fn url(port: u16) -> String {
    format!("mem:{port}")
}

/// Router `r<port>`, which looks for `seeds`.
pub(crate) fn config(port: u16, seeds: &[u16]) -> MeshConfig {
    MeshConfig {
        seeds: seeds.iter().map(|port| addr(*port).to_string()).collect(),
        generation: Some(1_000),
        admin_url: Some(url(port)),
        seed: Some(u64::from(port)),
        ..MeshConfig::new(format!("r{port}"), addr(port))
    }
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self { network: Network::new(seed), admins: Admins::new() }
    }

    pub(crate) fn start(&self, config: MeshConfig) -> Router {
        self.spawn(config, None)
    }

    /// Like [`Self::start`], and it tells what is new directly.
    pub(crate) fn start_telling(&self, config: MeshConfig) -> Router {
        let direct = self.network.direct(config.listen);
        self.spawn(config, Some(direct))
    }

    fn spawn(&self, config: MeshConfig, direct: Option<Arc<dyn Direct>>) -> Router {
        let host = TestHost::with(&self.admins);
        let url = config.admin_url.clone();
        let mesh = spawn_with_transport(config, host.clone(), self.network.shared(), direct).unwrap();
        if let Some(url) = url {
            self.admins.open(&url, &mesh);
        }
        Router { mesh, host }
    }

    /// It is gone, as after a kill.
    pub(crate) fn kill(&self, router: Router, port: u16) {
        self.admins.close(&url(port));
        drop(router);
    }

    /// Routers `r1` to `r<count>` that all know only the first, and have met.
    pub(crate) async fn fleet(&self, count: u16) -> Vec<Router> {
        let routers: Vec<Router> = (1..=count).map(|port| self.start(config(port, &[1]))).collect();
        all_met(&routers).await;
        routers
    }

    /// Cuts or mends the link between two routers.
    pub(crate) async fn link(&self, a: u16, b: u16, up: bool) {
        let links = &self.network.links;
        if up { links.add_link(addr(a), addr(b)).await } else { links.remove_link(addr(a), addr(b)).await }
    }
}

pub(crate) async fn all_met(routers: &[Router]) {
    for router in routers {
        until("all are live", || router.mesh.status().live_peers() == routers.len() - 1).await;
    }
}

pub(crate) async fn all_joined(routers: &[Router]) {
    for router in routers {
        until("it has joined", || router.mesh.is_joined()).await;
    }
}
