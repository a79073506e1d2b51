//! The members of a request body that matter, and which caches are kept apart by them.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::KeySeed;
use super::canon::Canon;
use super::compact::{Style, write_compact};
use crate::json::Value;

/// Of equal names the last one counts, as engines read them; `null` is nothing.
#[derive(Default)]
pub(super) struct Fields<'a> {
    pub(super) model: Option<Value<'a>>,
    pub(super) stream: Option<Value<'a>>,
    pub(super) tools: Option<Value<'a>>,
    pub(super) documents: Option<Value<'a>>,
    pub(super) messages: Option<Value<'a>>,
    pub(super) system: Option<Value<'a>>,
    /// Text, token ids, or a list of either.
    pub(super) prompt: Option<Value<'a>>,
    /// Token ids, or a list of lists of them.
    pub(super) ids: Option<Value<'a>>,
    pub(super) input: Option<Value<'a>>,
    pub(super) previous: Option<Value<'a>>,
    /// What comes with a raw prompt and is no text.
    pub(super) media: [Option<Value<'a>>; MEDIA.len()],
    scopes: [Option<Value<'a>>; SCOPES.len()],
    groups: [Option<Value<'a>>; GROUPS.len()],
}

/// SGLang's images, audio and video; vLLM's processed ones.
const MEDIA: [&[u8]; 4] = [b"image_data", b"audio_data", b"video_data", b"features"];

/// What keeps caches apart besides the model: salts, adapters, and what templates print at the head.
const SCOPES: [&[u8]; 7] = [
    b"cache_salt",
    b"extra_key",
    b"lora_path",
    b"chat_template",
    // llama.cpp: a list of adapters with their scales.
    b"lora",
    // LoRAX; TGI has it in `parameters`.
    b"adapter_id",
    // The system message of gpt-oss begins with it.
    b"reasoning_effort",
];

/// Objects that may hold one of these instead.
const GROUPS: [&[u8]; 3] = [b"parameters", b"chat_template_kwargs", b"reasoning"];

impl<'a> Fields<'a> {
    pub(super) fn of(root: Value<'a>) -> Self {
        let mut fields = Self::default();
        for (name, value) in root.members() {
            if let Some(slot) = fields.slot(&name) {
                *slot = Some(value).filter(|value| !value.is_null());
            }
        }
        fields
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<Value<'a>>> {
        Some(match name {
            b"model" => &mut self.model,
            b"stream" => &mut self.stream,
            b"tools" => &mut self.tools,
            b"documents" => &mut self.documents,
            b"messages" => &mut self.messages,
            b"system" | b"instructions" => &mut self.system,
            b"prompt" | b"text" | b"inputs" | b"text_input" | b"input_prefix" => &mut self.prompt,
            b"input_ids" | b"token_ids" => &mut self.ids,
            b"input" => &mut self.input,
            b"previous_response_id" => &mut self.previous,
            _ => {
                let find = |names: &[&[u8]]| names.iter().position(|known| *known == name);
                return match (find(&MEDIA), find(&SCOPES), find(&GROUPS)) {
                    (Some(at), _, _) => self.media.get_mut(at),
                    (_, Some(at), _) => self.scopes.get_mut(at),
                    (_, _, Some(at)) => self.groups.get_mut(at),
                    _ => None,
                };
            }
        })
    }

    /// Where the hash chain starts: the fleet's seed, then model, salts and the like.
    pub(super) fn namespace(&self, seed: KeySeed, salt: &[u8]) -> u64 {
        let mut chain = xxh3_64_with_seed(salt, seed.0);
        let [parameters, template, reasoning] = self.groups;
        let [salts @ .., adapter, effort] = self.scopes;
        let inside = |group: Option<Value<'a>>, name| group?.get(name).filter(|value| !value.is_null());
        let adapter = adapter.or_else(|| inside(parameters, "adapter_id"));
        let effort = effort.or_else(|| inside(template, "reasoning_effort"));
        let effort = effort.or_else(|| inside(reasoning, "effort"));
        let scopes = [self.model].into_iter().chain(salts).chain([adapter, effort]);
        for (tag, value) in (1u64..).zip(scopes) {
            let Some(value) = value else { continue };
            let mut word = Canon::default();
            if value.is_string() {
                word.push_text(value);
            } else {
                write_compact(&mut word, value, Style::Sorted);
            }
            chain = xxh3_64_with_seed(word.text(), chain.wrapping_add(tag));
        }
        chain
    }
}
