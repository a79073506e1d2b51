//! Messages straight to a peer, beside chitchat's.
//!
//! chitchat brings everything to everyone, over others, in an exchange or three. What is new (who sent what where) and
//! what is stale by then (who has how much in flight) is told directly to each peer, lost or not.

use std::net::SocketAddr;

use tokio::sync::mpsc;

/// Messages that wait for the mesh, at most: two of each router of a fleet of 256. No more than 16 MiB.
pub(crate) const INBOX: usize = 512;

/// Carries direct messages. They may be lost, late, doubled or out of order.
pub trait Direct: Send + Sync + 'static {
    /// From now on what arrives goes to `inbox`; what finds it full is lost.
    fn listen(&self, inbox: mpsc::Sender<Vec<u8>>);

    /// Sends at once, as far as the socket takes it.
    fn send(&self, to: SocketAddr, message: &[u8]);
}
