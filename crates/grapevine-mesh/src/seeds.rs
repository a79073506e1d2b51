//! Addresses of routers to look for.
//!
//! chitchat resolves a name once and then each minute; a router that starts before its fleet's
//! DNS entry exists would be alone for that minute. So the seeds are ours: names are looked up every
//! few seconds until each has an address, then now and then, for ever, and the last known addresses
//! stay when a lookup fails. Dialling goes on for ever too, so that a cut fleet finds itself again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// Longest wait for one lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between rounds while a name has no address yet.
const RETRY: Duration = Duration::from_secs(2);

/// Pause between rounds once every name has one. A fleet finds newcomers by gossip, not by DNS.
const REFRESH: Duration = Duration::from_secs(30);

/// Addresses of one name that are kept: a headless service lists every router.
const MAX_ADDRESSES: usize = 64;

/// Seeds dialled in a tick while this router is alone.
const DIALS_ALONE: usize = 3;

/// Ticks between two dials when it is not.
const DIAL_EVERY: u64 = 20;

/// Starts looking up `seeds`; their addresses so far. Ends when nobody listens any more.
pub(crate) fn watch(seeds: &[String]) -> watch::Receiver<Vec<SocketAddr>> {
    let literal: BTreeSet<SocketAddr> = seeds.iter().filter_map(|seed| seed.parse().ok()).collect();
    let names: Vec<Name> =
        seeds.iter().filter(|seed| seed.parse::<SocketAddr>().is_err()).map(|seed| Name::new(seed)).collect();
    let (known, watcher) = watch::channel(literal.iter().copied().collect());
    if !names.is_empty() {
        tokio::spawn(keep_resolving(names, literal, known));
    }
    watcher
}

struct Name {
    seed: String,
    addresses: Vec<SocketAddr>,
    failing: bool,
}

async fn keep_resolving(
    mut names: Vec<Name>,
    literal: BTreeSet<SocketAddr>,
    known: watch::Sender<Vec<SocketAddr>>,
) {
    loop {
        for name in &mut names {
            name.resolve().await;
        }
        let named = names.iter().flat_map(|name| &name.addresses);
        let all: BTreeSet<SocketAddr> = literal.iter().chain(named).copied().collect();
        known.send_if_modified(|now| {
            let changed = !now.iter().eq(all.iter());
            *now = all.into_iter().collect();
            changed
        });
        let pause = if names.iter().any(|name| name.addresses.is_empty()) { RETRY } else { REFRESH };
        tokio::select! {
            () = sleep(pause) => {}
            () = known.closed() => return,
        }
    }
}

impl Name {
    fn new(seed: &str) -> Self {
        Self { seed: seed.to_owned(), addresses: Vec::new(), failing: false }
    }

    async fn resolve(&mut self) {
        let failure = match self.lookup().await {
            Ok(addresses) => return self.found(addresses),
            Err(failure) => failure,
        };
        if !std::mem::replace(&mut self.failing, true) {
            warn!(seed = %self.seed, error = %failure, "gossip seed does not resolve, trying on");
        }
    }

    async fn lookup(&self) -> Result<Vec<SocketAddr>, String> {
        let lookup = timeout(LOOKUP_TIMEOUT, lookup_host(&self.seed)).await;
        let found = lookup.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
        let addresses: Vec<SocketAddr> = found.take(MAX_ADDRESSES).collect();
        if addresses.is_empty() { Err("no address".to_owned()) } else { Ok(addresses) }
    }

    fn found(&mut self, addresses: Vec<SocketAddr>) {
        if std::mem::take(&mut self.failing) {
            info!(seed = %self.seed, "gossip seed resolves");
        }
        self.addresses = addresses;
    }
}

/// Whom to dial, tick by tick, in turn.
#[derive(Debug, Default)]
pub(crate) struct Dialler {
    ticks: u64,
    next: usize,
}

impl Dialler {
    /// The seeds to dial this tick. `known` are the addresses of live peers and our own: gossip
    /// reaches those anyway.
    pub(crate) fn pick(
        &mut self,
        seeds: &[SocketAddr],
        known: &BTreeSet<SocketAddr>,
        alone: bool,
    ) -> Vec<SocketAddr> {
        self.ticks += 1;
        if !alone && !self.ticks.is_multiple_of(DIAL_EVERY) {
            return Vec::new();
        }
        let missing: Vec<SocketAddr> = seeds.iter().filter(|seed| !known.contains(seed)).copied().collect();
        let wanted = missing.len().min(if alone { DIALS_ALONE } else { 1 });
        let picked = missing.iter().cycle().skip(self.next % missing.len().max(1)).take(wanted);
        self.next = self.next.wrapping_add(wanted);
        picked.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn alone_every_seed_has_its_turn() {
        let seeds: Vec<_> = (1..=5).map(addr).collect();
        let mut dialler = Dialler::default();
        let known = BTreeSet::from([addr(2)]);
        let dialled: BTreeSet<_> = (0..2).flat_map(|_| dialler.pick(&seeds, &known, true)).collect();
        assert_eq!(dialled, [1, 3, 4, 5].map(addr).into());
        assert!(dialler.pick(&[], &known, true).is_empty());
        assert_eq!(dialler.pick(&seeds[..1], &known, true), [addr(1)]);
    }

    #[test]
    fn in_company_missing_seeds_are_dialled_now_and_then_for_ever() {
        let seeds = [addr(1), addr(2)];
        let mut dialler = Dialler::default();
        let known = BTreeSet::from([addr(1)]);
        let dialled: Vec<_> = (0..200).flat_map(|_| dialler.pick(&seeds, &known, false)).collect();
        assert_eq!(dialled, [addr(2); 10]);
    }

    #[tokio::test]
    async fn names_are_resolved_and_bad_ones_do_no_harm() {
        let seeds = ["localhost:7".to_owned(), "127.0.0.1:9".to_owned(), "no port".to_owned()];
        let mut watcher = watch(&seeds);
        assert_eq!(*watcher.borrow(), [addr(9)], "literals are there at once");
        let known = watcher.wait_for(|known| known.len() > 1).await.unwrap();
        assert!(known.iter().any(|it| it.port() == 7) && known.contains(&addr(9)));
    }
}
