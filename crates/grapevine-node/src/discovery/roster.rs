//! What all sources want together. Pure: no I/O, no clock.

use std::collections::{BTreeMap, BTreeSet};

use grapevine_tree::ReplicaId;

use super::{Finding, Source, SourceView};
use crate::config::{MAX_REPLICAS, ReplicaSpec};
use crate::engine::Kind;

/// A replica that somebody wants.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) id: ReplicaId,
    pub(crate) spec: ReplicaSpec,
    pub(crate) source: Source,
    /// Its source or an operator holds it: it is known, and gets no new requests.
    pub(crate) held: bool,
}

/// What an operator may order.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// This replica is to be there, with these properties.
    Add(Box<ReplicaSpec>),
    /// One that an operator added is not wanted any more.
    Remove(ReplicaId),
    /// No new requests for it.
    Hold(ReplicaId),
    /// It gets requests again.
    Release(ReplicaId),
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrderError {
    /// Nobody lists it.
    #[error("no replica has this id or name")]
    Unknown,
    /// It cannot be removed here.
    #[error("it is listed by {0}: take it away there, or drain it")]
    Elsewhere(&'static str),
    /// There are too many.
    #[error("there are {MAX_REPLICAS} replicas already")]
    TooMany,
    /// What is said of it cannot be used.
    #[error("{0}")]
    Bad(String),
}

/// What every source said last.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    said: BTreeMap<Source, Said>,
    held: BTreeSet<ReplicaId>,
    /// What replicas are of which nobody says so.
    kind: Option<Kind>,
}

#[derive(Debug, Default)]
struct Said {
    replicas: Vec<ReplicaSpec>,
    problem: Option<String>,
}

impl Roster {
    /// A roster of the replicas that are listed for good.
    pub(crate) fn of(listed: Vec<ReplicaSpec>, kind: Option<Kind>) -> Self {
        let mut roster = Self { kind, ..Self::default() };
        if !listed.is_empty() {
            roster.said.insert(Source::Static, Said { replicas: listed, problem: None });
        }
        roster
    }

    /// Takes in what a source found. What it found before stays if it failed.
    pub(crate) fn found(&mut self, source: Source, finding: Finding) {
        let said = self.said.entry(source).or_default();
        said.problem = finding.problem;
        if let Some(replicas) = finding.replicas {
            said.replicas = replicas;
        }
        let wanted: BTreeSet<_> = self.listed().map(|(_, spec)| id_of(spec)).collect();
        // A hold is of a replica that somebody lists; a later one at its address is another.
        self.held.retain(|id| wanted.contains(id));
    }

    /// Carries out an operator's order.
    pub(crate) fn order(&mut self, order: Order) -> Result<ReplicaId, OrderError> {
        match order {
            Order::Add(spec) => self.add(*spec),
            Order::Remove(id) => self.remove(id),
            Order::Hold(id) => {
                self.source_of(id)?;
                self.held.insert(id);
                Ok(id)
            }
            Order::Release(id) => {
                self.source_of(id)?;
                self.held.remove(&id);
                Ok(id)
            }
        }
    }

    fn add(&mut self, spec: ReplicaSpec) -> Result<ReplicaId, OrderError> {
        let id = id_of(&spec);
        let known = self.listed().map(|(_, spec)| id_of(spec)).collect::<BTreeSet<_>>();
        if !known.contains(&id) && known.len() >= MAX_REPLICAS {
            return Err(OrderError::TooMany);
        }
        let added = &mut self.said.entry(Source::Admin).or_default().replicas;
        added.retain(|other| id_of(other) != id);
        added.push(spec);
        self.held.remove(&id);
        Ok(id)
    }

    fn remove(&mut self, id: ReplicaId) -> Result<ReplicaId, OrderError> {
        let source = self.source_of(id)?;
        if source != Source::Admin {
            return Err(OrderError::Elsewhere(source.name()));
        }
        if let Some(said) = self.said.get_mut(&Source::Admin) {
            said.replicas.retain(|spec| id_of(spec) != id);
        }
        self.held.remove(&id);
        Ok(id)
    }

    fn source_of(&self, id: ReplicaId) -> Result<Source, OrderError> {
        let found = self.listed().find(|(_, spec)| id_of(spec) == id);
        found.map(|(source, _)| source).ok_or(OrderError::Unknown)
    }

    /// Everything that any source lists, the sources in their order.
    fn listed(&self) -> impl Iterator<Item = (Source, &ReplicaSpec)> {
        self.said.iter().flat_map(|(source, said)| said.replicas.iter().map(|spec| (*source, spec)))
    }

