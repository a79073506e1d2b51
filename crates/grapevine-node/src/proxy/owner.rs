//! Which replica owns a stored response.
//!
//! An engine keeps the responses of `/v1/responses` in its own process, so whatever names one must reach the
//! replica that made it: a request with `previous_response_id`, and everything under `/v1/responses/{id}`.
//! The owner is remembered in the prefix tree, as a prefix of one boundary that the id stands for, and so
//! reaches every router by the same gossip. Where nobody remembers, replicas are asked one after another:
//! one that does not know the id says 404 and has done nothing.

use std::sync::Arc;

use bytes::Bytes;
use grapevine_tree::{Api, KeySeed, PrefixKey, ReplicaId};
use http::StatusCode;
use memchr::memmem;
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Proxy, keying};

/// Separates ids of responses from prefixes of prompts.
const CONTEXT: u64 = 0x7265_7370_6f6e_7365;

/// Bytes that the tree takes an id for: its first boundary, so that the entry is whole.
const KEY_BYTES: u64 = 128;

/// Longest id that is followed: OpenAI's have 53 characters.
const MAX_ID_BYTES: usize = 256;

/// Where everything about one response lies.
const PATH: &str = "/v1/responses/";

/// Bytes of an answer in which its id is looked for: engines write it first.
const HEAD_BYTES: usize = 2_048;

/// Replicas that are asked for an id that nobody remembers, at most. Each answers within milliseconds.
pub(super) const MOST_ASKED: usize = 16;

/// The response that a request refers to.
pub(super) async fn named(api: Api, path: &str, body: &Bytes) -> Option<String> {
    let id = match path.strip_prefix(PATH) {
        Some(rest) => rest.split('/').next().map(str::to_owned),
        None if api == Api::Responses => keying::read(body, previous).await,
        None => None,
    };
    id.filter(|id| (1..=MAX_ID_BYTES).contains(&id.len()))
}

fn previous(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Names {
        previous_response_id: Option<String>,
    }
    memmem::find(body, b"\"previous_response_id\"")?;
    serde_json::from_slice::<Names>(body).ok()?.previous_response_id
}

/// Whether an answer says that the replica does not have what was named.
pub(super) fn is_not_known(status: StatusCode) -> bool {
    status == StatusCode::NOT_FOUND
}

fn key_of(seed: KeySeed, id: &str) -> Arc<PrefixKey> {
    let hash = xxh3_64_with_seed(id.as_bytes(), seed.0 ^ CONTEXT);
    Arc::new(PrefixKey { hashes: vec![hash], bytes: KEY_BYTES })
}

impl Proxy {
    /// The replica that is believed to own a response.
    pub(super) async fn owner_of(&self, id: &str) -> Option<ReplicaId> {
        // Asked, not read: a client may come back with an id as soon as it has it.
        let found = self.tree.ask(&key_of(self.settings.key_seed, id), self.settings.lookup).await?;
        found.matches.iter().max_by(|a, b| a.count.total_cmp(&b.count)).map(|found| found.replica)
    }

    /// Remembers who made a response.
    pub(super) fn remember_owner(&self, id: &str, replica: ReplicaId) {
        self.tree.observe(&key_of(self.settings.key_seed, id), replica, 0, None);
    }
}

/// Looks for the id of a response at the beginning of an answer, whole or streamed.
#[derive(Debug, Default)]
pub(super) struct IdWatch {
    head: Vec<u8>,
    done: bool,
}

impl IdWatch {
    /// A piece passed; the id when it is complete.
    pub(super) fn push(&mut self, data: &Bytes) -> Option<String> {
        if self.done {
            return None;
        }
        let room = HEAD_BYTES - self.head.len();
        self.head.extend_from_slice(data.get(..room).unwrap_or(data));
        let found = find_id(&self.head);
        if found.is_some() || self.head.len() >= HEAD_BYTES {
            *self = Self { head: Vec::new(), done: true };
        }
        found
    }
}

/// The first `"id": "…"`, which is the response's own.
fn find_id(head: &[u8]) -> Option<String> {
    const FIELD: &[u8] = b"\"id\"";
    let value = head.get(memmem::find(head, FIELD)? + FIELD.len()..)?.trim_ascii_start();
    let text = value.strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    let end = memchr::memchr(b'"', text)?;
    let id = text.get(..end).filter(|id| id.len() <= MAX_ID_BYTES && !id.contains(&b'\\'))?;
    std::str::from_utf8(id).ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_names_a_response_in_its_body_or_its_path() {
        let named = async |api, path, body: &'static [u8]| named(api, path, &Bytes::from_static(body)).await;
        let body = br#"{"model":"m","previous_response_id":"resp_1","input":"hi"}"#;
        assert_eq!(named(Api::Responses, "/v1/responses", body).await.as_deref(), Some("resp_1"));
        assert_eq!(named(Api::Chat, "/v1/chat/completions", body).await, None);
        let null = br#"{"previous_response_id":null}"#;
        assert_eq!(named(Api::Responses, "/v1/responses", null).await, None);
        let text = br#"{"input":"\"previous_response_id\""}"#;
        assert_eq!(named(Api::Responses, "/v1/responses", text).await, None);
        for path in
            ["/v1/responses/resp_2", "/v1/responses/resp_2/cancel", "/v1/responses/resp_2/input_items"]
        {
            assert_eq!(named(Api::Other, path, b"").await.as_deref(), Some("resp_2"), "{path}");
        }
        assert_eq!(named(Api::Other, "/v1/responses/", b"").await, None);
    }

    #[test]
    fn an_answers_id_is_found_however_it_is_cut() {
        let whole = r#"{"id": "resp_7", "object":"response","output":[{"id":"msg_1"}]}"#;
        let events = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_7\"}}\n\n";
        for text in [whole, events] {
            for size in [1, 5, 4_096] {
                let mut watch = IdWatch::default();
                let found = text.as_bytes().chunks(size).find_map(|c| watch.push(&Bytes::copy_from_slice(c)));
                assert_eq!(found.as_deref(), Some("resp_7"), "chunks of {size}");
            }
        }
        let mut watch = IdWatch::default();
        assert_eq!(watch.push(&Bytes::from(vec![b'x'; 10 * HEAD_BYTES])), None);
        assert!(watch.done && watch.head.is_empty(), "it gives up");
    }
}
