//! `grapevine key`: makes a key for a client.

use clap::Args;
use grapevine_node::auth::keys::line_for;

use crate::Failure;

/// Random bytes of a key: 256 bits.
const KEY_BYTES: usize = 32;

/// What `grapevine key` is told.
#[derive(Args)]
pub(crate) struct KeyArgs {
    /// The client's name in the file and in logs, without spaces
    name: String,
}

pub(crate) fn run(args: &KeyArgs) -> Result<(), Failure> {
    let name = args.name.trim();
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '#') {
        return Err(Failure::Run("a client's name has no spaces and no `#`".into()));
    }
    let bytes: [u8; KEY_BYTES] = rand::random();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("gv-{hex}");
    println!("key, for the client (it is shown only now):\n  {key}\n");
    println!("line for the file that GRAPEVINE_CLIENT_KEYS names:\n  {}", line_for(name, key.as_bytes()));
    Ok(())
}
