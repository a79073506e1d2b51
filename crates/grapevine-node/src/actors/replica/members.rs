//! Who is in the set: what the roster wants, made so. No I/O.

use std::sync::Arc;

use grapevine_tree::ReplicaId;

use super::book::Effects;
use crate::discovery::{Change, Finding, Order, OrderError, Roster, Source, reconcile};
use crate::engine::Kind;
use crate::replica::{Replica, ReplicaSet, SharedReplicas};

/// Keeps the published set as the roster wants it.
pub(super) struct Members {
    replicas: SharedReplicas,
    roster: Roster,
    /// Replicas that were left out when it was last said.
    left_out: usize,
    /// Somebody drains and is not wanted: it leaves when nothing is in flight there.
    leaving: bool,
}

impl Members {
    /// The members of a set of replicas that are listed for good.
    pub(super) fn new(replicas: SharedReplicas, kind: Option<Kind>) -> Self {
        let listed = replicas.load().replicas.iter().map(|replica| replica.spec.clone()).collect();
        let mut members = Self { replicas, roster: Roster::of(listed, kind), left_out: 0, leaving: false };
        members.settle(&mut Effects::default());
        members
    }

    /// Takes in what a source found.
    pub(super) fn found(&mut self, source: Source, finding: Finding, effects: &mut Effects) {
        self.roster.found(source, finding);
        self.settle(effects);
    }

    /// Carries out an operator's order; gives the replica as it is then, if it is still there.
    pub(super) fn order(
        &mut self,
        order: Order,
        effects: &mut Effects,
    ) -> Result<Option<Arc<Replica>>, OrderError> {
        if let Order::Add(spec) = &order {
            Replica::new((**spec).clone(), Source::Admin)
                .map_err(|error| OrderError::Bad(error.to_string()))?;
        }
        let id = self.roster.order(order)?;
        self.settle(effects);
        Ok(self.replicas.load().get(id).cloned())
    }

    /// Lets go of those that were waiting for their last request.
    pub(super) fn tick(&mut self, effects: &mut Effects) {
        if self.leaving {
            self.settle(effects);
        }
    }

    fn settle(&mut self, effects: &mut Effects) {
        let (wanted, left_out) = self.roster.wanted();
        if left_out != std::mem::replace(&mut self.left_out, left_out) && left_out > 0 {
            tracing::warn!(left_out, "too many replicas, or two with one id: some are left out");
        }
        let change = reconcile(&self.replicas.load(), &wanted);
        report(&change);
        effects.remove.extend(change.removed.iter().map(|replica| replica.id));
        let is_wanted = |id: ReplicaId| wanted.iter().any(|wanted| wanted.id == id);
        self.leaving = change.replicas.iter().any(|replica| replica.draining && !is_wanted(replica.id));
        self.publish(change.replicas);
    }

    fn publish(&self, replicas: Vec<Arc<Replica>>) {
        let sources = self.roster.sources();
        let now = self.replicas.load();
        let same = |(a, b): (&Arc<Replica>, &Arc<Replica>)| Arc::ptr_eq(a, b);
        let unchanged = now.replicas.len() == replicas.len() && now.replicas.iter().zip(&replicas).all(same);
        if !unchanged || now.sources != sources {
            self.replicas.store(Arc::new(ReplicaSet { replicas, sources }));
        }
    }
}

fn report(change: &Change) {
    for replica in &change.added {
        let (replica, url, source) = (&replica.name, &replica.url, replica.source.name());
        tracing::info!(replica, url, source, "replica added");
    }
    for replica in &change.draining {
        let inflight = replica.load.own_inflight();
        tracing::info!(replica = replica.name, inflight, "replica drains");
    }
    for replica in &change.resumed {
        tracing::info!(replica = replica.name, "replica gets requests again");
    }
    for replica in &change.revised {
        let (replica, weight, source) = (&replica.name, replica.weight, replica.source.name());
        tracing::info!(replica, weight, source, "something else is said of a replica");
    }
    for replica in &change.removed {
        tracing::info!(replica = replica.name, url = replica.url, "replica removed");
    }
    for error in &change.refused {
        tracing::warn!(%error, "replica left out");
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;

    use super::*;
    use crate::config::ReplicaSpec;

    fn spec(port: u16) -> ReplicaSpec {
        ReplicaSpec::new(format!("r{port}"), format!("http://127.0.0.1:{port}"))
    }

    fn members(ports: &[u16]) -> (Members, SharedReplicas) {
        let specs: Vec<_> = ports.iter().map(|port| spec(*port)).collect();
        let set = Arc::new(ArcSwap::from_pointee(ReplicaSet::from_specs(&specs).unwrap()));
        (Members::new(Arc::clone(&set), None), set)
    }

    #[test]
    fn a_removed_replica_is_told_to_the_tree_when_its_last_request_has_ended() {
        let (mut members, set) = members(&[1]);
        let mut effects = Effects::default();
        members.found(Source::File, Finding::from(Ok(vec![spec(2)])), &mut effects);
        let second = Arc::clone(&set.load().replicas[1]);
        let guard = second.load.begin(1);
        members.found(Source::File, Finding::from(Ok(Vec::new())), &mut effects);
        members.tick(&mut effects);
        assert!(effects.remove.is_empty() && set.load().replicas[1].draining);
        drop(guard);
        members.tick(&mut effects);
        assert_eq!((effects.remove.as_slice(), set.load().replicas.len()), (&[second.id][..], 1));
        assert_eq!(set.load().sources.len(), 2);
    }

    #[test]
    fn what_is_listed_for_good_stays_whatever_sources_say() {
        let (mut members, set) = members(&[1]);
        let mut effects = Effects::default();
        members.found(Source::Dns, Finding::from(Err("no such name".into())), &mut effects);
        members.found(Source::Dns, Finding::from(Ok(vec![spec(1)])), &mut effects);
        members.found(Source::Dns, Finding::from(Ok(Vec::new())), &mut effects);
        assert_eq!((set.load().replicas.len(), effects), (1, Effects::default()));
    }

    #[test]
    fn an_order_that_cannot_be_is_refused_before_anything_changes() {
        let (mut members, set) = members(&[1]);
        let before = set.load_full();
        let bad = ReplicaSpec::new("x", "ftp://nowhere");
        let refused = members.order(Order::Add(Box::new(bad)), &mut Effects::default());
        assert!(matches!(refused, Err(OrderError::Bad(_))), "{refused:?}");
        assert!(Arc::ptr_eq(&before, &set.load_full()));
    }
}
