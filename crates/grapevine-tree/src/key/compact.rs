//! JSON values as part of a prompt: arguments, schemas, what no rule is for.

use std::borrow::Cow;

use super::canon::{Canon, Mark};
use super::media::MEDIA_BYTES;
use crate::json::{Kind, Value};

/// Strings beyond this length in a value that no rule is for are data, not prompt: digested.
const MAX_INLINE: usize = 4096;

/// Marks of where to cache, which move from turn to turn and are never printed.
const CACHE_MARK: &[u8] = b"cache_control";

/// How a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Its own members in the client's order, as templates print schemas and arguments.
    AsWritten,
    /// Members sorted, long strings digested: for what no template is known to print as it stands.
    Sorted,
}

/// Writes `value` without the white space between its tokens and without cache marks.
pub(super) fn write_compact(out: &mut Canon, value: Value<'_>, style: Style) {
    match value.kind() {
        Kind::Object => write_members(out, value, style, |_| false),
        Kind::Array => {
            out.push(b"[");
            for item in value.items() {
                write_compact(out, item, style);
                out.push(b",");
            }
            out.push(b"]");
        }
        Kind::Scalar => out.push(value.raw()),
        Kind::String if style == Style::Sorted && is_long(value) => {
            out.push_digest(Canon::digest(&value.text()), MEDIA_BYTES);
        }
        Kind::String => {
            out.push(b"\"");
            out.push_text(value);
            out.push(b"\"");
        }
    }
}

/// Whether a string's text is, however it is escaped.
fn is_long(value: Value<'_>) -> bool {
    value.raw().len() > MAX_INLINE && value.text().len() > MAX_INLINE
}

/// The members of an object but those that `skip` names.
pub(super) fn write_members(out: &mut Canon, object: Value<'_>, style: Style, skip: impl Fn(&[u8]) -> bool) {
    let kept = |name: &Cow<'_, [u8]>| **name != *CACHE_MARK && !skip(name);
    let members = object.members().filter(|(name, _)| kept(name));
    out.push(b"{");
    match style {
        Style::AsWritten => members.for_each(|member| write_member(out, member, style)),
        Style::Sorted => {
            let mut sorted: Vec<_> = members.filter(|(_, value)| !value.is_null()).collect();
            sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
            sorted.into_iter().for_each(|member| write_member(out, member, style));
        }
    }
    out.push(b"}");
}

fn write_member(out: &mut Canon, (name, value): (Cow<'_, [u8]>, Value<'_>), style: Style) {
    out.push(&name);
    out.push(b":");
    write_compact(out, value, style);
    out.push(b",");
}

/// Writes something that stands by itself: text as it is, anything else compact.
pub(super) fn write_field(out: &mut Canon, mark: Mark, value: Option<Value<'_>>) {
    let Some(value) = value else { return };
    out.mark(mark);
    if value.is_string() {
        out.push_text(value);
    } else {
        write_compact(out, value, Style::AsWritten);
    }
}
