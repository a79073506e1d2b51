//! One request of a workload.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::engine::render_message;

/// A chat message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// Its text, shared between the requests that carry it.
    #[serde(serialize_with = "as_str")]
    pub content: Arc<str>,
}

/// serde would need its `rc` feature.
fn as_str<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// A request that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Its number in the workload, from 0.
    pub index: usize,
    /// The shared prefix or the conversation that it belongs to.
    pub group: usize,
    /// How many of its group came before.
    pub turn: usize,
    /// It must wait for the answer to the turn before, as in a conversation.
    pub in_turn: bool,
    /// The prompt.
    pub messages: Vec<Message>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [Message],
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl Ask {
    /// The prompt's bytes as the simulated engine cuts them into blocks.
    pub fn render(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for message in &self.messages {
            render_message(&mut out, message.role, &message.content);
        }
        out
    }

    /// The body of its chat completion request; a stream is asked to report usage.
    pub fn body(&self, model: &str, max_tokens: u32, stream: bool) -> Vec<u8> {
        let stream_options = stream.then_some(StreamOptions { include_usage: true });
        let body = Body { model, messages: &self.messages, max_tokens, stream, stream_options };
        serde_json::to_vec(&body).expect("strings and numbers always serialise")
    }
}
