//! Counts what passes through a transport of the caller's, message by message.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{ChitchatMessage, Serializable};

use crate::counters::Counters;

/// A transport with counters.
pub(crate) struct Metered {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) counters: Arc<Counters>,
}

struct MeteredSocket {
    inner: Box<dyn Socket>,
    counters: Arc<Counters>,
}

#[async_trait]
impl Transport for Metered {
    async fn open(&self, listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let inner = self.inner.open(listen_addr).await?;
        Ok(Box::new(MeteredSocket { inner, counters: self.counters.clone() }))
    }
}

#[async_trait]
impl Socket for MeteredSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let len = message.serialized_len();
        self.counters.sent(len);
        self.counters.peers.sent(to, len);
        self.counters.message(len);
        self.inner.send(to, message).await
    }

    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        let (from, message) = self.inner.recv().await?;
        let len = message.serialized_len();
        self.counters.received(len);
        self.counters.peers.received(from, len);
        self.counters.message(len);
        Ok((from, message))
    }
}
