//! Gossip over UDP: a chitchat transport whose datagrams are sealed, or plain on loopback.
//!
//! ```text
//! chitchat's server task --send--> pack -> cut -> seal -> one bound UDP socket
//!                        <--recv-- unpack <- reassemble <- open <-'
//! ```
//!
//! [`direct`] messages take the same way past chitchat. The socket outlives chitchat's task: it is bound once, and a restarted task opens it again with a
//! new salt, tag and counters. Whatever arrives, `recv` neither fails nor panics for it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use async_trait::async_trait;
use chitchat::transport::{Socket, Transport};
use chitchat::{ChitchatMessage, Serializable};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tracing::trace;

use crate::config::MeshConfig;
use crate::counters::{Counters, DatagramReject as Reject};
use direct::Direct;
use frame::Packer;
use wire::{Arrived, Outcome, Wire};

pub(crate) mod datagrams;
pub(crate) mod direct;
mod frame;
mod header;
pub(crate) mod metered;
mod plain;
mod replay;
mod seal;
pub(crate) mod turns;
mod wire;

/// Socket buffers to ask for, in bytes. The default of 208 KiB drops bursts of a fleet of 32; the
/// system may grant less.
const SOCKET_BUFFER: usize = 4 * 1024 * 1024;

/// Longest datagram that UDP has.
const RECEIVE_BYTES: usize = 65_536;

/// Opens gossip on one bound UDP socket.
pub(crate) struct UdpGossip {
    shared: Arc<Shared>,
    config: MeshConfig,
}

/// What chitchat's task and direct messages share.
struct Shared {
    udp: UdpSocket,
    /// Of the task that runs now. Held for as long as sealing takes, some microseconds.
    wire: Mutex<Wire>,
    inbox: Mutex<Option<mpsc::Sender<Vec<u8>>>>,
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
        let wire = Mutex::new(Wire::new(config));
        let shared = Shared { udp, wire, inbox: Mutex::default(), counters };
        Ok(Self { shared: Arc::new(shared), config: config.clone() })
    }

    /// The address that was bound.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.udp.local_addr()
    }
}

impl Shared {
    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seal(&self, packed: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
        self.wire().write(packed, to)
    }

    fn sent(&self, to: SocketAddr, bytes: usize) {
        self.counters.sent(bytes);
        self.counters.peers.sent(to, bytes);
    }

    fn send_failed(&self, to: SocketAddr, error: &io::Error) {
        // The peer is unreachable or a buffer is full; the next tick tries again.
        self.counters.send_failed();
        trace!(%to, %error, "gossip datagram not sent");
    }
}

impl Direct for UdpGossip {
    fn listen(&self, inbox: mpsc::Sender<Vec<u8>>) {
        *self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(inbox);
    }

    fn send(&self, to: SocketAddr, message: &[u8]) {
        for datagram in self.shared.seal(&frame::pack_direct(message), to) {
            match self.shared.udp.try_send_to(&datagram, to) {
                Ok(_) => self.shared.sent(to, datagram.len()),
                Err(error) => return self.shared.send_failed(to, &error),
            }
        }
    }
}

/// What a message of chitchat's costs on a sealed socket: how many datagrams, and their bytes without IP and
/// UDP. For simulated networks, which lose datagrams.
pub fn sealed_size(message: &[u8]) -> (usize, usize) {
    sizes(Packer::new().pack(message).len())
}

/// The same for a direct message.
pub fn sealed_direct_size(message: &[u8]) -> (usize, usize) {
    sizes(frame::pack_direct(message).len())
}

fn sizes(packed: usize) -> (usize, usize) {
    let datagrams = packed.div_ceil(seal::PIECE_BYTES).max(1);
    (datagrams, packed + datagrams * (seal::MAX_DATAGRAM - seal::PIECE_BYTES))
}

#[async_trait]
impl Transport for UdpGossip {
    async fn open(&self, _listen_addr: SocketAddr) -> anyhow::Result<Box<dyn Socket>> {
        *self.shared.wire() = Wire::new(&self.config);
        let buffer = vec![0; RECEIVE_BYTES].into_boxed_slice();
        Ok(Box::new(GossipSocket { shared: Arc::clone(&self.shared), buffer, packer: Packer::new() }))
    }
}

struct GossipSocket {
    shared: Arc<Shared>,
    buffer: Box<[u8]>,
    packer: Packer,
}

