//! From a request body to a prefix key.
//!
//! ```text
//! body --> tape --> Fields ---- layout --> Canon (the prompt's bytes) --> boundary hashes
//!                     +- namespace: model, adapter, salts --> where the hash chain starts
//! ```
//!
//! The prompt's parts are written in the order in which chat templates print them (tools, then
//! system and the messages in turn, each with its role), text as JSON has it, its escapes in their
//! shortest form, so that what an engine would find in its prefix cache is what two keys share. Model, adapter and salts are no
//! part of the text: they choose the start of the hash chain, so different ones never share a path.
//! docs/prefix-key.md lists every case, and holds it against a real engine.
//!
//! Equal meaning gives an equal key: escapes, white space and the order of fields do not count, a
//! string equals a list of text parts, an Anthropic `system` equals a system message, marks and ids
//! that no template prints are left out. Images and audio enter as a digest of fixed length. A
//! billing line that changes with every request is left out (of the key, never of the body).

mod canon;
mod compact;
mod fields;
mod layout;
mod media;
mod raw;

use crate::json::{Kind, Tape, Value};
use canon::Canon;
use fields::Fields;

/// Which prompt layout a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI text completions (and llama.cpp's `/completion`).
    Completions,
    /// OpenAI responses.
    Responses,
    /// Anthropic messages.
    Messages,
    /// The native `/generate` of SGLang, vLLM, TGI and Triton.
    Generate,
    /// Anything else: routed by load alone.
    Other,
}

impl Api {
    /// The layout of requests to `path`.
    pub fn of_path(path: &str) -> Self {
        match path.trim_end_matches('/') {
            "/v1/chat/completions" | "/chat/completions" | "/v1/chat/completions/batch" => Self::Chat,
            "/cohere/v2/chat" | "/invocations" => Self::Chat,
            "/v1/completions" | "/completions" | "/completion" | "/infill" => Self::Completions,
            "/v1/responses" | "/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/generate" | "/generate_stream" | "/inference/v1/generate" => Self::Generate,
            path if is_triton(path) => Self::Generate,
            _ => Self::Other,
        }
    }
}

/// Triton's `/v2/models/NAME/generate`, with or without a version and `_stream`.
fn is_triton(path: &str) -> bool {
    path.starts_with("/v2/models/") && (path.ends_with("/generate") || path.ends_with("/generate_stream"))
}

/// What the hash chain starts from; derived from the fleet's secret, equal on all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySeed(pub u64);

/// Hashes of a prompt's boundaries, shallow to deep. Empty when there is nothing to key on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixKey {
    /// One per boundary, see [`crate::boundary`].
    pub hashes: Vec<u64>,
    /// Bytes of the whole canonical prompt (also past the last boundary).
    pub bytes: u64,
}

/// What routing needs to know of a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Prefix key; without boundaries when the body has no prompt that can be keyed.
    pub key: PrefixKey,
    /// The `model` field, unescaped, at most [`MAX_MODEL`] bytes.
    pub model: Option<String>,
    /// The body says `"stream": true`.
    pub stream: bool,
    /// It has images, audio or files: tokens that its bytes do not tell of.
    pub media: bool,
}

/// Longest model name that is read, bytes. Longer ones are cut (for metrics and spans only; the
/// key takes them whole).
pub const MAX_MODEL: usize = 256;

/// Scratch memory kept between requests, tokens of the tape. A larger request's is given back.
const KEEP_TOKENS: usize = 1 << 16;

/// Extracts [`Prompt`]s; keeps its scratch memory between calls.
pub struct Extractor {
    seed: KeySeed,
    tape: Tape,
    canon: Canon,
}

impl Extractor {
    /// An extractor of the fleet that `seed` belongs to.
    pub fn new(seed: KeySeed) -> Self {
        Self { seed, tape: Tape::default(), canon: Canon::default() }
    }

    /// Reads `body` as a request of `api`. Never fails: what is not understood has no key.
    /// `salt` (a tenant's, from outside the body) separates namespaces; empty for none.
    pub fn extract(&mut self, api: Api, body: &[u8], salt: &[u8]) -> Prompt {
        let Ok(root) = self.tape.scan(body) else { return Prompt::default() };
        let fields = Fields::of(root);
        self.canon.begin(fields.namespace(self.seed, salt));
        layout::write_prompt(&mut self.canon, api, &fields);
        let prompt = Prompt {
            key: PrefixKey { hashes: self.canon.hashes().to_vec(), bytes: self.canon.total() },
            model: fields.model.filter(Value::is_string).map(model_name),
            media: self.canon.has_media(),
            stream: fields.stream.is_some_and(|v| v.raw() == b"true" && v.kind() == Kind::Scalar),
        };
        self.tape.shrink_to(KEEP_TOKENS);
        prompt
    }
}

fn model_name(value: Value<'_>) -> String {
    let text = value.text();
    let mut name = String::from_utf8_lossy(text.get(..MAX_MODEL).unwrap_or(&text)).into_owned();
    // What stands for bytes that are no text is longer than they are.
    name.truncate(name.floor_char_boundary(MAX_MODEL));
    name
}

#[cfg(test)]
mod tests;
