//! As much of compose.yaml as the test needs: settings, commands, names of services.

use std::collections::BTreeMap;
use std::path::Path;

/// The file, and the variables that it is filled in with.
pub(crate) struct Compose {
    text: String,
    variables: BTreeMap<String, String>,
}

impl Compose {
    /// Reads `compose.yaml` and `.env` in a folder.
    pub(crate) fn read(folder: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let pairs = read(".env");
        let pairs =
            pairs.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
        let variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { text: read("compose.yaml"), variables }
    }

    /// Services whose names begin so and end in a number.
    pub(crate) fn count(&self, prefix: &str) -> usize {
        let name = |line: &&str| {
            let rest = line.strip_prefix("  ").and_then(|line| line.strip_prefix(prefix));
            rest.is_some_and(|rest| rest.split(':').next().is_some_and(|number| number.parse::<u8>().is_ok()))
        };
        self.text.lines().filter(name).count()
    }

    /// What follows `subcommand` in the folded command that begins with it.
    pub(crate) fn arguments(&self, subcommand: &str) -> String {
        let starts = |line: &&str| line.split_whitespace().next() == Some(subcommand);
        let mut lines = self.text.lines().skip_while(|line| !starts(line)).peekable();
        let indent = indent_of(lines.peek().unwrap());
        let command: Vec<&str> = lines.take_while(|line| indent_of(line) == indent).collect();
        command.join(" ").trim_start().strip_prefix(subcommand).unwrap().to_owned()
    }

    /// The settings of routers whose names `wanted` takes.
    pub(crate) fn settings(&self, wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
        let pairs = self.text.lines().filter_map(|line| line.strip_prefix("    ")?.split_once(": "));
        let settings = pairs
            .filter(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || "_0123456789".contains(c)));
        let kept = settings.filter(|(name, _)| wanted(name));
        kept.map(|(name, value)| (&*name.to_owned().leak(), self.filled_in(value))).collect()
    }

    /// The value of one setting.
    pub(crate) fn setting(&self, name: &str) -> String {
        self.settings(|other| other == name).remove(0).1
    }

    /// A value of the forms `text`, `${NAME}`, `${NAME:-default}` and `${NAME:?error}`.
    fn filled_in(&self, value: &str) -> String {
        let Some(inner) = value.strip_prefix("${").and_then(|value| value.strip_suffix('}')) else {
            return value.trim_matches('"').to_owned();
        };
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        let name = name.split(":?").next().unwrap();
        self.variables.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
