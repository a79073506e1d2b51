//! From a request body to a prefix key. (API first; implementation follows.)

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
    /// SGLang's and vLLM's native `/generate`.
    Generate,
    /// Anything else: routed by load alone.
    Other,
}

impl Api {
    /// The layout of requests to `path`.
    pub fn of_path(path: &str) -> Self {
        match path.trim_end_matches('/') {
            "/v1/chat/completions" | "/chat/completions" => Self::Chat,
            "/v1/completions" | "/completions" | "/completion" => Self::Completions,
            "/v1/responses" | "/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            "/generate" | "/inference/v1/generate" => Self::Generate,
            _ => Self::Other,
        }
    }
}

/// What the hash chain starts from; derived from the fleet's secret, equal on all routers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeySeed(pub u64);

/// Hashes of a prompt's boundaries, shallow to deep. Empty when there is nothing to key on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixKey {
    /// One per boundary, see [`crate::boundary`].
    pub hashes: Vec<u64>,
    /// Bytes of the whole canonical prompt (also past the last boundary or the 512 KiB limit).
    pub bytes: u64,
}

/// What routing needs to know of a request body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Prefix key; without boundaries when the body has no prompt that can be keyed.
    pub key: PrefixKey,
    /// The `model` field, unescaped, at most 256 bytes.
    pub model: Option<String>,
    /// The body says `"stream": true`.
    pub stream: bool,
}

/// Extracts [`Prompt`]s; keeps its scratch memory between calls.
pub struct Extractor {
    seed: KeySeed,
}

impl Extractor {
    /// An extractor of the fleet that `seed` belongs to.
    pub fn new(seed: KeySeed) -> Self {
        Self { seed }
    }

    /// Reads `body` as a request of `api`. Never fails: what is not understood has no key.
    /// `salt` (a tenant's, from outside the body) separates namespaces; empty for none.
    pub fn extract(&mut self, api: Api, body: &[u8], salt: &[u8]) -> Prompt {
        let _ = (api, body, salt, self.seed.0);
        Prompt::default()
    }
}
