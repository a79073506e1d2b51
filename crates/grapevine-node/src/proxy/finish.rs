//! Why an answer ended, from a copy of what passes by. Read for spans only.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::usage::value_of;

/// Reasons that engines give, of all APIs. Anything else may be a client's own text: vLLM says the stop string
/// that it met.
const KNOWN: [&str; 13] = [
    "stop",
    "length",
    "tool_calls",
    "content_filter",
    "function_call",
    "abort",
    "error",
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
];

/// Most reasons that are kept: each choice has one.
const MAX_REASONS: usize = 8;

/// How the field's name ends: `finish_reason`, or Anthropic's `stop_reason`. In a JSON string the quote would
/// be escaped, so generated text is never taken for it.
static FIELD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_reason\""));

/// The reasons seen so far, one for each choice that ended.
#[derive(Debug, Default)]
pub(super) struct Finish(Vec<&'static str>);

impl Finish {
    /// Reads a piece of an answer.
    pub(super) fn read(&mut self, json: &[u8]) {
        for at in FIELD.find_iter(json) {
            let rest = json.get(at + FIELD.needle().len()..).unwrap_or_default();
            if self.0.len() < MAX_REASONS {
                self.0.extend(reason(rest));
            }
        }
    }

    pub(super) fn reasons(&self) -> &[&'static str] {
        &self.0
    }
}

/// The reason in `: "stop"`, or in SGLang's `: {"type": "stop"}`.
fn reason(rest: &[u8]) -> Option<&'static str> {
    let value = value_of(rest)?;
    let value = value.strip_prefix(b"{\"type\"").map_or(Some(value), value_of)?.strip_prefix(b"\"")?;
    KNOWN.into_iter().find(|known| value.strip_prefix(known.as_bytes()).is_some_and(|v| v.starts_with(b"\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Vec<&'static str> {
        let mut finish = Finish::default();
        finish.read(json.as_bytes());
        finish.reasons().to_vec()
    }

    #[test]
    fn every_api_says_why_it_stopped() {
        assert_eq!(of(r#"{"choices":[{"index":0,"finish_reason":"stop","stop_reason":null}]}"#), ["stop"]);
        assert_eq!(
            of(r#"{"choices":[{"finish_reason" : "stop"},{"finish_reason":"length"}]}"#),
            ["stop", "length"]
        );
        assert_eq!(of(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#), ["end_turn"]);
        assert_eq!(of(r#"{"meta_info":{"finish_reason":{"type":"length","length":8}}}"#), ["length"]);
        assert_eq!(of(r#"{"choices":[{"delta":{},"finish_reason":null}]}"#), [""; 0]);
    }

    #[test]
    fn no_text_of_clients_or_models_is_taken_for_a_reason() {
        assert_eq!(of(r#"{"finish_reason":"stop","stop_reason":"my secret"}"#), ["stop"]);
        assert_eq!(of(r#"{"finish_reason":"stopped"}"#), [""; 0]);
        assert_eq!(of(r#"{"content":"\"finish_reason\":\"stop\""}"#), [""; 0]);
        assert_eq!(of(&r#"{"finish_reason":"stop"}"#.repeat(20)).len(), MAX_REASONS);
    }
}
