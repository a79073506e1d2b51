//! A source that asks in several places: what each said last makes the whole.

use super::Finding;
use crate::config::ReplicaSpec;

/// What was found in each place. Pure: no I/O, no clock.
#[derive(Debug)]
pub(super) struct Parts {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    /// What people call the place.
    name: String,
    /// `None` until it was found once.
    replicas: Option<Vec<ReplicaSpec>>,
    problem: Option<String>,
}

impl Parts {
    pub(super) fn of(names: impl IntoIterator<Item = String>) -> Self {
        let part = |name| Part { name, replicas: None, problem: None };
        Self { parts: names.into_iter().map(part).collect() }
    }

    /// One place said this. What it said before stays if it failed. Says so when that is news.
    pub(super) fn put(&mut self, index: usize, found: Result<Vec<ReplicaSpec>, String>) {
        let Some(part) = self.parts.get_mut(index) else { return };
        let name = &part.name;
        match found {
            Ok(replicas) => {
                if part.problem.take().is_some() {
                    tracing::info!(name, replicas = replicas.len(), "replicas found again");
                }
                part.replicas = Some(replicas);
            }
            Err(problem) => {
                if part.problem.as_ref() != Some(&problem) {
                    tracing::warn!(name, problem, "replicas not found: the old ones stay");
                }
                part.problem = Some(problem);
            }
        }
    }

    /// All places together.
    pub(super) fn finding(&self) -> Finding {
        let known = self.parts.iter().any(|part| part.replicas.is_some());
        let replicas = self.parts.iter().filter_map(|part| part.replicas.as_deref()).flatten().cloned();
        let problems: Vec<_> = self
            .parts
            .iter()
            .filter_map(|part| Some(format!("{}: {}", part.name, part.problem.as_deref()?)))
            .collect();
        Finding {
            replicas: known.then(|| replicas.collect()),
            problem: (!problems.is_empty()).then(|| problems.join("; ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str) -> ReplicaSpec {
        ReplicaSpec::new(name, format!("http://{name}:1"))
    }

    #[test]
    fn one_place_that_fails_keeps_its_own_and_disturbs_no_other() {
        let mut parts = Parts::of(["x".to_owned(), "y".to_owned()]);
        assert_eq!(parts.finding(), Finding::default(), "nothing is known");
        parts.put(0, Ok(vec![spec("a")]));
        parts.put(1, Err("timed out".into()));
        let finding = parts.finding();
        assert_eq!(finding.replicas, Some(vec![spec("a")]));
        assert_eq!(finding.problem.as_deref(), Some("y: timed out"));
        parts.put(1, Ok(vec![spec("b")]));
        parts.put(0, Err("no such name".into()));
        assert_eq!(parts.finding().replicas.map(|all| all.len()), Some(2));
        parts.put(0, Ok(Vec::new()));
        assert_eq!(parts.finding(), Finding::from(Ok(vec![spec("b")])));
    }
}
