//! From the replicas that are there to those that are wanted. Pure: no I/O, no clock.

use std::sync::Arc;

use super::roster::Wanted;
use crate::replica::{Replica, ReplicaError, ReplicaSet};

/// The next set, and how it differs.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) replicas: Vec<Arc<Replica>>,
    /// New here.
    pub(crate) added: Vec<Arc<Replica>>,
    /// They get no new requests from now on.
    pub(crate) draining: Vec<Arc<Replica>>,
    /// They get requests again.
    pub(crate) resumed: Vec<Arc<Replica>>,
    /// Gone: nothing is in flight there.
    pub(crate) removed: Vec<Arc<Replica>>,
    /// Something else is said of them.
    pub(crate) revised: Vec<Arc<Replica>>,
    /// Wanted, and of no use.
    pub(crate) refused: Vec<ReplicaError>,
}

/// What becomes of `current` when these are wanted. Those that stay keep their place.
pub(crate) fn reconcile(current: &ReplicaSet, wanted: &[Wanted]) -> Change {
    let mut change = Change::default();
    for replica in &current.replicas {
        match wanted.iter().find(|wanted| wanted.id == replica.id) {
            Some(wanted) => change.keep(replica, wanted),
            None => change.let_go(replica),
        }
    }
    for wanted in wanted.iter().filter(|wanted| current.get(wanted.id).is_none()) {
        match Replica::new(wanted.spec.clone(), wanted.source) {
            Ok(replica) => {
                let replica = Arc::new(replica.with_hold(wanted.held));
                change.added.push(Arc::clone(&replica));
                change.replicas.push(replica);
            }
            Err(error) => change.refused.push(error),
        }
    }
    change
}

impl Change {
    fn keep(&mut self, replica: &Arc<Replica>, wanted: &Wanted) {
        let same = replica.spec == wanted.spec && replica.source == wanted.source;
        if same && replica.draining == wanted.held {
            self.replicas.push(Arc::clone(replica));
            return;
        }
        match replica.revised(&wanted.spec, wanted.source, wanted.held) {
            Ok(revised) => {
                let revised = Arc::new(revised);
                match (replica.draining, wanted.held) {
                    (false, true) => self.draining.push(Arc::clone(&revised)),
                    (true, false) => self.resumed.push(Arc::clone(&revised)),
                    _ => {}
                }
                if !same {
                    self.revised.push(Arc::clone(&revised));
                }
                self.replicas.push(revised);
            }
            Err(error) => {
                self.refused.push(error);
                self.replicas.push(Arc::clone(replica));
            }
        }
    }

    fn let_go(&mut self, replica: &Arc<Replica>) {
        if replica.load.own_inflight() == 0 {
            self.removed.push(Arc::clone(replica));
        } else if replica.draining {
            self.replicas.push(Arc::clone(replica));
        } else {
            let leaving = Arc::new(replica.leaving());
            self.draining.push(Arc::clone(&leaving));
            self.replicas.push(leaving);
        }
    }
}

#[cfg(test)]
mod tests {
    use grapevine_tree::ReplicaId;

    use super::super::{Finding, Order, Roster, Source};
    use super::*;
    use crate::config::ReplicaSpec;

    impl Change {
        /// Whether the set stays as it is.
        fn is_none(&self) -> bool {
            let lists = [&self.added, &self.draining, &self.resumed, &self.removed];
            lists.iter().all(|list| list.is_empty()) && self.revised.is_empty()
        }
    }

    fn spec(port: u16) -> ReplicaSpec {
        ReplicaSpec::new(format!("r{port}"), format!("http://10.0.0.1:{port}"))
    }

    /// A set that follows a roster.
    #[derive(Default)]
    struct Fleet {
        roster: Roster,
        set: ReplicaSet,
    }

    impl Fleet {
        fn of(ports: &[u16]) -> Self {
            let mut fleet = Self::default();
            fleet.list(ports);
            fleet
        }

        fn list(&mut self, ports: &[u16]) -> Change {
            self.roster
                .found(Source::File, Finding::from(Ok(ports.iter().map(|port| spec(*port)).collect())));
            self.step()
        }

