//! The replica actor: owns the set of replicas, their health verdicts and epochs, and what peers
//! said of their load.
//!
//! ```text
//! mesh host -- tell report --> +--------------+ --> ReplicaSet snapshot (request actors read it)
//! requests -- tell answered -> |              |
//! probes ----- results ------> | ReplicaActor | --> must forget, must remove, must set_capacity,
//! looks, asks ---- results --> |              |     tell peer_tokens (tree actor)
//! sources ---- must found ---> |              |
//! admin API -- ask order ----> |              |
//! tick ----------------------> +--------------+
//! ```
//!
//! Request actors write load and passive health straight into the snapshot's atomics; this actor
//! turns them into verdicts, epochs and decay a few times a second.

mod asks;
mod book;
mod lessons;
mod looks;
mod members;
mod probe;

use std::sync::Arc;
use std::time::{Duration, Instant};

use grapevine_mesh::{LoadReport, ReplicaEpoch};
use grapevine_route::Answer;
use grapevine_tree::{ReplicaId, RouterId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::mailbox::{Gauges, Mailbox, MailboxView};
use super::tree::TreeHandle;
use crate::clock::Clock;
use crate::discovery::{Finding, Order, OrderError, Source};
use crate::engine::models::{self, Models, Unlisted};
use crate::engine::{Kind, Look, Names, ScrapeError, scrape};
use crate::replica::health::Probe;
use crate::replica::{Replica, SharedReplicas};
use book::{Book, Effects};

/// Reports that may wait: a few ticks of a fleet of hundreds.
const MAILBOX: usize = 1_024;

/// Messages taken at one wake-up.
const BURST: usize = 64;

/// Time between two refreshes. Peers' load is worth having only while it is at most 0.25 s old.
const TICK: Duration = Duration::from_millis(100);

/// How replicas are probed and looked at.
#[derive(Clone, Debug)]
pub struct ProbeConfig {
    /// When.
    pub intervals: Intervals,
    /// Limit of one probe.
    pub timeout: Duration,
    /// Asks the replicas.
    pub client: reqwest::Client,
    /// Unused connections to engines are closed after this.
    pub pool_idle: Duration,
    /// Metrics that an operator names.
    pub names: Arc<Names>,
    /// What replicas are of which nobody says so; `None`: that is found out.
    pub kind: Option<Kind>,
    /// Tokens that a cache is assumed to hold, until something better is known.
    pub assumed_capacity: u64,
}

/// Times between two questions to a replica.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// Between two probes of a healthy one.
    pub probe: Duration,
    /// Between two looks at its metrics; zero = never.
    pub metrics: Duration,
    /// Between two questions for its models; zero = never.
    pub models: Duration,
}

/// Speaks to the replica actor.
#[derive(Clone, Debug)]
pub struct ReplicaHandle {
    mailbox: Mailbox<Msg>,
    replicas: SharedReplicas,
}

/// What one peer said of the replicas.
#[derive(Clone, Debug)]
pub struct PeerReport {
    /// Who said it.
    pub origin: RouterId,
    /// Its token counts start again from 0.
    pub restarted: bool,
    /// Its whole load now, if it said.
    pub loads: Option<Vec<LoadReport>>,
    /// Epochs it knows.
    pub epochs: Vec<ReplicaEpoch>,
}

/// An answer of a replica, and what had been expected of it.
#[derive(Clone, Copy, Debug)]
pub struct AnswerReport {
    /// Who answered.
    pub replica: ReplicaId,
    /// Its cache generation when the request was sent there.
    pub epoch: u32,
    /// What was expected, and what came.
    pub answer: Answer,
}

impl ReplicaHandle {
    /// Tell: what a peer said.
    pub fn report(&self, report: PeerReport) {
        self.mailbox.try_send(Msg::Report(report));
    }

    /// Tell: an answer said what was cached.
    pub fn answered(&self, report: AnswerReport) {
        self.mailbox.try_send(Msg::Answered(report));
    }

    /// Tell: somebody asked for a model that nobody serves.
    pub fn model_missed(&self) {
        self.mailbox.try_send(Msg::ModelMissed);
    }

    /// Must: what a source of replicas found.
    pub(crate) async fn found(&self, source: Source, finding: Finding) {
        self.mailbox.send(Msg::Found { source, finding }).await;
    }

    /// Ask, and must: an operator's order; the replica as it is then, if it is still there. `None` when
    /// the router is going down.
    pub(crate) async fn order(&self, order: Order) -> Option<Result<Option<Arc<Replica>>, OrderError>> {
        let (reply, done) = oneshot::channel();
        self.mailbox.send(Msg::Order { order, reply }).await;
        done.await.ok()
    }

    /// Must: resolves when everything told before has been carried out, also in the tree.
    pub async fn settled(&self) {
        let (reply, settled) = oneshot::channel();
        self.mailbox.send(Msg::Settle(reply)).await;
        let _ = settled.await;
    }

