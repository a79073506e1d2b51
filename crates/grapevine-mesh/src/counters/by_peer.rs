//! Bytes to and from each peer, by its gossip address.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Addresses counted at once: as many as routers are remembered.
const MAX_ADDRESSES: usize = 1_024;

/// Bytes that passed between this router and one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerTraffic {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
}

/// Counts by address. Only what was accepted, and what this router chose to send, makes a place: strangers
/// cannot fill it. Held for a look-up in a small map.
#[derive(Debug, Default)]
pub(crate) struct ByPeer(Mutex<BTreeMap<SocketAddr, PeerTraffic>>);

impl ByPeer {
    pub(crate) fn sent(&self, to: SocketAddr, bytes: usize) {
        self.count(to, |traffic| traffic.bytes_sent += bytes as u64);
    }

    pub(crate) fn received(&self, from: SocketAddr, bytes: usize) {
        self.count(from, |traffic| traffic.bytes_received += bytes as u64);
    }

    /// What passed between this router and the one at `addr`.
    pub(crate) fn of(&self, addr: SocketAddr) -> PeerTraffic {
        self.lock().get(&addr).copied().unwrap_or_default()
    }

    /// Forgets addresses at which no peer is any more.
    pub(crate) fn keep_only(&self, is_peer: impl Fn(SocketAddr) -> bool) {
        self.lock().retain(|&addr, _| is_peer(addr));
    }

    fn count(&self, addr: SocketAddr, add: impl FnOnce(&mut PeerTraffic)) {
        let mut all = self.lock();
        if all.len() < MAX_ADDRESSES || all.contains_key(&addr) {
            add(all.entry(addr).or_default());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, PeerTraffic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn bytes_are_counted_for_whom_they_passed() {
        let peers = ByPeer::default();
        peers.sent(addr(1), 10);
        peers.sent(addr(1), 5);
        peers.received(addr(1), 7);
        peers.received(addr(2), 3);
        assert_eq!(peers.of(addr(1)), PeerTraffic { bytes_sent: 15, bytes_received: 7 });
        assert_eq!(peers.of(addr(2)), PeerTraffic { bytes_sent: 0, bytes_received: 3 });
        peers.keep_only(|it| it == addr(2));
        assert_eq!((peers.of(addr(1)).bytes_sent, peers.of(addr(2)).bytes_received), (0, 3));
    }

    #[test]
    fn no_more_addresses_are_counted_than_there_may_be_routers() {
        let peers = ByPeer::default();
        (0..3_000).for_each(|port| peers.received(addr(port), 1));
        assert_eq!(peers.lock().len(), MAX_ADDRESSES);
        peers.received(addr(0), 1);
        assert_eq!(peers.of(addr(0)).bytes_received, 2, "who has a place keeps it");
    }
}
