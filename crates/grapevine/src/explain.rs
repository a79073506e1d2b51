//! `grapevine explain`: where a request would go, and why.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use grapevine_node::admin::decisions::ExplainView;

use crate::Failure;
use crate::admin::{AdminClient, NoAnswer, base_url, local_base};
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

/// Asks a router and prints its answer.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let body = read(&args.file).map_err(Box::new)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Box::new)?;
    let client = AdminClient::from_env(LIMIT).map_err(Box::new)?;
    let from = args.admin.clone().unwrap_or_else(local_base);
    let path = format!("/api/v1/explain?path={}", args.path);
    let answer = runtime.block_on(client.post(&from, &path, body));
    let explained: ExplainView = answer.map_err(|said| Box::new(NoAnswer { from, said }))?;
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

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if file.as_os_str() == "-" {
        std::io::stdin().take(MAX_BODY_BYTES).read_to_end(&mut body)?;
    } else {
        std::fs::File::open(file)?.take(MAX_BODY_BYTES).read_to_end(&mut body)?;
    }
    Ok(body)
}
