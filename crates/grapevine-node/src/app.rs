//! The one place that wires a router together, starts it, and ends it in good order.
//!
//! ```text
//! build: bind ports -> tree actor -> replica actor -> proxy -> mesh actor
//! run:   serve until told to stop
//!        -> not ready, still serving (drain_delay)
//!        -> accept no more, finish what runs (drain_timeout), end the rest
//!        -> leave gossip
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::Router;
use grapevine_mesh::{MeshError, MeshHandle};
use http::{HeaderMap, header};
use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::actors::replica::{Intervals, ProbeConfig};
use crate::actors::{replica, tree};
use crate::admin::access::Access;
use crate::admin::ask::Asker;
use crate::admin::heaviest::Weighed;
use crate::admin::survey::{Observatory, policy_name};
use crate::admin::warnings::Watchman;
use crate::admin::{self, Admin};
use crate::auth::{Gate, KeysError, bearer};
use crate::client;
use crate::clock::Clock;
use crate::config::Config;
use crate::discovery::{self, DiscoveryError};
use crate::mesh::{Fetcher, NodeHost, mesh_config};
use crate::metrics::scrape::Scrape;
use crate::metrics::{self, Metrics, PREFIX};
use crate::observe::history::History;
use crate::observe::log::{DecisionLog, Room};
use crate::proxy::admission::Admission;
use crate::proxy::hearing::Hearing;
use crate::proxy::stop::Stop;
use crate::proxy::{self, Proxy, Wiring};
use crate::replica::{ReplicaError, ReplicaSet};
use crate::server::{Server, room};
use crate::telemetry::{Exports, Exposition, Tracer};
use crate::tls::{self, Certificate, TlsError};

/// After the drain's end: time for the last error events to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Time between two looks whether sessions are over that no connection tells of.
const QUIET_CHECK: Duration = Duration::from_millis(50);

/// Time between two looks whether peers are heard.
const PEER_CHECK: Duration = Duration::from_millis(500);

/// Longest wait for the farewell to spread.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

/// What a router takes from outside besides its configuration.
#[derive(Clone)]
pub struct Deps {
    /// Time.
    pub clock: Clock,
    /// Of every random choice.
    pub seed: u64,
    /// Makes spans.
    pub tracer: Tracer,
    /// What becomes of exported telemetry.
    pub exports: Exports,
}

impl Default for Deps {
    fn default() -> Self {
        Self {
            clock: Clock::start(),
            seed: rand::random(),
            tracer: Tracer::off(),
            exports: Exports::default(),
        }
    }
}

/// What is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Public listener.
    pub front: SocketAddr,
    /// Admin listener.
    pub admin: SocketAddr,
    /// Gossip listener; `None` while its port is taken.
    pub gossip: Option<SocketAddr>,
}

