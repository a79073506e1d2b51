//! Of two routers only one begins: an exchange brings both level, so whoever was just brought level has no need to.
//!
//! chitchat lets each router begin with three others each time. In a fleet of four that is every pair twice.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use chitchat::ChitchatMessage;
use chitchat::transport::{Socket, Transport};
use tokio::time::Instant;

/// When exchanges ended that peers had begun.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    rest: Duration,
    ended: Mutex<BTreeMap<SocketAddr, Instant>>,
}

impl Turns {
    /// For a chitchat that gossips every `exchange`. Three quarters of it: of two clocks the one that is ahead by less
    /// than that leads, and goes on leading whatever the jitter.
    pub(crate) fn new(exchange: Duration) -> Self {
        Self { rest: exchange * 3 / 4, ended: Mutex::default() }
    }

    /// The next exchange with `peer` is to be begun whatever it began.
    pub(crate) fn take(&self, peer: SocketAddr) {
        self.ended().remove(&peer);
    }

    fn is_resting(&self, peer: SocketAddr) -> bool {
        self.ended().get(&peer).is_some_and(|at| at.elapsed() < self.rest)
    }

    fn note(&self, peer: SocketAddr) {
        let mut ended = self.ended();
        ended.retain(|_, at| at.elapsed() < self.rest);
        ended.insert(peer, Instant::now());
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Instant>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transport on which turns are taken.
pub(crate) struct InTurns {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) turns: Arc<Turns>,
}

struct InTurnsSocket {
    inner: Box<dyn Socket>,
    turns: Arc<Turns>,
}

#[async_trait]
impl Transport for InTurns {
    async fn open(&self, listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let inner = self.inner.open(listen_addr).await?;
        Ok(Box::new(InTurnsSocket { inner, turns: self.turns.clone() }))
    }
}

#[async_trait]
impl Socket for InTurnsSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        if matches!(message, ChitchatMessage::Syn { .. }) && self.turns.is_resting(to) {
            return Ok(());
        }
        self.inner.send(to, message).await
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        let (from, message) = self.inner.recv().await?;
        // The last of three messages: both have what the other had, as far as it fits.
        if matches!(message, ChitchatMessage::Ack { .. }) {
            self.turns.note(from);
        }
        Ok((from, message))
    }
}
