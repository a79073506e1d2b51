//! What is wrong with a configuration, all of it at once.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The variable to change.
    pub setting: String,
    /// What is wrong with it and what to do.
    pub problem: String,
}

impl Mistake {
    pub(super) fn new(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { setting: setting.into(), problem: problem.into() }
    }

    /// Whether it is about the variable `name`, or tells to look at it.
    pub(super) fn concerns(&self, name: &str) -> bool {
        self.setting == name || self.problem.contains(name)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.setting, self.problem)
    }
}

/// Every mistake of a configuration; at least one. Its `Display` has a line for each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub struct Mistakes(pub Vec<Mistake>);

fn lines(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n")
}

/// The one of `known` that `name` was most likely meant to be; `None` when nothing is near.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, best) = known.map(|k| (edit_distance(name, k), k)).min()?;
    // A third of the name may differ: beyond that the guess misleads.
    (distance * 3 <= name.len()).then_some(best)
}

/// Levenshtein's distance in bytes: names of variables are ASCII.
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut left = i + 1;
        let mut diagonal = i;
        for (y, cell) in b.bytes().zip(row.iter_mut().skip(1)) {
            let above = *cell;
            *cell = (above + 1).min(left + 1).min(diagonal + usize::from(x != y));
            left = *cell;
            diagonal = above;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (a, b, distance) in
            [("", "", 0), ("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)]
        {
            assert_eq!(edit_distance(a, b), distance, "{a} to {b}");
            assert_eq!(edit_distance(b, a), distance, "{b} to {a}");
        }
    }

    #[test]
    fn far_names_are_no_guess() {
        let known = ["GRAPEVINE_LISTEN", "GRAPEVINE_REPLICAS"];
        assert_eq!(nearest("GRAPEVINE_REPLICA", known.into_iter()), Some("GRAPEVINE_REPLICAS"));
        assert_eq!(nearest("COMPLETELY_ELSE", known.into_iter()), None);
        assert_eq!(nearest("X", std::iter::empty()), None);
    }
}