    /// The current set.
    pub fn replicas(&self) -> &SharedReplicas {
        &self.replicas
    }

    /// The mailbox's figures.
    pub fn mailbox(&self) -> MailboxView {
        self.mailbox.view()
    }
}

#[derive(Debug)]
enum Msg {
    Report(PeerReport),
    Answered(AnswerReport),
    Settle(oneshot::Sender<()>),
    ModelMissed,
    Found { source: Source, finding: Finding },
    Order { order: Order, reply: oneshot::Sender<Result<Option<Arc<Replica>>, OrderError>> },
}

struct ReplicaActor {
    book: Book,
    /// Who waits until what was told before is carried out.
    settling: Vec<oneshot::Sender<()>>,
    probes: JoinSet<(ReplicaId, Probe)>,
    looks: JoinSet<(ReplicaId, Result<Look, ScrapeError>)>,
    asks: JoinSet<(ReplicaId, Result<Models, Unlisted>)>,
    config: ProbeConfig,
    tree: TreeHandle,
    clock: Clock,
    gauges: Arc<Gauges>,
}

/// Starts the actor. It ends when every handle is gone.
pub fn spawn(
    replicas: SharedReplicas,
    config: ProbeConfig,
    tree: TreeHandle,
    clock: Clock,
    seed: u64,
) -> (ReplicaHandle, JoinHandle<()>) {
    let (mailbox, inbox, gauges) = Mailbox::new(MAILBOX);
    let book = Book::new(Arc::clone(&replicas), &config, seed);
    let actor = ReplicaActor {
        book,
        settling: Vec::new(),
        probes: JoinSet::new(),
        looks: JoinSet::new(),
        asks: JoinSet::new(),
        config,
        tree,
        clock,
        gauges,
    };
    (ReplicaHandle { mailbox, replicas }, tokio::spawn(actor.run(inbox)))
}

impl ReplicaActor {
    async fn run(mut self, mut inbox: mpsc::Receiver<Msg>) {
        let mut burst = Vec::with_capacity(BURST);
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let effects = tokio::select! {
                received = inbox.recv_many(&mut burst, BURST) => match received {
                    0 => return,
                    _ => self.on_messages(&mut burst),
                },
                Some(Ok((id, found))) = self.probes.join_next() => {
                    self.book.probed(id, found, self.clock.now());
                    Effects::default()
                }
                Some(Ok((id, found))) = self.looks.join_next() => {
                    let mut effects = Effects::default();
                    self.book.looked(id, found, self.clock.now(), &mut effects);
                    effects
                }
                Some(Ok((id, found))) = self.asks.join_next() => {
                    self.book.listed(id, found, self.clock.now());
                    Effects::default()
                }
                _ = tick.tick() => self.on_tick(),
            };
            self.carry_out(effects).await;
        }
    }

    fn on_messages(&mut self, burst: &mut Vec<Msg>) -> Effects {
        let began = Instant::now();
        let (now, count) = (self.clock.now(), burst.len() as u64);
        let mut effects = Effects::default();
        for message in burst.drain(..) {
            match message {
                Msg::Report(report) => self.book.report(report, now, &mut effects),
                Msg::Answered(report) => self.book.answered(&report, now, &mut effects),
                Msg::ModelMissed => self.book.model_missed(),
                Msg::Settle(reply) => self.settling.push(reply),
                Msg::Found { source, finding } => self.book.found(source, finding, &mut effects),
                Msg::Order { order, reply } => drop(reply.send(self.book.order(order, &mut effects))),
            }
        }
        self.gauges.progress(now, count, began.elapsed());
        effects
    }

    fn on_tick(&mut self) -> Effects {
        let began = Instant::now();
        let now = self.clock.now();
        for replica in self.book.due_probes(now) {
            self.probes.spawn(probe::probe(self.config.client.clone(), replica, self.config.timeout));
        }
        for replica in self.book.due_looks(now) {
            let client = self.config.client.clone();
            let names = Arc::clone(&self.config.names);
            self.looks.spawn(async move { (replica.id, scrape(&client, &replica, &names).await) });
        }
        for replica in self.book.due_asks(now) {
            let client = self.config.client.clone();
            self.asks.spawn(async move { (replica.id, models::ask(&client, &replica).await) });
        }
        let mut effects = Effects::default();
        self.book.tick(now, &mut effects);
        self.gauges.progress(now, 0, began.elapsed());
        effects
    }

    /// The tree never waits for this actor, so waiting for room in its mailbox cannot deadlock.
    async fn carry_out(&mut self, effects: Effects) {
        for (replica, epoch) in effects.forget {
            self.tree.forget(replica, epoch).await;
        }
        for (replica, tokens) in effects.capacity {
            self.tree.set_capacity(replica, tokens).await;
        }
        for replica in effects.remove {
            self.tree.remove(replica).await;
        }
        if !effects.growth.is_empty() {
            self.tree.peer_tokens(effects.growth);
        }
        for settled in self.settling.drain(..) {
            let _ = settled.send(());
        }
    }
}
