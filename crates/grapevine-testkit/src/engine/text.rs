//! What the engine "says": text that follows from the prompt alone, four bytes a token.
//!
//! Whoever knows the prompt knows the answer, so a test can check that a router delivered the right
//! bytes to the right client.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Bytes that count as one token, in prompts and in answers.
pub const TOKEN_BYTES: usize = 4;

/// Tokens that `bytes` of text count for: at least one, as no engine reports an empty prompt.
pub fn tokens_of(bytes: usize) -> u64 {
    (bytes / TOKEN_BYTES).max(1) as u64
}

/// The digest of a request body by which tests recognise it: XXH3, 16 hex digits.
pub fn digest(body: &[u8]) -> String {
    format!("{:016x}", xxh3_64(body))
}

/// The answer of `tokens` tokens to a rendered prompt, for choice number `choice` of `n`.
pub fn answer(rendered_prompt: &[u8], choice: u32, tokens: u32) -> String {
    let voice = Voice::new(rendered_prompt, choice);
    (0..tokens).map(|i| voice.token(i)).collect()
}

/// One answer's source of tokens.
#[derive(Clone, Copy)]
pub(crate) struct Voice(u64);

impl Voice {
    pub(crate) fn new(rendered_prompt: &[u8], choice: u32) -> Self {
        Self(xxh3_64_with_seed(rendered_prompt, u64::from(choice)))
    }

    /// Token number `i`: a space and three letters, so it needs no escaping in JSON.
    pub(crate) fn token(self, i: u32) -> Token {
        let bits = xxh3_64_with_seed(&i.to_le_bytes(), self.0);
        let letter = |shift: u32| char::from(b'a' + ((bits >> shift) % 26) as u8);
        Token([' ', letter(0), letter(16), letter(32)])
    }

    /// The first `tokens` tokens as one text.
    pub(crate) fn say(self, tokens: u32) -> String {
        (0..tokens).map(|i| self.token(i)).collect()
    }
}

/// Four ASCII characters.
#[derive(Clone, Copy)]
pub(crate) struct Token([char; TOKEN_BYTES]);

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|c| std::fmt::Write::write_char(f, *c))
    }
}

impl FromIterator<Token> for String {
    fn from_iter<I: IntoIterator<Item = Token>>(tokens: I) -> Self {
        tokens.into_iter().flat_map(|t| t.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_follows_from_prompt_and_choice() {
        assert_eq!(answer(b"hello", 0, 5), answer(b"hello", 0, 5));
        assert_ne!(answer(b"hello", 0, 5), answer(b"hello", 1, 5));
        assert_ne!(answer(b"hello", 0, 5), answer(b"hellp", 0, 5));
        assert!(answer(b"hello", 0, 9).starts_with(&answer(b"hello", 0, 5)));
        assert_eq!(answer(b"hello", 0, 5).len(), 5 * TOKEN_BYTES);
    }
}
