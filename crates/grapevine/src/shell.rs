//! `grapevine completions` and `grapevine man`: what a package installs beside the binary, made from
//! the command line itself, so that it cannot say anything else.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::Failure;

/// What `grapevine completions` is told.
#[derive(Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Prints the completions of `command`.
pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<(), Failure> {
    let name = command.get_name().to_owned();
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut out);
    print(&out)
}

/// What `grapevine man` is told.
#[derive(Args)]
pub(crate) struct ManArgs {
    /// Write a page for each subcommand into this folder, instead of the main page to stdout
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The pages cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write manual pages into {}", dir.display())]
struct Unwritten {
    dir: PathBuf,
    source: io::Error,
}

/// Prints the manual page of `command`, or writes all of them.
pub(crate) fn man(args: &ManArgs, command: Command) -> Result<(), Failure> {
    match &args.dir {
        None => print(&page(command).map_err(Box::new)?),
        Some(dir) => {
            let unwritten = |source| Box::new(Unwritten { dir: dir.clone(), source });
            Ok(write_pages(dir, command).map_err(unwritten)?)
        }
    }
}

fn page(command: Command) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    clap_mangen::Man::new(command).render(&mut out)?;
    Ok(out)
}

fn write_pages(dir: &Path, command: Command) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)
}

fn print(text: &[u8]) -> Result<(), Failure> {
    io::stdout().lock().write_all(text).map_err(|error| Failure::Run(Box::new(error)))
}
