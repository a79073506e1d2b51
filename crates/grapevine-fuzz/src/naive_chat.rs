//! The slow reference of a plain chat: what a template prints, made from a tree of JSON values.

use serde_json::{Map, Value};

/// Left out of system messages by the real thing, in more ways than a reference should know.
const NONCE: &str = "x-anthropic-billing-header:";

/// A body of the completions API whose prompt is the canonical text of the chat in `body`; `None` when it has
/// more than messages of text.
pub(crate) fn as_raw_prompt(body: &[u8]) -> Option<Vec<u8>> {
    let Value::Object(body) = serde_json::from_slice(body).ok()? else { return None };
    let plain = |name: &String| matches!(name.as_str(), "model" | "messages" | "stream");
    if !body.keys().all(plain) || body.get("model").is_some_and(|model| !model.is_string()) {
        return None;
    }
    let mut text = Vec::new();
    for message in body.get("messages")?.as_array()? {
        write_message(&mut text, message.as_object()?)?;
    }
    let mut raw = br#"{"prompt":""#.to_vec();
    text.iter().for_each(|&byte| push_escaped(byte, &mut raw));
    raw.push(b'"');
    if let Some(model) = body.get("model") {
        raw.extend(format!(",\"model\":{model}").into_bytes());
    }
    raw.push(b'}');
    Some(raw)
}

fn write_message(out: &mut Vec<u8>, message: &Map<String, Value>) -> Option<()> {
    if !message.keys().all(|name| matches!(name.as_str(), "role" | "content")) {
        return None;
    }
    let role = message.get("role")?.as_str()?;
    let mut text = String::new();
    match message.get("content")? {
        Value::String(content) => text.push_str(content),
        Value::Array(parts) if !parts.is_empty() => {
            for part in parts {
                text.push_str(text_of(part)?);
            }
        }
        _ => return None,
    }
    if text.contains(NONCE) {
        return None;
    }
    for piece in [b"\xffR", role.as_bytes(), b"\xffC", text.as_bytes()] {
        out.extend_from_slice(piece);
    }
    Some(())
}

fn text_of(part: &Value) -> Option<&str> {
    let part = part.as_object()?;
    let is_text = part.len() == 2 && part.get("type")?.as_str()? == "text";
    part.get("text")?.as_str().filter(|_| is_text)
}

fn push_escaped(byte: u8, out: &mut Vec<u8>) {
    match byte {
        b'"' | b'\\' => out.extend([b'\\', byte]),
        0..b' ' => out.extend(format!("\\u{byte:04x}").into_bytes()),
        byte => out.push(byte),
    }
}
