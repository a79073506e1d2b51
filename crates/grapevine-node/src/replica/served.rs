//! Which models a replica serves, as far as that is known.

use grapevine_tree::Millis;

use super::{Replica, ReplicaSet};
use crate::engine::models::Models;
use crate::error::RouterError;

/// What a replica said when it was asked for its models. Written by the replica actor.
#[derive(Debug, Default)]
pub enum Served {
    /// Nothing yet.
    #[default]
    Unasked,
    /// It does not say, or is not asked: every model is tried.
    Unsaid,
    /// These; LoRA adapters are among them.
    These(Models),
}

/// How well a replica suits a request for a model; better ones come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// It serves the model, or does not say what it serves.
    Serves,
    /// It has not been asked yet.
    Unasked,
    /// It lists others, but answers to any name.
    AnyName,
    /// It does not serve it.
    Not,
}

impl Replica {
    fn fit(&self, model: &str) -> Fit {
        if let Some(listed) = &self.spec.models {
            return if listed.iter().any(|name| name == model) { Fit::Serves } else { Fit::Not };
        }
        match &**self.served.load() {
            Served::Unasked => Fit::Unasked,
            Served::Unsaid => Fit::Serves,
            Served::These(models) if models.contains(model) => Fit::Serves,
            Served::These(_) if self.kind().answers_any_name() => Fit::AnyName,
            Served::These(_) => Fit::Not,
        }
    }

    /// Whether it was not asked for its models yet, and should have been.
    pub fn is_unasked(&self) -> bool {
        self.spec.models.is_none() && matches!(**self.served.load(), Served::Unasked)
    }

    /// Its models in order, if they are known.
    pub fn models(&self) -> Option<Vec<String>> {
        let mut models = match (&self.spec.models, &**self.served.load()) {
            (Some(listed), _) => listed.clone(),
            (None, Served::These(models)) => models.iter().map(ToString::to_string).collect(),
            (None, Served::Unasked | Served::Unsaid) => return None,
        };
        models.sort_unstable();
        Some(models)
    }
}

/// The replicas that a request may go to as far as its model is concerned.
#[derive(Clone, Copy, Debug)]
pub struct Eligible<'a> {
    model: Option<&'a str>,
    fit: Fit,
}

impl Eligible<'_> {
    /// Whether `replica` is one of them.
    pub fn allows(&self, replica: &Replica) -> bool {
        self.model.is_none_or(|model| replica.fit(model) == self.fit)
    }
}

impl ReplicaSet {
    /// Who may serve `model`: those that do; where nobody is known to, those that were not asked yet; then
    /// those that answer to any name. A model that all replicas that can be reached are known not to serve
    /// does not exist.
    pub fn eligible<'a>(&self, model: Option<&'a str>, now: Millis) -> Result<Eligible<'a>, RouterError> {
        let Some(name) = model else { return Ok(Eligible { model, fit: Fit::Serves }) };
        let (mut best, mut somebody_said) = (Fit::Not, false);
        for replica in self.open() {
            let fit = replica.fit(name);
            somebody_said |= fit != Fit::Unasked && replica.is_reachable(now);
            if fit != Fit::Unasked || replica.is_reachable(now) {
                best = best.min(fit);
            }
        }
        if best != Fit::Not {
            return Ok(Eligible { model, fit: best });
        }
        let leaving =
            self.replicas.iter().any(|replica| replica.draining && replica.fit(name) == Fit::Serves);
        if somebody_said && !leaving { Err(RouterError::ModelNotFound) } else { Err(RouterError::NoReplica) }
    }

    /// Whether a request's model decides where it may go.
    pub fn models_matter(&self) -> bool {
        let mut known = self.open().map(|replica| (replica.spec.models.as_deref(), replica.served.load()));
        let Some((listed, served)) = known.next() else { return false };
        known.any(|(other_listed, other)| other_listed != listed || !served.is_like(&other))
    }
}

