//! `grapevine explain`: where a request would go, and why.

use std::error::Error;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use grapevine_node::admin::decisions::ExplainView;

use crate::Failure;
use crate::admin::{AdminClient, AskError, NoAnswer, base_url, local_base};
use crate::verdict;

/// A decision takes microseconds; the body may be large and the network slow.
const LIMIT: Duration = Duration::from_secs(30);

/// Largest request that is asked about; the router has a limit of its own.
const MAX_BODY_BYTES: u64 = 256 << 20;

/// Ask a router where a request would go, and why; nothing is sent and nothing is kept
#[derive(Args, Debug, Clone)]
pub(crate) struct ExplainArgs {
    /// File with a request's body, as a client would send it; `-` for standard input
    file: PathBuf,
    /// Admin address of the router that is asked [default: GRAPEVINE_ADMIN_LISTEN, or 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR", value_parser = base_url)]
    admin: Option<String>,
    /// Path that the request would be sent to
    #[arg(long, value_name = "PATH", default_value = "/v1/chat/completions")]
    path: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// What to do when nobody answers.
const WHERE: &str = "say where a router's admin listener is, with `--admin HOST:PORT` or GRAPEVINE_ADMIN_LISTEN; \
     `grapevine up` prints its own";

/// The request cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {file}")]
struct Unread {
    file: String,
    source: io::Error,
}

/// A router said what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {no_answer}")]
struct Unexplained {
    file: String,
    no_answer: NoAnswer,
}

/// Asks a router and prints its answer.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let body = read(&args.file).map_err(|source| Box::new(Unread { file: named(&args.file), source }))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Box::new)?;
    let client = AdminClient::from_env(LIMIT).map_err(Box::new)?;
    let from = args.admin.clone().unwrap_or_else(local_base);
    let path = format!("/api/v1/explain?path={}", args.path);
    let answer = runtime.block_on(client.post(&from, &path, body));
    let explained: ExplainView = answer.map_err(|said| Failure::Run(unexplained(args, from, said)))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&explained).map_err(Box::new)?);
        return Ok(());
    }
    print!("{}", verdict::text(&explained.decision, usize::MAX));
    if let Some(replica) = &explained.affinity_replica {
        println!("\nshadow mode: affinity would have chosen {replica}");
    }
    Ok(())
}

fn unexplained(args: &ExplainArgs, from: String, said: AskError) -> Box<dyn Error> {
    let no_answer = NoAnswer { from, said };
    match no_answer.said {
        // That is about the request.
        AskError::Refused { .. } => Box::new(Unexplained { file: named(&args.file), no_answer }),
        _ => no_answer.hinting(WHERE),
    }
}

fn named(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let input: Box<dyn Read> =
        if file.as_os_str() == "-" { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(file)?) };
    let mut body = Vec::new();
    let read = input.take(MAX_BODY_BYTES + 1).read_to_end(&mut body)?;
    if read as u64 > MAX_BODY_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a request to explain is at most 256 MiB"));
    }
    Ok(body)
}
