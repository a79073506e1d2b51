//! Talks to the mesh actor.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot, watch};

use crate::codec::{Ask, CodecError, decode_ask};
use crate::counters::Counters;
use crate::exchange::{Exchange, Salt};
use crate::status::MeshStatus;

/// Below a peer's admin address: where [`Host::fetch`](crate::Host::fetch) posts, and
/// [`MeshHandle::answer`] answers.
pub const EXCHANGE_PATH: &str = "/internal/v1/mesh";

/// Longest question, in bytes, its seal included.
pub const MAX_QUESTION_BYTES: usize = 2 * 1024;

/// Commands and questions waiting. Questions beyond it are refused: their askers have others to ask.
pub(crate) const MAILBOX: usize = 32;

/// Why a question was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Not sealed by this fleet.
    #[error("not sealed by this fleet")]
    Foreign,
    /// Asked before.
    #[error("asked before")]
    Replayed,
    /// Meant for another router.
    #[error("meant for another router")]
    Misdirected,
    /// Of another wire version or hash scheme, or no question.
    #[error("not understood")]
    Malformed,
    /// This router knows nothing yet itself.
    #[error("joining")]
    Joining,
    /// Too much to do, or stopped.
    #[error("busy")]
    Busy,
}

impl Refused {
    pub(crate) const ALL: [(Self, &'static str); 6] = [
        (Self::Foreign, "foreign"),
        (Self::Replayed, "replayed"),
        (Self::Misdirected, "misdirected"),
        (Self::Malformed, "malformed"),
        (Self::Joining, "joining"),
        (Self::Busy, "busy"),
    ];

    /// Status that says so over HTTP.
    pub const fn status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Foreign | Self::Replayed => 403,
            Self::Misdirected => 421,
            Self::Joining => 425,
            Self::Busy => 503,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Msg {
    Leave(oneshot::Sender<()>),
    Ask { ask: Ask, salt: Salt, reply: Reply },
}

/// Where the answer to a question goes.
pub(crate) type Reply = oneshot::Sender<Result<Vec<u8>, Refused>>;

/// Talks to the mesh actor. When the last clone is gone, gossip stops without a farewell.
#[derive(Clone)]
pub struct MeshHandle {
    pub(crate) commands: mpsc::Sender<Msg>,
    pub(crate) local: watch::Receiver<Option<SocketAddr>>,
    pub(crate) joined: watch::Receiver<bool>,
    pub(crate) status: Arc<ArcSwap<MeshStatus>>,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) counters: Arc<Counters>,
}

impl std::fmt::Debug for MeshHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MeshHandle").field("local", &self.local_addr()).finish_non_exhaustive()
    }
}

impl MeshHandle {
    /// The UDP address gossip is bound to; `None` while it could not be bound.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        *self.local.borrow()
    }

    /// The mesh at its last tick.
    pub fn status(&self) -> Arc<MeshStatus> {
        self.status.load_full()
    }

    /// Whether this router knows what its peers know, or waited long enough for it.
    pub fn is_joined(&self) -> bool {
        *self.joined.borrow()
    }

    /// Resolves when [`Self::is_joined`], or when the actor has stopped.
    pub async fn joined(&self) {
        let _ = self.joined.clone().wait_for(|joined| *joined).await;
    }

    /// Ask: answers a peer's question, which came as these bytes. Never waits for a full mailbox.
    pub async fn answer(&self, question: &[u8]) -> Result<Vec<u8>, Refused> {
        let answer = self.try_answer(question).await;
        match &answer {
            Ok(bytes) => self.counters.answered(bytes.len()),
            Err(refused) => self.counters.refused(*refused),
        }
        answer
    }

    async fn try_answer(&self, question: &[u8]) -> Result<Vec<u8>, Refused> {
        if question.len() > MAX_QUESTION_BYTES {
            return Err(Refused::Malformed);
        }
        let opened = self.exchange.open(question).map_err(|_| Refused::Foreign)?;
        let ask = decode_ask(&opened.body).map_err(|_: CodecError| Refused::Malformed)?;
        let (reply, answer) = oneshot::channel();
        let msg = Msg::Ask { ask, salt: opened.salt, reply };
        self.commands.try_send(msg).map_err(|_| Refused::Busy)?;
        let body = answer.await.map_err(|_| Refused::Busy)??;
        Ok(self.exchange.answer(&opened, &body))
    }

    /// Must: tells peers that this router goes away, gives that a few ticks to spread, and stops.
    pub async fn leave(&self) {
        let (done, stopped) = oneshot::channel();
        // Either error means that the actor has stopped already.
        if self.commands.send(Msg::Leave(done)).await.is_ok() {
            let _ = stopped.await;
        }
    }

    /// Resolves when the actor has stopped. Before [`leave`](Self::leave) was called, that is a bug.
    pub async fn stopped(&self) {
        self.commands.closed().await;
    }
}
