//! From a request body to a prefix key.
//!
//! The prompt's parts are written in the order in which chat templates print them (tools, then
//! system and the messages in turn, each with its role), text as its plain bytes, so that what an
//! engine would find in its prefix cache is what two keys share. Model, adapter and salts are no
//! part of the text: they choose the start of the hash chain, so different ones never share a path.
//!
//! Equal meaning gives an equal key where that is cheap: escapes are resolved, a string equals a
//! list with one text part, an Anthropic `system` equals a system message, white space between
//! JSON tokens and `cache_control` marks do not count. Images and audio enter as a digest of fixed
//! length. A billing line that changes with every request is left out (of the key, never of the
//! body).

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::boundary::{self, MAX_BYTES};
use crate::json::{Kind, Tape, Value};

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
}

/// Longest model name that is read, bytes. Longer ones are cut (for metrics and spans only; the
/// key takes them whole).
pub const MAX_MODEL: usize = 256;

/// What an image counts as: about 1,024 tokens at 4 B, between what small and large vision
/// encoders use. Its bytes are a digest, repeated.
const IMAGE_BYTES: usize = 4096;

/// Audio and files: about 256 tokens.
const MEDIA_BYTES: usize = 1024;

/// Strings in structured parts (not in text) beyond this length are data, not prompt: digested.
const MAX_INLINE: usize = 4096;

/// Scratch memory kept between requests: tokens of the tape, bytes of text. A larger request's is given
/// back.
const KEEP_TOKENS: usize = 1 << 16;
const KEEP_BYTES: usize = 512 * 1024;

/// The first line of the first system block of one widespread agent; changes with every request
/// and is removed by engines before templating.
const NONCE_LINE: &[u8] = b"x-anthropic-billing-header:";

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
        self.canon.clear();
        write_prompt(&mut self.canon, api, &fields);
        let mut prompt = Prompt {
            key: PrefixKey { hashes: Vec::new(), bytes: self.canon.total },
            model: fields.model.map(model_name),
            stream: fields.stream.is_some_and(|v| v.raw() == b"true" && v.kind() == Kind::Scalar),
        };
        if self.canon.total > 0 {
            let seed = fields.namespace(self.seed, salt, &mut self.canon.word);
            prompt.key.hashes.reserve_exact(boundary::count(self.canon.text.len()));
            boundary::hash_into(seed, &self.canon.text, &mut prompt.key.hashes);
        }
        self.tape.shrink_to(KEEP_TOKENS);
        self.canon.text.truncate(KEEP_BYTES);
        self.canon.text.shrink_to(KEEP_BYTES);
        prompt
    }
}

/// The members of the body that matter; of equal names the last one, as engines read them.
#[derive(Default)]
struct Fields<'a> {
    model: Option<Value<'a>>,
    stream: Option<Value<'a>>,
    tools: Option<Value<'a>>,
    messages: Option<Value<'a>>,
    system: Option<Value<'a>>,
    prompt: Option<Value<'a>>,
    text: Option<Value<'a>>,
    ids: Option<Value<'a>>,
    input: Option<Value<'a>>,
    previous: Option<Value<'a>>,
    /// What else separates caches: salts, adapters, template switches that print at the head.
    scopes: [Option<Value<'a>>; SCOPES.len()],
}

const SCOPES: [&[u8]; 5] = [b"cache_salt", b"extra_key", b"lora_path", b"chat_template", b"reasoning_effort"];

impl<'a> Fields<'a> {
    fn of(root: Value<'a>) -> Self {
        let mut fields = Self::default();
        for (name, value) in root.members() {
            let slot = match name {
                b"model" => &mut fields.model,
                b"stream" => &mut fields.stream,
                b"tools" => &mut fields.tools,
                b"messages" => &mut fields.messages,
                b"system" | b"instructions" => &mut fields.system,
                b"prompt" => &mut fields.prompt,
                b"text" => &mut fields.text,
                b"input_ids" | b"token_ids" => &mut fields.ids,
                b"input" => &mut fields.input,
                b"previous_response_id" => &mut fields.previous,
                _ => match SCOPES.iter().position(|scope| *scope == name) {
                    Some(at) => &mut fields.scopes[at],
                    None => continue,
                },
            };
            *slot = (!is_null(value)).then_some(value);
        }
        fields
    }

    /// Where the hash chain starts: the fleet's seed, then model, salts and the like.
    fn namespace(&self, seed: KeySeed, salt: &[u8], word: &mut Vec<u8>) -> u64 {
        let mut chain = xxh3_64_with_seed(salt, seed.0);
        for (tag, value) in (1u64..).zip(std::iter::once(&self.model).chain(&self.scopes)) {
            let Some(value) = value else { continue };
            word.clear();
            value.text_into(word);
            chain = xxh3_64_with_seed(word, chain.wrapping_add(tag));
        }
        chain
    }
}

