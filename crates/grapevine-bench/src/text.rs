//! Prompts as text, as chat bodies and as token ids.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Bytes of text for one token, on average: what the router assumes, and near what tokenizers of
/// today give on English and code.
pub const BYTES_PER_TOKEN: usize = 4;

/// Words of one syllable or two; with the space about six bytes each.
const WORDS: [&str; 32] = [
    "the", "model", "answers", "with", "care", "and", "cites", "its", "sources", "when", "asked", "about",
    "numbers", "dates", "names", "or", "places", "code", "must", "compile", "before", "it", "runs", "return",
    "value", "of", "function", "line", "error", "test", "file", "user",
];

/// `bytes` of English-like text that only `seed` has; a line ends about every twelve words.
pub fn text(seed: u64, bytes: usize) -> String {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
        text.push(if rng.random_range(0..12) == 0 { '\n' } else { ' ' });
    }
    text.truncate(bytes);
    text
}

/// A chat body as clients write it: a system prompt and one question.
pub fn chat_body(system: &str, question: &str) -> Vec<u8> {
    let escape = |text: &str| text.replace('\n', "\\n");
    format!(
        r#"{{"model":"meta-llama/Llama-3.1-8B-Instruct","stream":true,"temperature":0.7,"messages":[{{"role":"system","content":"{}"}},{{"role":"user","content":"{}"}}]}}"#,
        escape(system),
        escape(question)
    )
    .into_bytes()
}

/// The token ids of a text, as a tokenizer would give them: one id for each four bytes. Not part of
/// anything that is timed.
pub fn tokens(text: &str) -> Vec<u32> {
    let ids = text.as_bytes().chunks_exact(BYTES_PER_TOKEN);
    ids.map(|four| four.iter().fold(0, |id, &byte| (id * 31 + u32::from(byte)) % 128_000)).collect()
}