impl Served {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::These(these), Self::These(others)) => these == others,
            (Self::These(_), _) | (_, Self::These(_)) => false,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::engine::Kind;
    use crate::replica::health::Probe;

    fn these(models: &[&str]) -> Served {
        Served::These(models.iter().map(|model| Box::from(*model)).collect())
    }

    /// Replicas r0, r1, ... of which each said this.
    fn set(said: Vec<Served>) -> ReplicaSet {
        let spec = |i| ReplicaSpec::new(format!("r{i}"), format!("http://10.0.0.1:{}", i + 1));
        let specs: Vec<_> = (0..said.len()).map(spec).collect();
        let set = ReplicaSet::from_specs(&specs).unwrap();
        for (replica, said) in set.replicas.iter().zip(said) {
            replica.served.store(Arc::new(said));
        }
        set
    }

    fn who(set: &ReplicaSet, model: &str) -> Result<Vec<String>, RouterError> {
        let eligible = set.eligible(Some(model), 0)?;
        Ok(set
            .open()
            .filter(|replica| eligible.allows(replica))
            .map(|replica| replica.name.clone())
            .collect())
    }

    fn down(replica: &Replica) {
        for _ in 0..3 {
            replica.health.probed(Probe::Refused, false, 0);
        }
    }

    #[test]
    fn a_request_goes_to_those_that_serve_its_model_adapters_included() {
        let set = set(vec![these(&["a", "a-lora"]), these(&["b"]), Served::Unsaid, Served::Unasked]);
        assert_eq!(who(&set, "a-lora").unwrap(), ["r0", "r2"]);
        assert_eq!(who(&set, "b").unwrap(), ["r1", "r2"]);
        assert_eq!(who(&set, "A").unwrap(), ["r2"], "names are exact");
        assert!(set.open().all(|replica| set.eligible(None, 0).unwrap().allows(replica)));
        assert!(set.models_matter());
    }

    #[test]
    fn a_replica_that_was_not_asked_yet_is_tried_where_nobody_else_serves_it() {
        let set = set(vec![these(&["a"]), Served::Unasked]);
        assert_eq!(
            (who(&set, "a").unwrap(), who(&set, "b").unwrap()),
            (vec!["r0".into()], vec!["r1".into()])
        );
    }

    #[test]
    fn an_unknown_model_does_not_exist_when_everybody_that_can_be_reached_has_said_so() {
        let set = set(vec![these(&["a"]), Served::Unasked]);
        down(&set.replicas[1]);
        assert_eq!(who(&set, "b"), Err(RouterError::ModelNotFound));
        down(&set.replicas[0]);
        assert_eq!(who(&set, "b"), Err(RouterError::NoReplica), "nobody can say");
        assert_eq!(who(&set, "a").unwrap(), ["r0"], "it exists, though it is down");
    }

    #[test]
    fn an_operators_list_comes_before_what_is_said() {
        let spec =
            ReplicaSpec { models: Some(vec!["x".into()]), ..ReplicaSpec::new("r", "http://10.0.0.1:1") };
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        set.replicas[0].served.store(Arc::new(these(&["a"])));
        assert_eq!((who(&set, "x").unwrap().len(), who(&set, "a")), (1, Err(RouterError::ModelNotFound)));
        assert_eq!(set.replicas[0].models().unwrap(), ["x"]);
    }

    #[test]
    fn an_engine_that_answers_to_any_name_is_the_last_resort() {
        let spec = |port, kind| ReplicaSpec {
            kind: Some(kind),
            ..ReplicaSpec::new(format!("r{port}"), format!("http://10.0.0.1:{port}"))
        };
        let set = ReplicaSet::from_specs(&[spec(1, Kind::LlamaCpp), spec(2, Kind::Vllm)]).unwrap();
        set.replicas[0].served.store(Arc::new(these(&["a.gguf"])));
        set.replicas[1].served.store(Arc::new(these(&["b"])));
        assert_eq!(who(&set, "b").unwrap(), ["r2"]);
        assert_eq!(who(&set, "gpt-4").unwrap(), ["r1"]);
    }

    #[test]
    fn a_model_whose_only_replica_drains_is_away_not_unknown() {
        let mut set = set(vec![these(&["a"]), these(&["b"])]);
        set.replicas[0] = Arc::new(set.replicas[0].leaving());
        assert_eq!(who(&set, "a"), Err(RouterError::NoReplica));
        assert_eq!(who(&set, "c"), Err(RouterError::ModelNotFound));
    }
}
