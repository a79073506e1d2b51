//! Routers as processes of this binary.

use std::time::Duration;

use grapevine_node::admin::fleet_view::Fleet as FleetView;
use grapevine_testkit::load::ClientError;
use tokio::time::{Instant, sleep};

use crate::admin::AdminClient;
use crate::local::{Process, free_tcp_ports, free_udp_port};

/// A router that is not ready by then will not be.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Limit of one question: the view goes on without a router that does not answer. Longer than a router
/// waits for its peers.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// Why the routers cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FleetError {
    #[error("cannot find a free port")]
    Port(#[source] std::io::Error),
    #[error("cannot start a router")]
    Start(#[source] std::io::Error),
    #[error("router {name} ended; its log: {log}")]
    Ended { name: String, log: String },
    #[error("router {name} is not ready; its log: {log}")]
    NotReady { name: String, log: String },
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// One router.
pub(crate) struct Router {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) admin: String,
    pub(crate) process: Process,
}

/// Routers that know each other.
pub(crate) struct Fleet {
    pub(crate) routers: Vec<Router>,
    pub(crate) admin: AdminClient,
}

struct Ports {
    front: u16,
    admin: u16,
    gossip: u16,
}

impl Fleet {
    /// Starts `count` routers with these settings, the same secret and each other's addresses, and
    /// waits until they are ready. Their names are `tag` and a number.
    pub(crate) async fn start(
        count: usize,
        tag: &str,
        settings: &[(&str, String)],
    ) -> Result<Self, FleetError> {
        let ports: Vec<Ports> = (0..count).map(|_| free_ports()).collect::<Result<_, _>>()?;
        let seeds: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{}", p.gossip)).collect();
        let mut shared = settings.to_vec();
        if count > 1 {
            shared.push(("GRAPEVINE_GOSSIP_SEEDS", seeds.join(",")));
        }
        shared.push(("GRAPEVINE_CLUSTER_SECRET", format!("{:032x}", rand::random::<u128>())));
        let mut routers = Vec::new();
        for (i, ports) in ports.iter().enumerate() {
            routers.push(start_router(&format!("{tag}{}", i + 1), ports, &shared)?);
        }
        let admin = AdminClient::open(ASK_LIMIT)?;
        for router in &mut routers {
            router.ready(&admin).await?;
        }
        Ok(Self { routers, admin })
    }

    /// Starts a router anew when it has ended, and waits until it is ready.
    pub(crate) async fn restart(&mut self, at: usize) -> Result<(), FleetError> {
        let Some(router) = self.routers.get_mut(at) else { return Ok(()) };
        router.process.ended().await;
        router.process.start_again().map_err(FleetError::Start)?;
        router.ready(&self.admin).await
    }

    /// The fleet as the first router that answers sees it.
    pub(crate) async fn view(&self) -> Option<FleetView> {
        for router in &self.routers {
            if let Ok(fleet) = self.admin.get(&router.admin, "/api/v1/fleet").await {
                return Some(fleet);
            }
        }
        None
    }

    /// Ends the routers.
    pub(crate) async fn stop(mut self) {
        for router in &mut self.routers {
            router.process.kill().await;
        }
    }
}

impl Router {
    async fn ready(&mut self, admin: &AdminClient) -> Result<(), FleetError> {
        let deadline = Instant::now() + READY_LIMIT;
        while !admin.is_ready(&self.admin).await {
            if self.process.has_ended() {
                return Err(FleetError::Ended { name: self.name.clone(), log: self.process.log() });
            }
            if Instant::now() > deadline {
                return Err(FleetError::NotReady { name: self.name.clone(), log: self.process.log() });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }
}

fn start_router(name: &str, ports: &Ports, shared: &[(&str, String)]) -> Result<Router, FleetError> {
    let local = |port: u16| format!("127.0.0.1:{port}");
    let own = [
        ("GRAPEVINE_LISTEN", local(ports.front)),
        ("GRAPEVINE_ADMIN_LISTEN", local(ports.admin)),
        ("GRAPEVINE_GOSSIP_LISTEN", local(ports.gossip)),
        ("GRAPEVINE_ROUTER_ID", name.to_owned()),
    ];
    let settings = own.iter().chain(shared).map(|(name, value)| ((*name).to_owned(), value.clone()));
    let process = Process::start(name, &["serve"], settings).map_err(FleetError::Start)?;
    let base = |port| format!("http://{}", local(port));
    Ok(Router { name: name.to_owned(), url: base(ports.front), admin: base(ports.admin), process })
}

fn free_ports() -> Result<Ports, FleetError> {
    let [front, admin] = free_tcp_ports().map_err(FleetError::Port)?;
    let gossip = free_udp_port().map_err(FleetError::Port)?;
    Ok(Ports { front, admin, gossip })
}