/// Why a router cannot start.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A port cannot be bound.
    #[error("cannot listen on {setting}={addr}")]
    Bind {
        /// What names it.
        setting: &'static str,
        /// Which.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The replicas cannot be used as they are configured.
    #[error(transparent)]
    Replicas(#[from] ReplicaError),
    /// The client for engines cannot be made.
    #[error("cannot set up the HTTP client")]
    Client(#[from] reqwest::Error),
    /// The authorities trusted for replicas cannot be read.
    #[error("GRAPEVINE_ENGINE_CA cannot be used")]
    EngineCa(#[source] TlsError),
    /// The decision log cannot be written.
    #[error("cannot open GRAPEVINE_DECISION_LOG {path}")]
    DecisionLog {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A key that cannot be sent.
    #[error("GRAPEVINE_ENGINE_KEY holds characters that no header field may hold")]
    EngineKey,
    /// A source of replicas cannot be used.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// Clients' keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Gossip is configured in a way that cannot work.
    #[error("cannot start gossip")]
    Mesh(#[from] MeshError),
}

/// Why a router ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An actor ended before it was told to: a bug.
    #[error("the {0} ended unexpectedly")]
    ActorEnded(&'static str),
}

/// A router, built and not yet serving.
pub struct App {
    config: Config,
    front: Server,
    admin: Server,
    registry: Arc<Registry>,
    observatory: Arc<Observatory>,
    host: Arc<NodeHost>,
    mesh: MeshHandle,
    stop: Stop,
    tree_task: JoinHandle<()>,
    replica_task: JoinHandle<()>,
    /// Follow files; end when this is dropped.
    watchers: JoinSet<()>,
}

impl App {
    /// Binds, wires and starts everything but the accepting of requests.
    pub async fn build(config: Config, deps: Deps) -> Result<Self, BuildError> {
        let Deps { clock, seed, tracer, exports } = deps;
        let mut watchers = JoinSet::new();
        let gate = config.client_keys.as_deref().map(Gate::open).transpose()?;
        if let Some(gate) = gate.clone() {
            watchers.spawn(gate.watch());
        }
        let tls = certificate(&config)?;
        if let Some(certificate) = tls.clone() {
            watchers.spawn(certificate.watch());
        }
        let bind = async |setting, addr| bind(setting, addr, config.client_timeout).await;
        let front = bind("GRAPEVINE_LISTEN", config.listen).await?.with_room(room::of_clients());
        let front = front.with_tls(tls.as_ref().map(Certificate::acceptor));
        let admin = bind("GRAPEVINE_ADMIN_LISTEN", config.admin_listen).await?.with_room(room::of_admin());
        let replicas = Arc::new(ArcSwap::from_pointee(ReplicaSet::from_specs(&config.replicas)?));
        let client = engine_client(&config)?;
        let mut registry = Registry::default();
        let counts = Arc::new(Metrics::new(&mut registry, if tls.is_some() { "https" } else { "http" }));
        let (stop, draining) = (Stop::default(), Arc::<AtomicBool>::default());

        let (tree, tree_task) = tree::spawn(config.tree.clone(), clock);
        let probes = probe_config(&config, &client);
        let (replica_handle, replica_task) = replica::spawn(replicas, probes, tree.clone(), clock, seed);
        discovery::start(&config, &replica_handle, &mut watchers).await?;
        let hearing = Arc::<Hearing>::default();
        let wiring = Wiring {
            replicas: replica_handle.clone(),
            tree: tree.clone(),
            client,
            metrics: counts,
            clock,
            hearing: Arc::clone(&hearing),
            gate,
            stop: stop.clone(),
            draining: Arc::clone(&draining),
            tracer,
            log: decision_log(&config)?,
            seed,
        };
        let proxy = Arc::new(Proxy::new(&config, wiring));
        let host = Arc::new(NodeHost::new(tree.clone(), replica_handle.clone(), Fetcher::new()?));
        let admin_url = format!("http://{}", admin.addr());
        let mesh = grapevine_mesh::spawn(mesh_config(&config, admin_url), Arc::clone(&host)).await?;

        watchers.spawn(watch_peers(mesh.clone(), hearing));

        let observatory = Arc::new(Observatory {
            router_id: config.router_id.clone(),
            policy: config.policy,
            mode: config.mode,
            has_seeds: !config.gossip_seeds.is_empty(),
            exports,
            history: History::default(),
            watchman: Watchman::default(),
            asker: Asker::new(config.admin_token.as_ref())?,
            weighed: Weighed::default(),
            bytes_per_token: config.bytes_per_token,
            listen: front.addr(),
            admin_listen: admin.addr(),
            draining,
            clock,
            proxy,
            replicas: replica_handle,
            tree,
            mesh: mesh.clone(),
            answers_peers: config.cluster_secret.is_some() || admin.addr().ip().is_loopback(),
        });
        let sampled = Arc::clone(&observatory);
        watchers.spawn(async move { sampled.keep_history().await });
        let ours = registry.sub_registry_with_prefix(PREFIX);
        ours.register_collector(Box::new(Scrape(Arc::clone(&observatory))));
        Ok(Self {
            config,
            front,
            admin,
            registry: Arc::new(registry),
            observatory,
            host,
            mesh,
            stop,
            tree_task,
            replica_task,
            watchers,
        })
    }

    /// What is bound.
    pub fn addresses(&self) -> Addresses {
        Addresses { front: self.front.addr(), admin: self.admin.addr(), gossip: self.mesh.local_addr() }
    }

    /// What can be looked at, also while it runs.
    pub fn observatory(&self) -> Arc<Observatory> {
        Arc::clone(&self.observatory)
    }

    /// Gives the text of `/metrics`.
    pub fn exposition(&self) -> Exposition {
        let registry = Arc::clone(&self.registry);
        Arc::new(move || metrics::text(&registry))
    }

    /// Serves until `shutdown` completes, then drains. Fails when a part of the router ended by
    /// itself. Either way, and when it is dropped, everything has ended with it.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        self.announce();
        let observatory = self.observatory;
        let (close, closed) = oneshot::channel::<()>();
        let front = Router::new().fallback(proxy::handle).with_state(Arc::clone(&observatory.proxy));
        let front = tokio::spawn(self.front.run(front, async move {
            let _ = closed.await;
        }));
        let access = Access::new(self.config.admin_token.as_ref(), self.admin.addr());
        let (shown, limit) = (Arc::clone(&observatory), self.config.body_limit);
        let admin = admin::router(Admin::new(shown, self.registry, access, limit));
        let admin = tokio::spawn(self.admin.run(admin, std::future::pending()));
        let _watchers = self.watchers;
        let mesh = self.mesh.clone();
        let mut parts = Parts { front, admin, tree: self.tree_task, replica: self.replica_task, mesh };
        let ended = tokio::select! {
            () = shutdown => None,
            part = parts.first_to_end() => Some(part),
        };
        observatory.draining.store(true, Relaxed);
        if let Some(part) = ended {
            tracing::error!(part, "a part of the router ended unexpectedly; shutting down");
            return Err(RunError::ActorEnded(part));
        }
        tracing::info!("draining: not ready, still serving");
        self.host.drain();
        sleep(self.config.drain_delay).await;
        let _ = close.send(());
        drain(&mut parts.front, &observatory.proxy.admission, self.config.drain_timeout, &self.stop).await;
        if timeout(LEAVE_LIMIT, self.mesh.leave()).await.is_err() {
            tracing::warn!("gossip did not end in time");
        }
        tracing::info!("stopped");
        Ok(())
    }

    fn announce(&self) {
        let Addresses { front, admin, gossip } = self.addresses();
        let gossip = gossip.map(tracing::field::display);
        tracing::info!(
            router_id = self.config.router_id,
            listen = %front,
            admin_listen = %admin,
            gossip_listen = gossip,
            policy = policy_name(self.config.policy),
            replicas = self.config.replicas.len(),
            "router is up"
        );
        for warning in self.config.warnings() {
            tracing::warn!("{warning}");
        }
    }
}

/// The tasks whose end ends the router, and that end with it.
struct Parts {
    front: JoinHandle<()>,
    admin: JoinHandle<()>,
    tree: JoinHandle<()>,
    replica: JoinHandle<()>,
    mesh: MeshHandle,
}

impl Parts {
    async fn first_to_end(&mut self) -> &'static str {
        tokio::select! {
            _ = &mut self.front => "public listener",
            _ = &mut self.admin => "admin listener",
            _ = &mut self.tree => "tree actor",
            _ = &mut self.replica => "replica actor",
            () = self.mesh.stopped() => "mesh actor",
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for task in [&self.front, &self.admin, &self.tree, &self.replica] {
            task.abort();
        }
    }
}

/// Waits for running requests, WebSocket sessions too; after `limit` they are ended, with an error that their
/// API knows.
async fn drain(front: &mut JoinHandle<()>, places: &Admission, limit: Duration, stop: &Stop) {
    let mut quiet = pin!(async {
        let _ = front.await;
        while places.inflight() > 0 {
            sleep(QUIET_CHECK).await;
        }
    });
    if timeout(limit, &mut quiet).await.is_ok() {
        return;
    }
    tracing::warn!("the drain's time is over; ending what still runs");
    stop.stop();
    let _ = timeout(LAST_WORDS, quiet).await;
}

/// Notes whether every router that was met and is not going away is heard, and how far the news of those that
/// are is behind.
async fn watch_peers(mesh: MeshHandle, hearing: Arc<Hearing>) {
    let mut looks = interval(PEER_CHECK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let status = mesh.status();
        let heard = status.peers.iter().all(|peer| peer.live || peer.draining);
        let lag = status.peers.iter().filter(|peer| peer.live).map(|peer| peer.lag_ms).max();
        hearing.note(heard, lag.unwrap_or_default());
    }
}

async fn bind(setting: &'static str, addr: SocketAddr, patience: Duration) -> Result<Server, BuildError> {
    let bound = Server::bind(addr).await.map(|server| server.with_patience(patience));
    bound.map_err(|source| BuildError::Bind { setting, addr, source })
}

fn decision_log(config: &Config) -> Result<Option<DecisionLog>, BuildError> {
    let Some(path) = config.decision_log.clone() else { return Ok(None) };
    let room = Room { path, max_bytes: config.decision_log_bytes as u64, files: config.decision_log_files };
    let opened = DecisionLog::open(&room, &config.router_id);
    opened.map(Some).map_err(|source| BuildError::DecisionLog { path: room.path, source })
}

fn probe_config(config: &Config, client: &reqwest::Client) -> ProbeConfig {
    let intervals = Intervals {
        probe: config.health_interval,
        metrics: config.metrics_interval,
        models: config.models_interval,
    };
    ProbeConfig {
        intervals,
        timeout: config.health_timeout,
        client: client.clone(),
        pool_idle: config.pool_idle_timeout,
        names: Arc::new(config.metric_names.clone()),
        kind: config.engine_kind,
        assumed_capacity: config.tree.default_capacity_tokens,
    }
}

/// The public listener's certificate, if it is to have one.
fn certificate(config: &Config) -> Result<Option<Certificate>, TlsError> {
    match (&config.tls_cert, &config.tls_key) {
        (Some(cert), Some(key)) => Certificate::open(cert, key).map(Some),
        _ => Ok(None),
    }
}

/// One client for all engines. What reqwest does by default and must not do here: honour proxy
/// variables, follow redirects, keep idle connections longer than engines do, decode bodies (its
/// features are off), end an answer by a total timeout. What it sends again by itself is what an HTTP/2
/// engine says it has not taken up, and that is right.
fn engine_client(config: &Config) -> Result<reqwest::Client, BuildError> {
    let mut builder = client::builder()
        .connect_timeout(config.connect_timeout)
        .pool_idle_timeout(config.pool_idle_timeout)
        .pool_max_idle_per_host(usize::MAX)
        .tcp_nodelay(true);
    builder = if config.engine_http2 {
        builder.http2_prior_knowledge()
    } else {
        // HTTP/1.1 cannot say so, and to be ready for it costs a copy of every request's head.
        builder.http1_only().retry(reqwest::retry::never())
    };
    if let Some(path) = &config.engine_ca {
        let pem = tls::authorities(path).map_err(BuildError::EngineCa)?;
        builder = builder.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem)?);
    }
    if let Some(key) = &config.engine_key {
        let key = bearer(key).map_err(|_| BuildError::EngineKey)?;
        builder = builder.default_headers(HeaderMap::from_iter([(header::AUTHORIZATION, key)]));
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_actor_that_ends_by_itself_ends_the_router() {
        let config = Config::local("a", Vec::new());
        let app = App::build(config, Deps::default()).await.unwrap();
        let front = app.addresses().front;
        app.tree_task.abort();
        let ended = app.run(std::future::pending()).await;
        assert!(matches!(ended, Err(RunError::ActorEnded("tree actor"))));
        // Nothing of it is left, so its port becomes free.
        while Server::bind(front).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn replicas_of_a_file_are_known_before_a_request_can_come() {
        let path = std::env::temp_dir().join(format!("grapevine-app-{}.yaml", std::process::id()));
        std::fs::write(&path, "replicas: [http://127.0.0.1:1]").unwrap();
        let config = Config { replicas_file: Some(path.clone()), ..Config::local("a", Vec::new()) };
        let app = App::build(config, Deps::default()).await.unwrap();
        std::fs::remove_file(path).unwrap();
        assert_eq!(app.observatory().status().replicas.len(), 1);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = Server::bind(Config::local("a", Vec::new()).listen).await.unwrap();
        let config = Config { listen: taken.addr(), ..Config::local("a", Vec::new()) };
        let error = App::build(config, Deps::default()).await.err().unwrap();
        assert_eq!(error.to_string(), format!("cannot listen on GRAPEVINE_LISTEN={}", taken.addr()));
    }
}
