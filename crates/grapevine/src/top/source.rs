//! Where the figures come from: the first of the given routers that answers. It asks the others itself.

use std::time::Duration;

use grapevine_node::admin::decisions::{DecisionList, DecisionView};
use grapevine_node::admin::fleet_view::Fleet;

use crate::admin::{AdminClient, AdminError, AskError, NoAnswer};

/// A router that cannot answer in that time is asked again later; the next one is asked at once. Longer
/// than a router waits for its peers.
const LIMIT: Duration = Duration::from_secs(4);

/// Decisions asked for: more than a terminal shows.
const DECISIONS: usize = 100;

/// What one router said.
#[derive(Debug)]
pub(super) struct Update {
    /// Its admin address.
    pub(super) from: String,
    /// The fleet.
    pub(super) fleet: Fleet,
    /// Its latest decisions, the newest first.
    pub(super) decisions: Vec<DecisionView>,
}

/// Routers to ask.
pub(super) struct Source {
    client: AdminClient,
    bases: Vec<String>,
    /// The one that answered last.
    at: usize,
}

impl Source {
    pub(super) fn new(bases: Vec<String>) -> Result<Self, AdminError> {
        Ok(Self { client: AdminClient::from_env(LIMIT)?, bases, at: 0 })
    }

    /// Asks the router that answered last, then the others in turn. If none answers: what the first said.
    pub(super) async fn ask(&mut self) -> Result<Update, NoAnswer> {
        let mut first = None;
        for step in 0..self.bases.len() {
            let at = (self.at + step) % self.bases.len();
            let Some(base) = self.bases.get(at) else { break };
            match self.ask_one(base).await {
                Ok(update) => {
                    self.at = at;
                    return Ok(update);
                }
                Err(said) => first = first.or(Some(NoAnswer { from: base.clone(), said })),
            }
        }
        Err(first.unwrap_or(NoAnswer { from: "nobody".to_owned(), said: AskError::Silent }))
    }

    async fn ask_one(&self, base: &str) -> Result<Update, AskError> {
        let fleet = self.client.get(base, "/api/v1/fleet").await?;
        let path = format!("/api/v1/decisions?limit={DECISIONS}");
        let list: DecisionList = self.client.get(base, &path).await?;
        Ok(Update { from: base.to_owned(), fleet, decisions: list.decisions })
    }
}
