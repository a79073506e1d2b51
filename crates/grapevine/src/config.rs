//! `grapevine config`: what `serve` would run with.

use std::io::{self, Write};

use clap::Args;
use grapevine_node::config::{Config, Effective, ProcessEnv, effective};

use crate::Failure;

/// Options of `grapevine config`.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// Only say whether the configuration is good
    #[arg(long, conflicts_with = "json")]
    check: bool,
    /// As a JSON array of name, value and source
    #[arg(long)]
    json: bool,
}

/// Prints the effective settings, secrets masked; on stderr what `serve` would warn of.
pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    let config = Config::from_env(&ProcessEnv)?;
    for warning in config.warnings() {
        eprintln!("grapevine: warning: {warning}");
    }
    let settings = effective(&config, &ProcessEnv);
    let mut out = io::stdout().lock();
    let written = if args.check {
        writeln!(out, "the configuration is good")
    } else if args.json {
        writeln!(out, "{:#}", json(&settings))
    } else {
        table(&mut out, &settings)
    };
    written.map_err(|error| Failure::Run(Box::new(error)))
}

fn json(settings: &[Effective]) -> serde_json::Value {
    let row = |setting: &Effective| {
        serde_json::json!({
            "name": setting.name,
            "value": setting.value,
            "source": setting.source.name(),
        })
    };
    settings.iter().map(row).collect()
}

fn table(out: &mut impl Write, settings: &[Effective]) -> io::Result<()> {
    let width = settings.iter().map(|setting| setting.name.len()).max().unwrap_or(0);
    for setting in settings {
        let Effective { name, value, source } = setting;
        writeln!(out, "{name:width$}  {:7}  {value}", source.name())?;
    }
    Ok(())
}
