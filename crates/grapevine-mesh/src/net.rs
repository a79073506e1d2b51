//! Gossip over UDP: a chitchat transport whose datagrams are sealed, or plain on loopback.
//!
//! ```text
//! chitchat's server task --send--> pack -> cut -> seal -> one bound UDP socket
//!                        <--recv-- unpack <- reassemble <- open <-'
//! ```
//!
//! The socket outlives chitchat's task: it is bound once, and a restarted task opens it again with a
//! new salt, tag and counters. Whatever arrives, `recv` neither fails nor panics for it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{ChitchatMessage, Deserializable, Serializable};
use tokio::net::UdpSocket;
use tracing::trace;

use crate::config::MeshConfig;
use crate::counters::{Counters, DatagramReject as Reject};

mod frame;
mod header;
pub(crate) mod metered;
mod plain;
mod replay;
mod seal;

/// Socket buffers to ask for, in bytes. The default of 208 KiB drops bursts of a fleet of 32; the
/// system may grant less.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// Longest datagram that UDP has.
const RECEIVE_BYTES: usize = 65_536;

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The last piece of a packed message.
    Message(Vec<u8>),
    /// A question that is to be answered, or data that was meant for someone else.
    Answer { datagram: Vec<u8>, to: SocketAddr, misdirected: bool },
    /// Nothing yet.
    Nothing,
}

enum Wire {
    Plain(plain::Plain),
    Sealed(Box<seal::Sealed>),
}

/// Opens gossip on one bound UDP socket.
pub(crate) struct UdpGossip {
    udp: Arc<UdpSocket>,
    secrets: Vec<Vec<u8>>,
    cluster_id: String,
    counters: Arc<Counters>,
}

impl UdpGossip {
    /// Binds the socket.
    pub(crate) async fn bind(config: &MeshConfig, counters: Arc<Counters>) -> io::Result<Self> {
        let udp = UdpSocket::bind(config.listen).await?;
        let socket = socket2::SockRef::from(&udp);
        // Best effort: smaller buffers lose bursts, which gossip repairs.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER);
        let previous = config.secret.as_ref().and(config.previous_secret.as_ref());
        let secrets = config.secret.iter().chain(previous).cloned().collect();
        Ok(Self { udp: Arc::new(udp), secrets, cluster_id: config.cluster_id.clone(), counters })
    }

    /// The address that was bound.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }
}

#[async_trait]
impl Transport for UdpGossip {
    async fn open(&self, _listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        let wire = if self.secrets.is_empty() {
            Wire::Plain(plain::Plain::new(&self.cluster_id))
        } else {
            let secrets = self.secrets.iter().map(Vec::as_slice);
            Wire::Sealed(Box::new(seal::Sealed::new(secrets, &self.cluster_id)))
        };
        let buffer = vec![0; RECEIVE_BYTES].into_boxed_slice();
        Ok(Box::new(GossipSocket { udp: self.udp.clone(), wire, buffer, counters: self.counters.clone() }))
    }
}

struct GossipSocket {
    udp: Arc<UdpSocket>,
    wire: Wire,
    buffer: Box<[u8]>,
    counters: Arc<Counters>,
}

#[async_trait]
impl Socket for GossipSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let bytes = message.serialize_to_vec();
        self.counters.message(bytes.len());
        let packed = frame::pack(&bytes);
        let datagrams = match &mut self.wire {
            Wire::Plain(plain) => plain.write(&packed),
            Wire::Sealed(sealed) => sealed.write(&packed, to),
        };
        for datagram in datagrams {
            match self.udp.send_to(&datagram, to).await {
                Ok(_) => self.counters.sent(datagram.len()),
                Err(error) => {
                    // The peer is unreachable or a buffer is full; the next tick tries again.
                    self.counters.send_failed();
                    trace!(%to, %error, "gossip datagram not sent");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Cancel-safe: the only await is on `recv_from`, and what it brings is kept in `self`.
    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            let (len, from) = match self.udp.recv_from(&mut self.buffer).await {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error).context("gossip socket"),
            };
            self.counters.received(len);
            match self.take(len, from) {
                Ok(Some(message)) => return Ok((from, message)),
                Ok(None) => {}
                Err(reject) => {
                    self.counters.reject_datagram(reject);
                    trace!(%from, len, ?reject, "gossip datagram dropped");
                }
            }
        }
    }
}

impl GossipSocket {
    fn take(&mut self, len: usize, from: SocketAddr) -> Result<Option<ChitchatMessage>, Reject> {
        let datagram = self.buffer.get(..len).unwrap_or_default();
        let (outcome, given_up) = match &mut self.wire {
            Wire::Plain(plain) => (plain.read(datagram, from), plain.take_given_up()),
            Wire::Sealed(sealed) => (sealed.read(datagram, from), sealed.take_given_up()),
        };
        for _ in 0..given_up {
            self.counters.reject_datagram(Reject::Incomplete);
        }
        match outcome? {
            Outcome::Message(packed) => self.parse(&packed).map(Some),
            Outcome::Nothing => Ok(None),
            Outcome::Answer { datagram, to, misdirected } => {
                if self.udp.try_send_to(&datagram, to).is_ok() {
                    self.counters.sent(datagram.len());
                }
                if misdirected { Err(Reject::Misdirected) } else { Ok(None) }
            }
        }
    }

    fn parse(&self, packed: &[u8]) -> Result<ChitchatMessage, Reject> {
        let bytes = frame::unpack(packed).ok_or(Reject::Damaged)?;
        self.counters.message(bytes.len());
        let mut rest = bytes.as_slice();
        let message = ChitchatMessage::deserialize(&mut rest).map_err(|_| Reject::Damaged)?;
        if rest.is_empty() { Ok(message) } else { Err(Reject::Damaged) }
    }
}

/// Errors that an earlier send left on the socket, or that pass.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | Interrupted | OutOfMemory | WouldBlock)
}
