//! What this router says of its own load.

use std::collections::BTreeMap;

use grapevine_tree::ReplicaId;

use crate::load::{PeerLoad, ReplicaLoad};
use crate::peers::ReportedLoad;

/// Its own load as it was last told.
#[derive(Debug, Default)]
pub struct OwnLoads {
    told: BTreeMap<ReplicaId, ReportedLoad>,
}

impl OwnLoads {
    /// Load of every replica that has some, had some when this was last called, or got new tokens since.
    /// `own_tokens` is how many this router ever newly sent, where that is known.
    pub fn tell<'a>(
        &mut self,
        replicas: impl IntoIterator<Item = (ReplicaId, &'a ReplicaLoad)>,
        own_tokens: impl IntoIterator<Item = (ReplicaId, u64)>,
    ) -> Vec<ReportedLoad> {
        let own_tokens = BTreeMap::from_iter(own_tokens);
        let before = std::mem::take(&mut self.told);
        let mut loads = Vec::new();
        for (id, load) in replicas {
            let before = before.get(&id).copied().unwrap_or_else(|| idle(id));
            let new_tokens = own_tokens.get(&id).copied().unwrap_or(before.new_tokens);
            let now = ReportedLoad { replica: id, load: current(load), new_tokens };
            if now.load != PeerLoad::default() || now != before {
                loads.push(now);
            }
            self.told.insert(id, now);
        }
        loads
    }

    /// Load of every replica that has some, with the tokens that were last told.
    pub fn busy<'a>(
        &self,
        replicas: impl IntoIterator<Item = (ReplicaId, &'a ReplicaLoad)>,
    ) -> Vec<ReportedLoad> {
        let now = |(id, load): (ReplicaId, &ReplicaLoad)| {
            let told = self.told.get(&id).copied().unwrap_or_else(|| idle(id));
            ReportedLoad { load: current(load), ..told }
        };
        replicas.into_iter().map(now).filter(|it| it.load != PeerLoad::default()).collect()
    }
}

fn idle(replica: ReplicaId) -> ReportedLoad {
    ReportedLoad { replica, load: PeerLoad::default(), new_tokens: 0 }
}

fn current(load: &ReplicaLoad) -> PeerLoad {
    let queued_tokens = u32::try_from(load.own_queued_tokens()).unwrap_or(u32::MAX);
    PeerLoad { inflight: load.own_inflight(), queued_tokens }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const A: ReplicaId = ReplicaId(1);
    const B: ReplicaId = ReplicaId(2);

    fn report(replica: ReplicaId, inflight: u32, queued_tokens: u32, new_tokens: u64) -> ReportedLoad {
        ReportedLoad { replica, load: PeerLoad { inflight, queued_tokens }, new_tokens }
    }

    #[test]
    fn what_moved_and_what_is_busy_is_told() {
        let (a, b) = (Arc::new(ReplicaLoad::default()), Arc::new(ReplicaLoad::default()));
        let mut own = OwnLoads::default();
        let both = || [(A, &*a), (B, &*b)];
        assert_eq!(own.tell(both(), []), []);
        let mut guard = a.begin(100);
        assert_eq!(own.tell(both(), [(A, 100)]), [report(A, 1, 100, 100)]);
        guard.first_byte();
        assert_eq!(own.busy(both()), [report(A, 1, 0, 100)], "also between two tellings");
        assert_eq!(own.tell(both(), []), [report(A, 1, 0, 100)], "tokens that nobody counted now");
        assert_eq!(own.tell(both(), []), [report(A, 1, 0, 100)], "busy, though nothing moved");
        drop(guard);
        assert_eq!(own.busy(both()), []);
        assert_eq!(own.tell(both(), [(B, 7)]), [report(A, 0, 0, 100), report(B, 0, 0, 7)], "its end too");
        assert_eq!(own.tell(both(), [(B, 7)]), []);
    }

    #[test]
    fn replicas_that_are_gone_are_forgotten() {
        let (load, mut own) = (ReplicaLoad::default(), OwnLoads::default());
        own.tell([(A, &load)], [(A, 5)]);
        own.tell([], []);
        assert!(own.told.is_empty());
    }
}
