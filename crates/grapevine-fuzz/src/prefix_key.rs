//! A request body's prefix key: the same for all ways of writing it, and the one of a slow reference.

use grapevine_tree::json::Tape;
use grapevine_tree::key::MAX_MODEL;
use grapevine_tree::{Api, Extractor, KeySeed, Prompt, boundary};

use serde::de::IgnoredAny;

use crate::naive_chat;
use crate::rewrite::Rewriter;

const APIS: [Api; 6] =
    [Api::Chat, Api::Completions, Api::Responses, Api::Messages, Api::Generate, Api::Other];

/// The first byte chooses the API; the rest is the body.
pub fn prefix_key(data: &[u8]) {
    let Some((&choice, body)) = data.split_first() else { return };
    let api = APIS[usize::from(choice) % APIS.len()];
    let mut extractor = Extractor::new(KeySeed(7));
    let prompt = extractor.extract(api, body, b"");
    assert_eq!(prompt, extractor.extract(api, body, b""), "what came before does not matter");
    is_bounded(&prompt);
    let Some(rewritten) = rewritten(body) else {
        assert_eq!(prompt, Prompt::default(), "what is no JSON has no key");
        return;
    };
    let first = extractor.extract(api, &rewritten, b"");
    // Odd strings, with line breaks or unknown escapes, are read as they stand. Written anew they are JSON.
    if serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        assert_eq!(prompt, first, "written otherwise: {}", String::from_utf8_lossy(&rewritten));
    }
    let rewritten = self::rewritten(&rewritten).expect("what was written is read");
    let second = extractor.extract(api, &rewritten, b"");
    assert_eq!(first, second, "written once more: {}", String::from_utf8_lossy(&rewritten));
    if !prompt.key.hashes.is_empty() {
        let other = extractor.extract(api, body, b"tenant").key;
        assert!(other.hashes.iter().zip(&prompt.key.hashes).all(|(a, b)| a != b), "salts share nothing");
    }
    if api == Api::Chat {
        agrees_with_the_naive_reading(&mut extractor, body, &prompt);
    }
}

fn is_bounded(prompt: &Prompt) {
    let cut = prompt.key.bytes.min(boundary::MAX_BYTES as u64) as usize;
    assert!(prompt.key.hashes.len() <= boundary::count(cut), "no boundary lies past the prompt's end");
    assert!(prompt.model.as_ref().is_none_or(|model| model.len() <= MAX_MODEL));
}

fn rewritten(body: &[u8]) -> Option<Vec<u8>> {
    let mut tape = Tape::default();
    let root = tape.scan(body).ok()?;
    Some(Rewriter::of(body).write(root))
}

/// A plain chat's key is that of its canonical text, given as a raw prompt.
fn agrees_with_the_naive_reading(extractor: &mut Extractor, body: &[u8], prompt: &Prompt) {
    let Some(raw) = naive_chat::as_raw_prompt(body) else { return };
    let expected = extractor.extract(Api::Completions, &raw, b"");
    assert_eq!(prompt.key, expected.key, "the key of {}", String::from_utf8_lossy(&raw));
}