        fn step(&mut self) -> Change {
            let change = reconcile(&self.set, &self.roster.wanted().0);
            self.set.replicas.clone_from(&change.replicas);
            change
        }

        fn names(&self) -> Vec<&str> {
            self.set.replicas.iter().map(|replica| replica.name.as_str()).collect()
        }
    }

    #[test]
    fn what_is_listed_again_is_the_same_replica() {
        let mut fleet = Fleet::of(&[1, 2]);
        let first = Arc::clone(&fleet.set.replicas[0]);
        let change = fleet.list(&[2, 3, 1]);
        assert!(Arc::ptr_eq(&first, &fleet.set.replicas[0]));
        assert_eq!((fleet.names(), change.added.len()), (vec!["r1", "r2", "r3"], 1));
        assert!(fleet.list(&[3, 2, 1]).is_none());
    }

    #[test]
    fn a_replica_without_requests_leaves_at_once_and_one_with_some_when_they_end() {
        let mut fleet = Fleet::of(&[1, 2]);
        let guard = fleet.set.replicas[1].load.begin(10);
        let change = fleet.list(&[]);
        assert_eq!((change.removed.len(), change.draining.len()), (1, 1));
        assert!(fleet.set.replicas[0].draining && fleet.names() == ["r2"]);
        assert!(fleet.step().is_none(), "it still runs");
        drop(guard);
        assert_eq!(fleet.step().removed[0].name, "r2");
        assert!(fleet.names().is_empty());
    }

    #[test]
    fn one_that_comes_back_while_it_drains_goes_on() {
        let mut fleet = Fleet::of(&[1]);
        let _guard = fleet.set.replicas[0].load.begin(10);
        fleet.list(&[]);
        let change = fleet.list(&[1]);
        assert_eq!((change.resumed.len(), change.added.len()), (1, 0));
        assert!(!fleet.set.replicas[0].draining);
        assert_eq!(fleet.set.replicas[0].load.own_inflight(), 1);
    }

    #[test]
    fn one_that_an_operator_holds_stays_and_gets_nothing() {
        let mut fleet = Fleet::of(&[1]);
        let id = fleet.set.replicas[0].id;
        fleet.roster.order(Order::Hold(id)).unwrap();
        assert_eq!(fleet.step().draining.len(), 1);
        assert!(fleet.step().is_none(), "it does not leave");
        assert_eq!((fleet.set.replicas.len(), fleet.set.open().count()), (1, 0));
        fleet.roster.order(Order::Release(id)).unwrap();
        assert_eq!(fleet.step().resumed.len(), 1);
    }

    #[test]
    fn another_weight_is_another_word_not_another_replica() {
        let mut fleet = Fleet::of(&[1]);
        let load = Arc::clone(&fleet.set.replicas[0].load);
        fleet.roster.found(Source::File, Finding::from(Ok(vec![ReplicaSpec { weight: 4.0, ..spec(1) }])));
        assert_eq!(fleet.step().revised.len(), 1);
        assert_eq!(fleet.set.replicas[0].weight, 4.0);
        assert!(Arc::ptr_eq(&load, &fleet.set.replicas[0].load));
    }

    #[test]
    fn what_cannot_be_used_disturbs_nobody() {
        let mut fleet = Fleet::of(&[1]);
        let bad = ReplicaSpec::new("bad", "ftp://nowhere");
        fleet.roster.found(Source::File, Finding::from(Ok(vec![bad, spec(1), spec(2)])));
        let change = fleet.step();
        assert_eq!((change.refused.len(), fleet.names()), (1, vec!["r1", "r2"]));
    }

    #[test]
    fn any_history_of_lists_ends_at_the_last_one() {
        let mut fleet = Fleet::default();
        let mut state = 7u64;
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let ports: Vec<u16> = (1..=8).filter(|port| state >> (20 + port) & 1 == 1).collect();
            fleet.list(&ports);
            let mut found: Vec<_> = fleet.set.replicas.iter().map(|r| r.id).collect();
            let mut expected: Vec<_> = ports.iter().map(|port| ReplicaId::of_url(&spec(*port).url)).collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