#[async_trait]
impl Socket for GossipSocket {
    async fn send(&mut self, to: SocketAddr, message: ChitchatMessage) -> anyhow::Result<()> {
        let bytes = message.serialize_to_vec();
        let packed = self.packer.pack(&bytes);
        let shared = &self.shared;
        shared.counters.message(bytes.len());
        for datagram in shared.seal(&packed, to) {
            match shared.udp.send_to(&datagram, to).await {
                Ok(_) => shared.sent(to, datagram.len()),
                Err(error) => {
                    shared.send_failed(to, &error);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Cancel-safe: the only await is on `recv_from`, and what it brings is kept in `self`.
    async fn recv(&mut self) -> anyhow::Result<(SocketAddr, ChitchatMessage)> {
        loop {
            let (len, from) = match self.shared.udp.recv_from(&mut self.buffer).await {
                Ok(received) => received,
                Err(error) if is_transient(&error) => continue,
                Err(error) => return Err(error).context("gossip socket"),
            };
            self.shared.counters.received(len);
            match self.take(len, from) {
                Ok(Some(message)) => return Ok((from, message)),
                Ok(None) => {}
                Err(reject) => {
                    self.shared.counters.reject_datagram(reject);
                    trace!(%from, len, ?reject, "gossip datagram dropped");
                }
            }
        }
    }
}

impl GossipSocket {
    fn take(&mut self, len: usize, from: SocketAddr) -> Result<Option<ChitchatMessage>, Reject> {
        let datagram = self.buffer.get(..len).unwrap_or_default();
        let shared = &self.shared;
        let (outcome, given_up) = {
            let mut wire = shared.wire();
            (wire.read(datagram, from), wire.take_given_up())
        };
        for _ in 0..given_up {
            shared.counters.reject_datagram(Reject::Incomplete);
        }
        let outcome = outcome?;
        if !matches!(outcome, Outcome::Answer { .. }) {
            shared.counters.peers.received(from, len);
        }
        match outcome {
            Outcome::Message(packed) => self.arrived(&packed),
            Outcome::Nothing => Ok(None),
            Outcome::Answer { datagram, to, misdirected } => {
                if shared.udp.try_send_to(&datagram, to).is_ok() {
                    shared.counters.sent(datagram.len());
                }
                if misdirected { Err(Reject::Misdirected) } else { Ok(None) }
            }
        }
    }

    fn arrived(&mut self, packed: &[u8]) -> Result<Option<ChitchatMessage>, Reject> {
        match Arrived::unpack(packed, &mut self.packer)? {
            Arrived::Direct(message) => {
                self.hand_over(message);
                Ok(None)
            }
            Arrived::Gossip { message, bytes } => {
                self.shared.counters.message(bytes);
                Ok(Some(message))
            }
        }
    }

    fn hand_over(&self, message: &[u8]) {
        let inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = &*inbox {
            // What finds it full is brought by gossip.
            let _ = inbox.try_send(message.to_vec());
        }
    }
}

/// Errors that an earlier send left on the socket, or that pass.
fn is_transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, ConnectionReset, Interrupted, OutOfMemory, WouldBlock};
    matches!(error.kind(), ConnectionRefused | ConnectionReset | Interrupted | OutOfMemory | WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{interval, timeout};

    use super::*;

    async fn bound(secret: Option<&str>) -> UdpGossip {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let secret = secret.map(|secret| secret.as_bytes().to_vec());
        let config = MeshConfig { secret, ..MeshConfig::new("a", listen) };
        UdpGossip::bind(&config, Arc::default()).await.unwrap()
    }

    /// Sealed, the first ones only ask for the receiver's tag, which its gossip answers.
    #[tokio::test]
    async fn a_direct_message_passes_chitchat_by() {
        for secret in [None, Some("a secret of at least so many bytes")] {
            let (a, b) = (bound(secret).await, bound(secret).await);
            let (to, (inbox, mut heard)) = (b.local_addr().unwrap(), mpsc::channel(4));
            b.listen(inbox);
            let (mut one, mut other) = (a.open(to).await.unwrap(), b.open(to).await.unwrap());
            let mut again = interval(Duration::from_millis(5));
            let told = async {
                loop {
                    tokio::select! {
                        _ = again.tick() => Direct::send(&a, to, b"word"),
                        message = heard.recv() => return message,
                        message = one.recv() => panic!("gossip got {message:?}"),
                        message = other.recv() => panic!("gossip got {message:?}"),
                    }
                }
            };
            let message = timeout(Duration::from_secs(20), told).await.unwrap();
            assert_eq!(message.as_deref(), Some(&b"word"[..]), "sealed: {}", secret.is_some());
        }
    }
}
