//! Conversations in the order in which chat templates print them.
//!
//! Templates differ in whether tools come before or after the system message; here they come first.
//! docs/decisions/0007-key-fidelity.md says why, and what it costs where they do not.

use super::Api;
use super::canon::{Canon, Mark};
use super::compact::{Style, write_compact, write_field, write_members};
use super::fields::Fields;
use super::media::{IMAGE_BYTES, MEDIA_BYTES, write_media};
use super::raw::{write_first_of, write_raw};
use crate::json::{Kind, Value};

/// The first line of the first system block of one widespread agent; changes with every request
/// and is removed by engines before templating.
const NONCE_LINE: &[u8] = b"x-anthropic-billing-header:";

/// Writes what `api` would give to the model.
pub(super) fn write_prompt(out: &mut Canon, api: Api, fields: &Fields<'_>) {
    match api {
        // SageMaker's /invocations takes every form.
        Api::Chat if fields.messages.is_none() => write_raw(out, fields),
        Api::Chat | Api::Messages => {
            write_head(out, fields);
            write_conversation(out, fields.messages);
        }
        // What came before lives in the engine, unknown here: no key.
        Api::Responses if fields.previous.is_some() => {}
        Api::Responses => {
            write_head(out, fields);
            write_input(out, fields.input);
        }
        Api::Completions | Api::Generate => write_raw(out, fields),
        Api::Other => {}
    }
}

fn write_head(out: &mut Canon, fields: &Fields<'_>) {
    for tool in fields.tools.iter().flat_map(Value::items) {
        out.mark(Mark::Tools);
        write_tool(out, tool);
    }
    for document in fields.documents.iter().flat_map(Value::items) {
        out.mark(Mark::Field);
        write_compact(out, document, Style::Sorted);
    }
    if let Some(system) = fields.system {
        write_system(out, system);
    }
}

/// Name, description and schema, in whichever of the three forms; then what else there is.
fn write_tool(out: &mut Canon, tool: Value<'_>) {
    let function = tool.get("function").unwrap_or(tool);
    let schema = function.get("parameters").or_else(|| function.get("input_schema"));
    for value in [function.get("name"), function.get("description"), schema] {
        write_field(out, Mark::Field, value.filter(|value| !value.is_null()));
    }
    let function_type =
        tool.get("type").is_none_or(|kind| kind.is_text("function") || kind.is_text("custom"));
    let written = |name: &[u8]| matches!(name, b"name" | b"description" | b"parameters" | b"input_schema");
    write_members(out, function, Style::Sorted, |name| {
        written(name) || name == b"strict" || (name == b"type" && function_type)
    });
}

/// A system message that has nothing to say is not printed.
fn write_system(out: &mut Canon, system: Value<'_>) {
    out.role_of_what_follows(b"system");
    write_parts(out, system, true);
    out.or_nothing();
}

/// Messages, or a batch of conversations.
fn write_conversation(out: &mut Canon, messages: Option<Value<'_>>) {
    let Some(messages) = messages else { return };
    if messages.items().next().is_some_and(|first| first.kind() == Kind::Array) {
        return write_first_of(out, messages, write_messages);
    }
    write_messages(out, messages);
}

fn write_messages(out: &mut Canon, messages: Value<'_>) {
    messages.items().for_each(|message| write_message(out, message));
}

/// OpenAI responses: a string is one user message; items are messages or tool traffic.
fn write_input(out: &mut Canon, input: Option<Value<'_>>) {
    let Some(input) = input else { return };
    if input.is_string() {
        out.role(b"user");
        return out.push_text(input);
    }
    input.items().for_each(|item| write_item(out, item));
}

fn write_item(out: &mut Canon, item: Value<'_>) {
    let kind = item.get("type").map(|kind| kind.text()).unwrap_or_default();
    match &*kind {
        b"" | b"message" => write_message(out, item),
        b"function_call" | b"custom_tool_call" => write_call(out, item),
        b"function_call_output" | b"custom_tool_call_output" => write_tool_result(out, item.get("output")),
        b"reasoning" => write_reasoning(out, item),
        _ => {
            out.mark(Mark::Field);
            write_members(out, item, Style::Sorted, |name| matches!(name, b"id" | b"status"));
        }
    }
}

