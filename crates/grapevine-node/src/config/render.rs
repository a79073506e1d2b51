//! The table of settings for people: help, effective values, documentation.

use super::Config;
use super::otel::{self, Export};
use super::setting::Setting;
use super::strings::Strings;
use super::table::{sections, settings};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody said otherwise.
    Default,
    /// The environment variable.
    Env,
    /// The file that the `_FILE` variable names.
    File,
}

impl Source {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Env => "env",
            Self::File => "file",
        }
    }
}

/// A setting as a router would run with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The variable.
    pub name: &'static str,
    /// Its value as it would be written; secrets masked.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
}

/// Every setting of `config`, which was read from `env`, and where telemetry goes.
pub fn effective(config: &Config, env: &dyn Strings) -> Vec<Effective> {
    let is_set = |name: &str| !matches!(env.get(name), Ok(None));
    let source = |setting: &Setting| match setting.file_name() {
        _ if is_set(setting.name) => Source::Env,
        Some(file) if is_set(&file) => Source::File,
        _ => Source::Default,
    };
    let row = |s: &'static Setting| Effective { name: s.name, value: s.show(config), source: source(s) };
    let mut rows: Vec<Effective> = settings().map(row).collect();
    rows.extend(config.otel.exports().into_iter().map(exported));
    rows
}

fn exported((name, export): (&'static str, Option<&Export>)) -> Effective {
    let (value, source) = match export {
        Some(export) => (without_query(&export.endpoint), Source::Env),
        None => ("none".to_owned(), Source::Default),
    };
    Effective { name, value, source }
}

/// Some collectors take their token in the query.
fn without_query(endpoint: &str) -> String {
    match endpoint.split_once('?') {
        Some((base, _)) => format!("{base}?(secret)"),
        None => endpoint.to_owned(),
    }
}

/// Width of help text, columns.
const WIDTH: usize = 100;

/// The settings as text for `--help`.
pub fn help() -> String {
    let mut out = String::from("Settings (environment variables):\n");
    for section in sections() {
        out += &format!("\n{}:\n", section.title);
        for setting in &section.settings {
            let file = setting.file_name().map_or_else(String::new, |name| format!(" or {name}"));
            out += &format!("  {}{file}\n", setting.name);
            let facts = format!("[{}; default: {}]", written(setting), setting.default);
            for line in wrap(setting.doc, WIDTH - 6).into_iter().chain(wrap(&facts, WIDTH - 6)) {
                out += &format!("      {line}\n");
            }
        }
    }
    out += "\nTraces, metrics and logs are exported when OTEL_EXPORTER_OTLP_ENDPOINT is set; docs/configuration.md\n\
            lists the OTEL_* variables that are supported.\n";
    out
}

fn written(setting: &Setting) -> String {
    match setting.limits.as_str() {
        "" => setting.kind.to_owned(),
        limits => format!("{}: {limits}", setting.kind),
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// docs/configuration.md.
pub fn markdown() -> String {
    let mut out = String::from(INTRO);
    for section in sections() {
        out +=
            &format!("\n## {}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n", section.title);
        for setting in &section.settings {
            let file = setting.file_name().map_or_else(String::new, |name| format!(" or `{name}`"));
            out += &format!(
                "| `{}`{file} | {} | {} | {} |\n",
                setting.name,
                cell(&written(setting)),
                default_cell(&setting.default),
                cell(setting.doc)
            );
        }
    }
    out += OTEL;
    for (names, doc) in otel::SUPPORTED {
        let names = names.split(", ").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        out += &format!("| {names} | {} |\n", cell(doc));
    }
    out
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn default_cell(default: &str) -> String {
    if default.contains(' ') || default == "none" { default.to_owned() } else { format!("`{default}`") }
}

const INTRO: &str = "\
<!-- Generated from crates/grapevine-node/src/config/table.rs: `UPDATE_DOCS=1 cargo test -p grapevine-node config` \
writes it. -->
# Configuration

Everything is set by environment variables. `grapevine config` prints the values that a router would run with and where
they come from, `grapevine config --check` only checks them. Mistakes are all reported at once, with exit code 64.

- A duration is a whole number with a unit: `us`, `ms`, `s`, `min` or `h`. A size has `B`, `KiB`, `MiB` or `GiB`.
- An unknown `GRAPEVINE_*` variable is an error. Variables that Kubernetes makes for Services are left alone.
- A secret is never printed. It can be given directly or as the name of a file that holds it; a line end at the end of
  the file does not count.
";

const OTEL: &str = "
## Telemetry

Traces, metrics and logs are exported over OTLP, by HTTP or gRPC, when an endpoint is set. Without one, the client's
`traceparent`, `tracestate` and `baggage` pass to the engine untouched. These variables have the meaning that
OpenTelemetry gives them; others that would change what is exported are refused at start. `/metrics` and the log lines on
stderr are there in any case.

| variable | meaning |
|---|---|
";
