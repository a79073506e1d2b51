//! Which peers' word predictions rest on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use grapevine_tree::RouterId;

/// Peers told apart. A fleet has fewer; whoever comes later is not counted.
const MAX_PEERS: usize = 1_024;

/// Predicted tokens by the peer that had told of them.
#[derive(Debug, Default)]
pub struct Taught(Mutex<BTreeMap<RouterId, u64>>);

impl Taught {
    /// `tokens` are believed cached because `peer` said so.
    pub fn add(&self, peer: RouterId, tokens: u32) {
        let mut taught = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taught.len() < MAX_PEERS || taught.contains_key(&peer) {
            *taught.entry(peer).or_default() += u64::from(tokens);
        }
    }

    /// What each peer taught since the start.
    pub fn read(&self) -> BTreeMap<RouterId, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peers_tokens_add_up_and_there_are_only_so_many_peers() {
        let taught = Taught::default();
        for peer in 0..MAX_PEERS as u32 + 9 {
            taught.add(RouterId(peer), 5);
            taught.add(RouterId(3), 2);
        }
        let read = taught.read();
        assert_eq!(read.len(), MAX_PEERS);
        assert_eq!(read[&RouterId(3)], 5 + 2 * (MAX_PEERS as u64 + 9));
    }
}