fn is_null(value: Value<'_>) -> bool {
    value.kind() == Kind::Scalar && value.raw() == b"null"
}

fn model_name(value: Value<'_>) -> String {
    let mut name = Vec::new();
    value.text_into(&mut name);
    name.truncate(MAX_MODEL);
    String::from_utf8_lossy(&name).into_owned()
}

/// The canonical prompt: its first [`MAX_BYTES`], and how long all of it is.
#[derive(Default)]
struct Canon {
    text: Vec<u8>,
    total: u64,
    word: Vec<u8>,
}

/// Separators start with a byte that no UTF-8 text contains, so no text can imitate them.
const ROLE: &[u8] = b"\xffR";
const CONTENT: &[u8] = b"\xffC";
const PART: &[u8] = b"\xffP";
const FIELD: &[u8] = b"\xffF";
const TOOLS: &[u8] = b"\xffT";

impl Canon {
    fn clear(&mut self) {
        self.text.clear();
        self.total = 0;
    }

    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = MAX_BYTES - self.text.len();
        self.text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn push_text(&mut self, value: Value<'_>) {
        let raw = value.raw();
        let (before, room) = (self.text.len(), MAX_BYTES - self.text.len());
        if raw.len() <= room {
            value.text_into(&mut self.text);
            self.total += (self.text.len() - before) as u64;
        } else {
            // Past the limit only the length counts. An escape is at most six times its text.
            value.text_prefix_into(room * 6, &mut self.text);
            self.text.truncate(MAX_BYTES);
            self.total += raw.len() as u64;
        }
    }

    fn push_digest(&mut self, data: &[u8], length: usize) {
        let digest = xxh3_64(data).to_le_bytes();
        for _ in 0..length / digest.len() {
            self.push(&digest);
        }
    }
}

fn write_prompt(out: &mut Canon, api: Api, fields: &Fields<'_>) {
    match api {
        Api::Chat => {
            write_tools(out, fields);
            write_messages(out, fields.messages);
        }
        Api::Messages => {
            write_tools(out, fields);
            write_system(out, fields.system);
            write_messages(out, fields.messages);
        }
        // What came before lives in the engine, unknown here: no key.
        Api::Responses if fields.previous.is_some() => {}
        Api::Responses => {
            write_tools(out, fields);
            write_system(out, fields.system);
            write_input(out, fields.input);
        }
        Api::Completions => write_raw(out, fields.prompt),
        Api::Generate => write_raw(out, fields.prompt.or(fields.text).or(fields.ids)),
        Api::Other => {}
    }
}

fn write_tools(out: &mut Canon, fields: &Fields<'_>) {
    if let Some(tools) = fields.tools.filter(|t| t.items().next().is_some()) {
        out.push(TOOLS);
        write_compact(out, tools, usize::MAX);
    }
}

fn write_system(out: &mut Canon, system: Option<Value<'_>>) {
    if let Some(system) = system {
        out.push(ROLE);
        out.push(b"system");
        write_content(out, system, true);
    }
}

fn write_messages(out: &mut Canon, messages: Option<Value<'_>>) {
    for message in messages.iter().flat_map(Value::items) {
        write_message(out, message);
    }
}

/// OpenAI responses: a string is one user message; items are messages or tool traffic.
fn write_input(out: &mut Canon, input: Option<Value<'_>>) {
    let Some(input) = input else { return };
    if input.is_string() {
        out.push(ROLE);
        out.push(b"user");
        return write_content(out, input, false);
    }
    write_messages(out, Some(input));
}

/// Role and content first, whatever their order in the body, then what else a template may print.
fn write_message(out: &mut Canon, message: Value<'_>) {
    out.push(ROLE);
    let role = message.get("role");
    if let Some(role) = role {
        out.push_text(role);
    }
    if let Some(content) = message.get("content") {
        write_content(out, content, role.is_some_and(|r| r.is_text("system")));
    }
    for (name, value) in message.members() {
        // An item's id is the server's, not the template's.
        if matches!(name, b"role" | b"content" | b"cache_control" | b"id" | b"status") || is_null(value) {
            continue;
        }
        if name == b"type" && value.is_text("message") {
            continue;
        }
        out.push(FIELD);
        out.push(name);
        write_compact(out, value, usize::MAX);
    }
}

/// A string, or parts. One text part equals the string.
fn write_content(out: &mut Canon, content: Value<'_>, system: bool) {
    out.push(CONTENT);
    if content.is_string() {
        return write_text(out, content, system);
    }
    let mut separate = false;
    for part in content.items() {
        if system && !separate && part.get("text").is_some_and(is_nonce_only) {
            continue;
        }
        if std::mem::replace(&mut separate, true) {
            out.push(PART);
        }
        write_part(out, part, system);
    }
}

