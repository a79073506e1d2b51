//! Routers as processes of this binary.

use std::fs::File;
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use grapevine_node::admin::fleet_view::Fleet as FleetView;
use grapevine_testkit::load::ClientError;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::admin::AdminClient;

/// A router that is not ready by then will not be.
const READY_LIMIT: Duration = Duration::from_secs(30);

/// Limit of one question: the view goes on without a router that does not answer. Longer than a router
/// waits for its peers.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// Why the routers cannot be had.
#[derive(Debug, thiserror::Error)]
pub(super) enum FleetError {
    #[error("cannot find a free port")]
    Port(#[source] std::io::Error),
    #[error("cannot start a router")]
    Start(#[source] std::io::Error),
    #[error("router {name} is not ready; its log: {log}")]
    NotReady { name: String, log: String },
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// One router.
pub(super) struct Router {
    pub(super) name: String,
    pub(super) url: String,
    pub(super) admin: String,
    log: PathBuf,
    child: Child,
}

/// Routers that know each other.
pub(super) struct Fleet {
    pub(super) routers: Vec<Router>,
    admin: AdminClient,
}

struct Ports {
    front: u16,
    admin: u16,
    gossip: u16,
}

impl Fleet {
    /// Starts `count` routers in front of `replicas` and waits until they are ready.
    pub(super) async fn start(
        count: usize,
        policy: &str,
        replicas: &[String],
        tag: &str,
    ) -> Result<Self, FleetError> {
        let ports: Vec<Ports> = (0..count).map(|_| free_ports()).collect::<Result<_, _>>()?;
        let seeds: Vec<String> = ports.iter().map(|p| format!("127.0.0.1:{}", p.gossip)).collect();
        let shared = [
            ("GRAPEVINE_GOSSIP_SEEDS", seeds.join(",")),
            ("GRAPEVINE_REPLICAS", replicas.join(",")),
            ("GRAPEVINE_POLICY", policy.to_owned()),
            ("GRAPEVINE_CLUSTER_SECRET", format!("{:032x}", rand::random::<u128>())),
        ];
        let mut routers = Vec::new();
        for (i, ports) in ports.iter().enumerate() {
            routers.push(start_router(&format!("{tag}{}", i + 1), ports, &shared)?);
        }
        let fleet = Self { routers, admin: AdminClient::open(ASK_LIMIT)? };
        let deadline = Instant::now() + READY_LIMIT;
        for router in &fleet.routers {
            fleet.ready(router, deadline).await?;
        }
        Ok(fleet)
    }

    async fn ready(&self, router: &Router, deadline: Instant) -> Result<(), FleetError> {
        while !self.admin.is_ready(&router.admin).await {
            if Instant::now() > deadline {
                let log = std::fs::read_to_string(&router.log).unwrap_or_default();
                return Err(FleetError::NotReady { name: router.name.clone(), log });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// The fleet as the first router that answers sees it.
    pub(super) async fn view(&self) -> Option<FleetView> {
        for router in &self.routers {
            if let Ok(fleet) = self.admin.get(&router.admin, "/api/v1/fleet").await {
                return Some(fleet);
            }
        }
        None
    }

    /// Ends the routers.
    pub(super) async fn stop(mut self) {
        for router in &mut self.routers {
            // It may be gone already; then there is nothing to end.
            let _ = router.child.kill().await;
            let _ = std::fs::remove_file(&router.log);
        }
    }
}

fn start_router(name: &str, ports: &Ports, shared: &[(&str, String)]) -> Result<Router, FleetError> {
    let log = std::env::temp_dir().join(format!("grapevine-up-{}-{name}.log", std::process::id()));
    let local = |port: u16| format!("127.0.0.1:{port}");
    let settings = [
        ("GRAPEVINE_LISTEN", local(ports.front)),
        ("GRAPEVINE_ADMIN_LISTEN", local(ports.admin)),
        ("GRAPEVINE_GOSSIP_LISTEN", local(ports.gossip)),
        ("GRAPEVINE_ROUTER_ID", name.to_owned()),
    ];
    let inherited = std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with("GRAPEVINE_"));
    let child = Command::new(std::env::current_exe().map_err(FleetError::Start)?)
        .arg("serve")
        .env_clear()
        .envs(inherited)
        .envs(settings)
        .envs(shared.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&log).map_err(FleetError::Start)?)
        .kill_on_drop(true)
        .spawn()
        .map_err(FleetError::Start)?;
    let url = format!("http://{}", local(ports.front));
    Ok(Router { name: name.to_owned(), url, admin: format!("http://{}", local(ports.admin)), log, child })
}

/// Ports that nobody uses now. Routers must know each other's before they start, so they cannot
/// choose for themselves.
fn free_ports() -> Result<Ports, FleetError> {
    let tcp = || TcpListener::bind("127.0.0.1:0").and_then(|l| Ok((l.local_addr()?.port(), l)));
    let (front, _held) = tcp().map_err(FleetError::Port)?;
    let (admin, _held_too) = tcp().map_err(FleetError::Port)?;
    let gossip = UdpSocket::bind("127.0.0.1:0").and_then(|s| s.local_addr()).map_err(FleetError::Port)?;
    Ok(Ports { front, admin, gossip: gossip.port() })
}