/// Its text, or its summary; what is encrypted is not printed.
fn write_reasoning(out: &mut Canon, item: Value<'_>) {
    let told = |name| item.get(name).filter(|parts: &Value<'_>| parts.items().next().is_some());
    if let Some(parts) = told("content").or_else(|| told("summary")) {
        out.mark(Mark::Field);
        write_parts(out, parts, false);
    }
}

/// Role, reasoning, content, calls, whatever their order in the body. Ids and what no template
/// prints are left out. Anthropic's results of tools come before the message that holds them, as
/// engines turn them into messages of their own.
fn write_message(out: &mut Canon, message: Value<'_>) {
    let mut fields = Message::default();
    message.members().for_each(|(name, value)| fields.set(&name, value));
    let mut others = fields.content.is_none_or(|content| content.is_string());
    for part in fields.content.iter().flat_map(Value::items) {
        if is_kind(part, "tool_result") {
            write_tool_result(out, part.get("content"));
        } else {
            others = true;
        }
    }
    if others || fields.calls.is_some() {
        fields.write(out);
    }
}

#[derive(Default)]
struct Message<'a> {
    role: Option<Value<'a>>,
    reasoning: Option<Value<'a>>,
    content: Option<Value<'a>>,
    calls: Option<Value<'a>>,
    name: Option<Value<'a>>,
}

impl<'a> Message<'a> {
    fn set(&mut self, name: &[u8], value: Value<'a>) {
        let slot = match name {
            b"role" => &mut self.role,
            b"content" => &mut self.content,
            b"reasoning_content" | b"reasoning" => &mut self.reasoning,
            b"tool_calls" => &mut self.calls,
            b"name" => &mut self.name,
            _ => return,
        };
        *slot = Some(value).filter(|value| !value.is_null());
    }

    fn write(&self, out: &mut Canon) {
        out.mark(Mark::Role);
        if let Some(role) = self.role {
            out.push_text(role);
        }
        write_field(out, Mark::Field, self.reasoning);
        if let Some(content) = self.content {
            out.mark(Mark::Content);
            write_parts(out, content, self.role.is_some_and(|role| role.is_text("system")));
        }
        self.calls.iter().flat_map(Value::items).for_each(|call| write_call(out, call));
        write_field(out, Mark::Field, self.name);
    }
}

fn write_tool_result(out: &mut Canon, content: Option<Value<'_>>) {
    out.role(b"tool");
    if let Some(content) = content {
        write_parts(out, content, false);
    }
}

/// A tool's name and arguments: text that is JSON, or JSON.
fn write_call(out: &mut Canon, call: Value<'_>) {
    let function = call.get("function").unwrap_or(call);
    let arguments = function.get("arguments").or_else(|| function.get("input"));
    write_field(out, Mark::Call, function.get("name"));
    write_field(out, Mark::Field, arguments);
}

/// A string, or parts. Text in several parts equals the same text in one.
fn write_parts(out: &mut Canon, content: Value<'_>, system: bool) {
    if content.is_string() {
        return write_text(out, content, system);
    }
    content.items().for_each(|part| write_part(out, part, system));
}

fn write_part(out: &mut Canon, part: Value<'_>, system: bool) {
    if part.is_string() {
        return write_text(out, part, system);
    }
    let kind = part.get("type").map(|kind| kind.text()).unwrap_or_default();
    match &*kind {
        b"image_url" | b"input_image" | b"image" | b"image_pil" | b"image_embeds" => {
            write_media(out, part, IMAGE_BYTES);
        }
        b"input_audio" | b"audio_url" | b"audio" | b"video_url" | b"video" | b"file" | b"input_file"
        | b"document" => write_media(out, part, MEDIA_BYTES),
        b"thinking" => write_field(out, Mark::Field, part.get("thinking")),
        b"tool_use" => write_call(out, part),
        // Written before its message; opaque to every template.
        b"tool_result" | b"redacted_thinking" => {}
        _ => match part.get("text") {
            Some(text) => write_text(out, text, system),
            None => write_compact(out, part, Style::Sorted),
        },
    }
}

fn is_kind(part: Value<'_>, kind: &str) -> bool {
    part.get("type").is_some_and(|value| value.is_text(kind))
}

/// Writes text; of a system message without the line that is different every time.
fn write_text(out: &mut Canon, text: Value<'_>, system: bool) {
    if !(system && starts_with_nonce(text)) {
        return out.push_text(text);
    }
    let text = text.text();
    let rest = memchr::memchr(b'\n', &text).and_then(|end| text.get(end + 1..));
    out.push_plain(rest.unwrap_or_default());
}

fn starts_with_nonce(text: Value<'_>) -> bool {
    // Written with escapes, a character takes up to six bytes.
    let raw = text.raw();
    let head = raw.get(..NONCE_LINE.len() * 6).unwrap_or(raw);
    if memchr::memchr(b'\\', head).is_none() {
        return head.starts_with(NONCE_LINE);
    }
    text.text_prefix(head.len()).starts_with(NONCE_LINE)
}