fn write_part(out: &mut Canon, part: Value<'_>, system: bool) {
    if part.is_string() {
        return write_text(out, part, system);
    }
    let kind = part.get("type").map_or(&b""[..], |k| k.raw());
    match kind {
        b"text" | b"input_text" | b"output_text" | b"" => match part.get("text") {
            Some(text) => write_text(out, text, system),
            None => write_compact(out, part, MAX_INLINE),
        },
        b"image_url" | b"input_image" | b"image" => write_media(out, part, IMAGE_BYTES),
        b"input_audio" | b"audio_url" | b"audio" | b"video_url" | b"file" | b"input_file" => {
            write_media(out, part, MEDIA_BYTES);
        }
        _ => write_compact(out, part, MAX_INLINE),
    }
}

/// The digest of everything that says which image it is: its URL or data.
fn write_media(out: &mut Canon, part: Value<'_>, length: usize) {
    let mut digest = 0;
    digest_media(part, &mut digest);
    out.push_digest(&digest.to_le_bytes(), length);
}

fn digest_media(value: Value<'_>, digest: &mut u64) {
    match value.kind() {
        Kind::Object => {
            for (name, value) in value.members().filter(|(name, _)| *name != b"cache_control") {
                *digest = xxh3_64_with_seed(name, *digest);
                digest_media(value, digest);
            }
        }
        Kind::Array => value.items().for_each(|item| digest_media(item, digest)),
        _ => *digest = xxh3_64_with_seed(value.raw(), *digest),
    }
}

fn write_text(out: &mut Canon, text: Value<'_>, system: bool) {
    if !(system && text.raw().starts_with(NONCE_LINE)) {
        return out.push_text(text);
    }
    // Leave the line out, keep what follows it.
    let mut word = std::mem::take(&mut out.word);
    word.clear();
    text.text_into(&mut word);
    let rest = memchr::memchr(b'\n', &word).and_then(|end| word.get(end + 1..));
    out.push(rest.unwrap_or_default());
    out.word = word;
}

fn is_nonce_only(text: Value<'_>) -> bool {
    let raw = text.raw();
    raw.starts_with(NONCE_LINE) && memchr::memmem::find(raw, b"\\n").is_none() && !raw.contains(&b'\n')
}

/// Completions: text, token ids, or a list of either, of which the first prompt makes the key and
/// all count for length.
fn write_raw(out: &mut Canon, prompt: Option<Value<'_>>) {
    let Some(prompt) = prompt else { return };
    if prompt.is_string() {
        return out.push_text(prompt);
    }
    if prompt.items().any(|item| item.kind() == Kind::Scalar) {
        return write_ids(out, prompt);
    }
    let mut items = prompt.items();
    write_raw_one(out, items.next());
    let mut rest = Canon::default();
    for item in items {
        rest.clear();
        write_raw_one(&mut rest, Some(item));
        out.total += rest.total;
    }
}

fn write_raw_one(out: &mut Canon, item: Option<Value<'_>>) {
    match item {
        Some(item) if item.is_string() => out.push_text(item),
        Some(item) => write_ids(out, item),
        None => {}
    }
}

/// A token id counts as four bytes, which is what a token of text has on average. llama.cpp lets
/// strings stand between ids.
fn write_ids(out: &mut Canon, ids: Value<'_>) {
    for id in ids.items() {
        if id.is_string() {
            out.push_text(id);
            continue;
        }
        let number = id.raw().iter().take_while(|c| c.is_ascii_digit());
        let number = number.fold(0u32, |n, c| n.wrapping_mul(10).wrapping_add(u32::from(c - b'0')));
        out.push(&number.to_le_bytes());
    }
}

/// JSON without the white space between its tokens, strings as text, strings over `max_inline`
/// digested, cache marks left out.
fn write_compact(out: &mut Canon, value: Value<'_>, max_inline: usize) {
    match value.kind() {
        Kind::Object => {
            out.push(b"{");
            for (name, value) in value.members().filter(|(name, _)| *name != b"cache_control") {
                out.push(name);
                out.push(b":");
                write_compact(out, value, max_inline);
                out.push(b",");
            }
            out.push(b"}");
        }
        Kind::Array => {
            out.push(b"[");
            for item in value.items() {
                write_compact(out, item, max_inline);
                out.push(b",");
            }
            out.push(b"]");
        }
        Kind::Scalar => out.push(value.raw()),
        Kind::String if value.raw().len() > max_inline => {
            out.push_digest(value.raw(), MEDIA_BYTES);
        }
        Kind::String => {
            out.push(b"\"");
            out.push_text(value);
            out.push(b"\"");
        }
    }
}

#[cfg(test)]
mod tests;
