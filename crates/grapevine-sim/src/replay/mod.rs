//! Trace replay: `grapevine replay TRACE`.
//!
//! Requests of a recorded trace ([`trace`]) arrive in virtual time at routers ([`router`]) that run
//! the real prefix key, tree, votes, guard and picker, and go to model engines ([`engine`]). Rules of
//! other routers ([`rule`]) can be put in place of the votes. [`world`] is the event loop, [`report`]
//! what comes out. `bound` is what one cache of the size of all would have hit, requests in the same
//! order: no placement can be expected to beat it.

mod args;
pub mod engine;
pub mod plot;
pub mod report;
pub mod router;
pub mod rule;
pub mod trace;
pub(crate) mod unit;
pub mod world;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

pub use self::args::ReplayArgs;
use self::report::Report;
use self::rule::RuleName;
use self::trace::{Trace, TraceError};

/// A replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be used.
    #[error("cannot use the trace")]
    Trace(#[from] TraceError),
    /// The result cannot be written.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
    /// The picture cannot be written.
    #[error("cannot write {}", path.display())]
    Plot {
        /// Where to.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs a replay, writes its result to `out` and complaints about the trace to `err`.
pub fn run_replay(args: &ReplayArgs, out: &mut impl Write, err: &mut impl Write) -> Result<(), ReplayError> {
    let trace = Trace::read(&args.trace, &args.read_options())?;
    if trace.rejected.count > 0 {
        writeln!(err, "{}", trace.rejected)?;
    }
    let replay = |&rule: &RuleName| world::replay(&trace, &args.setup(&trace, rule)).report(rule.name());
    let reports: Vec<Report> = args.policy.names().iter().map(replay).collect();
    if let Some(path) = &args.plot {
        let name = args.trace.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let unwritten = |source| ReplayError::Plot { path: path.clone(), source };
        std::fs::write(path, plot::svg(&name, &reports)).map_err(unwritten)?;
    }
    match args.json {
        true => writeln!(out, "{}", object(args, &trace, &reports))?,
        false => write!(out, "{}{}", head(args, &trace), report::table(&reports))?,
    }
    Ok(())
}

/// The report of one policy, and with several, all of them beside it.
fn object(args: &ReplayArgs, trace: &Trace, reports: &[Report]) -> Value {
    let main = args.policy.main();
    let asked = reports.iter().find(|report| report.policy == main.name());
    let mut object = asked.map(Report::json).unwrap_or_default();
    object.insert("working_set_tokens".to_owned(), json!(trace.working_set_tokens()));
    object.insert("cache_tokens".to_owned(), json!(args.setup(trace, main).engine.cache_tokens));
    object.insert("bad_lines".to_owned(), json!(trace.rejected.count));
    if reports.len() > 1 {
        let all: Vec<Value> = reports.iter().map(|report| Value::Object(report.json())).collect();
        object.insert("policies".to_owned(), Value::Array(all));
    }
    Value::Object(object)
}

fn head(args: &ReplayArgs, trace: &Trace) -> String {
    let setup = args.setup(trace, args.policy.main());
    format!(
        "{} requests, working set {} tokens; {} replicas with {} tokens of cache each, {} router(s)\n",
        trace.calls.len(),
        trace.working_set_tokens(),
        setup.replicas,
        setup.engine.cache_tokens,
        setup.routers
    )
}
