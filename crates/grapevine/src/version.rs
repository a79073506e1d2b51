//! `grapevine version`.

use std::env::consts::{ARCH, OS};
use std::io::{self, Write};

use clap::Args;
use grapevine_node::mesh::{HASH_SCHEME, WIRE_VERSION};

use crate::Failure;

/// Options of `grapevine version`.
#[derive(Args)]
pub(crate) struct VersionArgs {
    /// As JSON
    #[arg(long)]
    json: bool,
}

/// Prints the version.
pub(crate) fn run(args: &VersionArgs) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = io::stdout().lock();
    let written = if args.json {
        let facts = serde_json::json!({
            "name": "grapevine",
            "version": version,
            "os": OS,
            "arch": ARCH,
            "wire_version": WIRE_VERSION,
            "hash_scheme": HASH_SCHEME,
        });
        writeln!(out, "{facts}")
    } else {
        writeln!(
            out,
            "grapevine {version} ({OS} {ARCH}, wire version {WIRE_VERSION}, hash scheme {HASH_SCHEME})"
        )
    };
    written.map_err(|error| Failure::Run(Box::new(error)))
}
