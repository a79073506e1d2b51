//! How a prompt looks to the engine: the bytes that its blocks are cut from.
//!
//! Chat is rendered as `<|role|>\ncontent\n` for each message, after the tools if there are any.
//! Token ids are rendered as four bytes each, so that a token is four bytes in every form.

use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

use super::text::digest;

/// A message as it stands in a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    pub(crate) role: Cow<'a, str>,
    #[serde(default)]
    pub(crate) content: Value,
    #[serde(default)]
    pub(crate) tool_calls: Value,
}

/// Appends a text message as the engine sees it.
pub fn render_message(out: &mut Vec<u8>, role: &str, content: &str) {
    open_message(out, role);
    out.extend_from_slice(content.as_bytes());
    out.push(b'\n');
}

/// The head of a message, which is also what an answer is generated after.
pub(crate) fn open_message(out: &mut Vec<u8>, role: &str) {
    out.extend_from_slice(b"<|");
    out.extend_from_slice(role.as_bytes());
    out.extend_from_slice(b"|>\n");
}

/// A whole conversation.
pub(crate) fn render_chat(messages: &[Message<'_>], tools: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    if tools.as_array().is_some_and(|list| !list.is_empty()) {
        render_message(&mut out, "tools", &tools.to_string());
    }
    for message in messages {
        open_message(&mut out, &message.role);
        push_content(&mut out, &message.content);
        if !message.tool_calls.is_null() {
            out.extend_from_slice(message.tool_calls.to_string().as_bytes());
        }
        out.push(b'\n');
    }
    out
}

/// The prompts of a text completion: one, or one for each entry of a list. `None` when it is
/// neither text nor token ids.
pub(crate) fn render_prompts(prompt: &Value) -> Option<Vec<Vec<u8>>> {
    match prompt {
        Value::String(text) => Some(vec![text.clone().into_bytes()]),
        Value::Array(list) if list.first().is_some_and(Value::is_number) => Some(vec![render_ids(list)?]),
        Value::Array(list) => list.iter().map(render_entry).collect(),
        _ => None,
    }
}

fn render_entry(entry: &Value) -> Option<Vec<u8>> {
    match entry {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Array(ids) => render_ids(ids),
        _ => None,
    }
}

fn render_ids(ids: &[Value]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(ids.len() * 4);
    for id in ids {
        out.extend_from_slice(&u32::try_from(id.as_u64()?).ok()?.to_le_bytes());
    }
    Some(out)
}

fn push_content(out: &mut Vec<u8>, content: &Value) {
    match content {
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Array(parts) => parts.iter().for_each(|part| push_part(out, part)),
        _ => {}
    }
}

/// Text as it is, anything else as its digest.
fn push_part(out: &mut Vec<u8>, part: &Value) {
    match (part, part.get("text")) {
        (Value::String(text), _) | (_, Some(Value::String(text))) => out.extend_from_slice(text.as_bytes()),
        _ => {
            out.extend_from_slice(b"<|part ");
            out.extend_from_slice(digest(part.to_string().as_bytes()).as_bytes());
            out.extend_from_slice(b"|>");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_one_text_part_equals_the_string() {
        let text = Message { role: "user".into(), content: json!("hi"), ..Message::default() };
        let parts = Message {
            role: "user".into(),
            content: json!([{"type": "text", "text": "hi"}]),
            ..Message::default()
        };
        assert_eq!(render_chat(&[text], &Value::Null), b"<|user|>\nhi\n");
        assert_eq!(render_chat(&[parts], &Value::Null), b"<|user|>\nhi\n");
    }

    #[test]
    fn prompts_of_every_form() {
        let prompts = |v: Value| render_prompts(&v);
        assert_eq!(prompts(json!("ab")), Some(vec![b"ab".to_vec()]));
        assert_eq!(prompts(json!(["a", "b"])), Some(vec![b"a".to_vec(), b"b".to_vec()]));
        assert_eq!(prompts(json!([1, 2])), Some(vec![vec![1, 0, 0, 0, 2, 0, 0, 0]]));
        assert_eq!(prompts(json!([[1], [2]])), Some(vec![vec![1, 0, 0, 0], vec![2, 0, 0, 0]]));
        assert_eq!(prompts(json!(null)), None);
        assert_eq!(prompts(json!([1, "a"])), None);
        assert_eq!(prompts(json!([])), Some(vec![]));
    }
}