    /// Every replica once, under a name that no other has. Beyond the most that there may be, and where
    /// two URLs have one id, the later one is left out; how many are is said beside.
    pub(crate) fn wanted(&self) -> (Vec<Wanted>, usize) {
        let mut wanted: Vec<Wanted> = Vec::new();
        let (mut ids, mut names) = (BTreeMap::<ReplicaId, &str>::new(), BTreeSet::new());
        let mut left_out = 0;
        for (source, spec) in self.listed() {
            let id = id_of(spec);
            if let Some(url) = ids.get(&id) {
                left_out += usize::from(*url != spec.url);
                continue;
            }
            if wanted.len() >= MAX_REPLICAS {
                left_out += 1;
                continue;
            }
            ids.insert(id, &spec.url);
            let mut spec = spec.clone();
            spec.kind = spec.kind.or(self.kind);
            if names.contains(&spec.name) {
                spec.name = format!("{}~{id:?}", spec.name);
            }
            names.insert(spec.name.clone());
            let held = spec.held || self.held.contains(&id);
            wanted.push(Wanted { id, spec, source, held });
        }
        (wanted, left_out)
    }

    /// The sources, for status.
    pub(crate) fn sources(&self) -> Vec<SourceView> {
        let view = |(source, said): (&Source, &Said)| SourceView {
            source: *source,
            replicas: said.replicas.len(),
            problem: said.problem.clone(),
        };
        self.said.iter().map(view).collect()
    }
}

fn id_of(spec: &ReplicaSpec) -> ReplicaId {
    ReplicaId::of_url(&spec.url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, port: u16) -> ReplicaSpec {
        ReplicaSpec::new(name, format!("http://10.0.0.1:{port}"))
    }

    fn names(roster: &Roster) -> Vec<String> {
        roster.wanted().0.into_iter().map(|wanted| wanted.spec.name).collect()
    }

    #[test]
    fn sources_add_up_and_the_first_says_what_a_replica_is() {
        let mut roster = Roster::of(vec![spec("a", 1)], None);
        let heavy = ReplicaSpec { weight: 3.0, ..spec("also-a", 1) };
        roster.found(Source::Dns, Finding::from(Ok(vec![heavy, spec("b", 2)])));
        roster.found(Source::File, Finding::from(Ok(vec![spec("c", 3)])));
        assert_eq!(names(&roster), ["a", "c", "b"]);
        assert_eq!(roster.wanted().0[0].spec.weight, 1.0);
        roster.order(Order::Add(Box::new(ReplicaSpec { weight: 2.0, ..spec("mine", 1) }))).unwrap();
        let first = &roster.wanted().0[0];
        assert_eq!((first.spec.name.as_str(), first.spec.weight, first.source), ("mine", 2.0, Source::Admin));
    }

    #[test]
    fn a_source_that_fails_keeps_what_it_found() {
        let mut roster = Roster::default();
        roster.found(Source::Dns, Finding::from(Ok(vec![spec("a", 1)])));
        roster.found(Source::Dns, Finding::from(Err("timed out".into())));
        assert_eq!(names(&roster), ["a"]);
        assert_eq!(roster.sources()[0].problem.as_deref(), Some("timed out"));
        roster.found(Source::Dns, Finding::from(Ok(Vec::new())));
        assert_eq!((names(&roster).len(), roster.sources()[0].problem.clone()), (0, None));
    }

    #[test]
    fn two_of_one_name_can_be_told_apart() {
        let roster = Roster::of(vec![spec("a", 1), spec("a", 2)], None);
        let names = names(&roster);
        assert_eq!(names[0], "a");
        assert!(names[1].starts_with("a~"), "{names:?}");
    }

    #[test]
    fn too_many_are_left_out_and_counted() {
        let many = (0..MAX_REPLICAS as u16 + 7).map(|i| spec(&format!("r{i}"), i)).collect();
        let mut roster = Roster::of(many, None);
        let (wanted, left_out) = roster.wanted();
        assert_eq!((wanted.len(), left_out), (MAX_REPLICAS, 7));
        let refused = roster.order(Order::Add(Box::new(spec("x", 60_000))));
        assert_eq!(refused, Err(OrderError::TooMany));
    }

    #[test]
    fn orders_concern_what_is_listed() {
        let mut roster = Roster::of(vec![spec("a", 1)], None);
        let id = id_of(&spec("a", 1));
        assert_eq!(roster.order(Order::Hold(ReplicaId(7))), Err(OrderError::Unknown));
        assert_eq!(roster.order(Order::Remove(id)), Err(OrderError::Elsewhere("static")));
        roster.order(Order::Hold(id)).unwrap();
        assert!(roster.wanted().0[0].held);
        roster.order(Order::Release(id)).unwrap();
        assert!(!roster.wanted().0[0].held);
        let added = roster.order(Order::Add(Box::new(spec("b", 2)))).unwrap();
        roster.order(Order::Hold(added)).unwrap();
        roster.order(Order::Remove(added)).unwrap();
        assert_eq!(names(&roster), ["a"]);
        roster.order(Order::Add(Box::new(spec("b", 2)))).unwrap();
        assert!(!roster.wanted().0[0].held, "the hold went with it");
    }
}
