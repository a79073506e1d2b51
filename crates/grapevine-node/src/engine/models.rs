//! Asking a replica which models it serves.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::timeout;

use crate::bounded;
use crate::replica::Replica;

/// Where every engine with OpenAI's API lists its models.
pub const PATH: &str = "/v1/models";

/// Limit of one question.
pub const LIMIT: Duration = Duration::from_secs(3);

/// Largest list that is read, bytes: thousands of adapters.
pub const MAX_BYTES: usize = 4 << 20;

/// Most models that are kept of one replica.
const MAX_MODELS: usize = 10_000;

/// Why a replica's models are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlisted {
    /// It did not answer, or said that it is not ready: it may list them later.
    #[error("no answer")]
    NoAnswer,
    /// It answered, but with no list.
    #[error("it does not list its models")]
    NoList,
}

/// Names of models.
pub type Models = BTreeSet<Box<str>>;

/// Asks `replica` for its models.
pub async fn ask(client: &reqwest::Client, replica: &Replica) -> Result<Models, Unlisted> {
    let asked = async {
        let mut answer = replica.get(client, PATH).send().await.map_err(|_| Unlisted::NoAnswer)?;
        if answer.status().is_server_error() {
            return Err(Unlisted::NoAnswer);
        }
        if !answer.status().is_success() {
            return Err(Unlisted::NoList);
        }
        let body = bounded::read(&mut answer, MAX_BYTES).await.map_err(|error| match error {
            bounded::ReadError::TooLong => Unlisted::NoList,
            bounded::ReadError::Broken(_) => Unlisted::NoAnswer,
        })?;
        parse(&body).ok_or(Unlisted::NoList)
    };
    timeout(LIMIT, asked).await.unwrap_or(Err(Unlisted::NoAnswer))
}

/// Reads OpenAI's list. An empty one says nothing: an engine without models serves nobody.
fn parse(body: &[u8]) -> Option<Models> {
    #[derive(Deserialize)]
    struct List {
        data: Vec<Model>,
    }
    #[derive(Deserialize)]
    struct Model {
        id: Box<str>,
    }
    let list: List = serde_json::from_slice(body).ok()?;
    let models: Models = list.data.into_iter().take(MAX_MODELS).map(|model| model.id).collect();
    (!models.is_empty()).then_some(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_nothing_else_is_taken_for_one() {
        let list = br#"{"object":"list","models":[{"name":"x"}],"data":[{"id":"a","root":"a"},{"id":"a-lora","parent":"a"}]}"#;
        assert_eq!(parse(list), Some(["a", "a-lora"].map(Box::from).into()));
        for other in [&b""[..], b"{}", b"<html>", br#"{"data":[]}"#, br#"{"data":[{"name":"a"}]}"#, b"[]"] {
            assert_eq!(parse(other), None);
        }
    }
}
