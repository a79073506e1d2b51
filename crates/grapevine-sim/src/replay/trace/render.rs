//! What an engine's chat template would print, near enough: the text whose blocks its cache holds.
//!
//! Written apart from the router's prefix key on purpose: where the two disagree on what prompts
//! share, the replay shows it as a wrong prediction.

use grapevine_tree::Api;
use serde_json::{Map, Value};

/// The prompt of a body as text; empty if there is none.
pub(super) fn prompt(api: Api, body: &Map<String, Value>) -> Vec<u8> {
    let mut out = Vec::new();
    match api {
        Api::Chat | Api::Messages | Api::Responses => {
            for (name, role) in [("tools", "tools"), ("system", "system"), ("instructions", "system")] {
                if let Some(value) = body.get(name).filter(|v| !v.is_null()) {
                    turn(&mut out, role, value);
                }
            }
            match body.get("messages").or_else(|| body.get("input")) {
                Some(Value::Array(messages)) => messages.iter().for_each(|m| message(&mut out, m)),
                Some(text @ Value::String(_)) => turn(&mut out, "user", text),
                _ => {}
            }
        }
        Api::Completions | Api::Generate => {
            let prompt = ["prompt", "text", "input_ids", "token_ids"].iter().find_map(|name| body.get(*name));
            prompt.into_iter().for_each(|value| plain(&mut out, value));
        }
        Api::Other => {}
    }
    out
}

fn turn(out: &mut Vec<u8>, role: &str, content: &Value) {
    out.extend_from_slice(b"<|im_start|>");
    out.extend_from_slice(role.as_bytes());
    out.push(b'\n');
    parts(out, content);
    out.extend_from_slice(b"<|im_end|>\n");
}

fn message(out: &mut Vec<u8>, message: &Value) {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    turn(out, role, message.get("content").unwrap_or(&Value::Null));
    for name in ["tool_calls", "arguments", "output"] {
        if let Some(value) = message.get(name) {
            parts(out, value);
        }
    }
}

/// Text as it is, other parts as JSON.
fn parts(out: &mut Vec<u8>, content: &Value) {
    match content {
        Value::Null => {}
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(parts) => {
            for part in parts {
                match part.get("text").and_then(Value::as_str) {
                    Some(text) => out.extend_from_slice(text.as_bytes()),
                    None => out.extend_from_slice(part.to_string().as_bytes()),
                }
            }
        }
        other => out.extend_from_slice(other.to_string().as_bytes()),
    }
}

/// A prompt without a template: text, token ids at 4 bytes each, or a list, of which engines make a
/// request each; the first stands for all.
fn plain(out: &mut Vec<u8>, prompt: &Value) {
    match prompt {
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(items) => match items.first() {
            Some(Value::Number(_)) => {
                let ids = items.iter().filter_map(Value::as_u64);
                ids.for_each(|id| out.extend_from_slice(&(id as u32).to_le_bytes()));
            }
            Some(first) => plain(out, first),
            None => {}
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(api: Api, body: &str) -> String {
        let body: Value = serde_json::from_str(body).unwrap();
        String::from_utf8(prompt(api, body.as_object().unwrap())).unwrap()
    }

    #[test]
    fn a_chat_is_its_turns() {
        let text = render(
            Api::Chat,
            r#"{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
        );
        assert_eq!(text, "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n");
    }

    #[test]
    fn completions_are_plain() {
        assert_eq!(render(Api::Completions, r#"{"prompt":["one","two"]}"#), "one");
        assert_eq!(render(Api::Generate, r#"{"input_ids":[65,66]}"#), "A\0\0\0B\0\0\0");
        assert_eq!(render(Api::Completions, r#"{"prompt":[]}"#), "");
    }
}
