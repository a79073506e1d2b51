//! How the actor begins: with everything it needs, and anew should it panic.
//!
//! A router without gossip serves alone, so a mistake here must not end it: after a panic the actor forgets all
//! it knew of its peers and begins again, as a process that started anew would, and takes a snapshot. Its
//! status says `running: false` meanwhile, and counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use chitchat::transport::Transport;
use grapevine_tree::RouterId;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::error;

use super::Mesh;
use super::namesake::NamesakeTicks;
use super::pace::Strain;
use crate::Host;
use crate::answer::Asked;
use crate::ask::Asker;
use crate::config::{MeshConfig, MeshError};
use crate::counters::Counters;
use crate::exchange::Exchange;
use crate::fleet::Fleet;
use crate::handle::{MAILBOX, MeshHandle};
use crate::join::Joiner;
use crate::log::Log;
use crate::net::direct::{Direct, INBOX};
use crate::net::metered::Metered;
use crate::outbox::Outbox;
use crate::port::Port;
use crate::pull::Puller;
use crate::seeds::{self, Dialler};
use crate::seen::Vectors;
use crate::status::{MeshStatus, MeshTotals};

/// Pause before the actor begins anew at first; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest such pause. What makes it panic may come from a peer, every time.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Starts gossip over UDP. Fails only for a configuration that cannot work; see [`MeshError`].
pub async fn spawn<H: Host>(config: MeshConfig, host: Arc<H>) -> Result<MeshHandle, MeshError> {
    config.check()?;
    config.check_udp()?;
    let counters = Arc::new(Counters::default());
    let mut port = Port::udp();
    let bound = port.bind(&config, &counters).await;
    if let Some(bound) = bound {
        config.advertised(bound)?;
    }
    Ok(start(config, host, port, bound, counters))
}

/// Starts gossip over a transport of the caller's: a simulated network. Its datagrams are not sealed,
/// and `listen` must be the very address at which peers reach this router there. Without `direct` all goes
/// through chitchat.
pub fn spawn_with_transport<H: Host>(
    config: MeshConfig,
    host: Arc<H>,
    transport: Arc<dyn Transport>,
    direct: Option<Arc<dyn Direct>>,
) -> Result<MeshHandle, MeshError> {
    config.check()?;
    let counters = Arc::new(Counters::default());
    let transport = Arc::new(Metered { inner: transport, counters: counters.clone() });
    let port = Port::Given { transport, direct };
    let listen = config.listen;
    Ok(start(config, host, port, Some(listen), counters))
}

fn start<H: Host>(
    config: MeshConfig,
    host: Arc<H>,
    port: Port,
    bound: Option<SocketAddr>,
    counters: Arc<Counters>,
) -> MeshHandle {
    let (sender, commands) = mpsc::channel(MAILBOX);
    let (words_sender, words) = mpsc::channel(INBOX);
    let (local, local_watch) = watch::channel(bound);
    let joiner = Joiner::new(config.join_timeout, !config.seeds.is_empty());
    let (joined, joined_watch) = watch::channel(joiner.is_ready());
    let status = Arc::new(ArcSwap::from_pointee(MeshStatus::default()));
    let exchange = Arc::new(Exchange::new(&config));
    let generation = config.generation.unwrap_or_else(unix_ms);
    let mut rng = SmallRng::seed_from_u64(config.seed.unwrap_or_else(rand::random));
    let id = RouterId::of_name(&config.router_name);
    let mesh = Mesh {
        seeds: seeds::watch(&config.seeds),
        dialler: Dialler::default(),
        outbox: Outbox::new(id, generation, config.interval),
        fleet: Fleet::new(),
        log: Log::default(),
        puller: Puller::new(config.repair_grace(port.is_direct())),
        vectors: Vectors::new(config.interval, rng.random_range(0.0..1.0)),
        joiner,
        missed: BTreeMap::new(),
        lacking: BTreeSet::new(),
        lacking_since: None,
        strain: Strain::new(config.interval),
        rng,
        id,
        asker: Asker { host: host.clone(), exchange: exchange.clone() },
        errands: JoinSet::new(),
        answers: JoinSet::new(),
        asked: Asked::default(),
        config,
        host,
        port,
        local,
        joined,
        status: status.clone(),
        counters: counters.clone(),
        commands,
        words,
        words_sender,
        load_at: Instant::now(),
        turns: Arc::default(),
        revisited: BTreeSet::new(),
        leaving: None,
        collecting: None,
        generation,
        namesake: NamesakeTicks::default(),
        peers: BTreeMap::new(),
        totals: MeshTotals::default(),
        started: Instant::now(),
    };
    tokio::spawn(mesh.live());
    MeshHandle { commands: sender, local: local_watch, joined: joined_watch, status, exchange, counters }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl<H: Host> Mesh<H> {
    /// Runs until it is to stop, whatever happens.
    async fn live(mut self) {
        let mut pause = FIRST_PAUSE;
        while !caught(self.run()).await {
            error!(router = %self.config.router_name, again_after = ?pause, "gossip failed, routing goes on");
            self.begin_anew();
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Forgets everything but who it is, as it may be half done.
    fn begin_anew(&mut self) {
        self.totals.restarts += 1;
        self.generation = self.generation.saturating_add(1);
        self.outbox = Outbox::new(self.id, self.generation, self.config.interval);
        self.fleet = Fleet::new();
        self.log = Log::default();
        self.puller = Puller::new(self.config.repair_grace(self.port.is_direct()));
        self.vectors = Vectors::new(self.config.interval, self.rng.random_range(0.0..1.0));
        // Ready, and in want of a snapshot.
        self.joiner = Joiner::new(Duration::ZERO, true);
        self.missed.clear();
        self.lacking.clear();
        self.lacking_since = None;
        self.strain = Strain::new(self.config.interval);
        self.namesake = NamesakeTicks::default();
        self.peers.clear();
        self.errands = JoinSet::new();
        self.answers = JoinSet::new();
        self.collecting = None;
        self.publish_status(None);
    }
}

/// Whether a future came to its end; false if it panicked.
async fn caught(future: impl Future<Output = ()>) -> bool {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        // What it left half done is thrown away by who calls this.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(())) => Poll::Ready(true),
            Err(_) => Poll::Ready(false),
        }
    })
    .await
}
