//! Prompts without a template: text, token ids, or several of them.

use super::canon::Canon;
use super::fields::Fields;
use super::media::{IMAGE_BYTES, write_media};
use crate::json::{Kind, Value};

/// A prompt as it is. Where its images stand among its tokens is unknown: they come first, so that
/// prompts with different images share nothing.
pub(super) fn write_raw(out: &mut Canon, fields: &Fields<'_>) {
    let Some(prompt) = fields.prompt.or(fields.ids) else { return };
    for media in fields.media.iter().flatten() {
        match media.kind() {
            Kind::Array => media.items().for_each(|item| write_media(out, item, IMAGE_BYTES)),
            _ => write_media(out, *media, IMAGE_BYTES),
        }
    }
    let several = prompt.items().all(|item| item.kind() != Kind::Scalar);
    if prompt.kind() == Kind::Array && several {
        write_first_of(out, prompt, write_one);
    } else {
        write_one(out, prompt);
    }
}

/// Several prompts in one request: the first makes the key, all count for length.
pub(super) fn write_first_of(out: &mut Canon, list: Value<'_>, write: fn(&mut Canon, Value<'_>)) {
    let mut items = list.items();
    if let Some(first) = items.next() {
        write(out, first);
    }
    let mut other = Canon::default();
    for item in items {
        other.begin(0);
        write(&mut other, item);
        out.count(&other);
    }
}

fn write_one(out: &mut Canon, prompt: Value<'_>) {
    match prompt.kind() {
        Kind::String => out.push_text(prompt),
        Kind::Array => write_ids(out, prompt),
        // llama.cpp's prompt with images.
        Kind::Object => {
            for data in prompt.get("multimodal_data").iter().flat_map(Value::items) {
                write_media(out, data, IMAGE_BYTES);
            }
            if let Some(text) = prompt.get("prompt_string") {
                out.push_text(text);
            }
        }
        Kind::Scalar => {}
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
        let digits = id.raw().iter().take_while(|c| c.is_ascii_digit());
        let number = digits.fold(0u32, |n, c| n.wrapping_mul(10).wrapping_add(u32::from(c - b'0')));
        out.push(&number.to_le_bytes());
    }
}
