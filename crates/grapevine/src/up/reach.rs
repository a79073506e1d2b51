//! Whether real engines can be reached, before anything is started for them.

use std::time::Duration;

use grapevine_testkit::load::{ClientError, HttpClient, describe, http_client};

/// An engine that does not answer in that time is of no use here.
const LIMIT: Duration = Duration::from_secs(5);

/// Why it is not begun.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReachError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// These, and why.
    #[error("{}", unreached(.0))]
    Unreached(Vec<String>),
}

/// Asks every replica, all at once. Any answer will do: what it says is for the routers to judge.
pub(super) async fn all(replicas: &[String]) -> Result<(), ReachError> {
    let client = http_client(1, LIMIT)?;
    let ask = |replica: &String| tokio::spawn(problem(client.clone(), replica.clone()));
    let asked: Vec<_> = replicas.iter().map(ask).collect();
    let mut problems = Vec::new();
    for answer in asked {
        problems.extend(answer.await.ok().flatten());
    }
    if problems.is_empty() { Ok(()) } else { Err(ReachError::Unreached(problems)) }
}

async fn problem(client: HttpClient, replica: String) -> Option<String> {
    let error = client.get(format!("{replica}/v1/models")).send().await.err()?;
    let why = if error.is_timeout() {
        format!("no answer within {} s", LIMIT.as_secs())
    } else {
        describe(&error.without_url())
    };
    Some(format!("{replica}: {why}"))
}

fn unreached(problems: &[String]) -> String {
    let (noun, it) = if problems.len() == 1 { ("a replica", "it") } else { ("replicas", "them") };
    format!("cannot reach {noun}: start {it}, or leave {it} out of --replicas\n  {}", problems.join("\n  "))
}
