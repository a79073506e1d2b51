//! Escapes: resolved, and in their shortest form.
//!
//! A prompt has an escape at every line break, nearly always the shortest one, as every JSON library writes it. So
//! what is hashed of a prompt is its text in shortest form, not its text: that lies in the body as it is, and is
//! neither copied nor looked at byte by byte. Only two pairs of characters can begin a longer form, `\u` and `\/`,
//! and whoever looks for the end of a string sees them, too.

use memchr::memchr;

/// What stands for characters that must be escaped, where that is not a number.
const SHORT: [(u8, u8); 7] =
    [(b'n', b'\n'), (b't', b'\t'), (b'r', b'\r'), (b'b', 8), (b'f', 12), (b'"', b'"'), (b'\\', b'\\')];

/// `raw` with its escapes resolved. A lone surrogate becomes its three bytes of generalised UTF-8, an unknown escape
/// stays as written: equal input gives equal output, and nothing fails.
pub(super) fn unescape(raw: &[u8]) -> Vec<u8> {
    let (mut rest, mut out) = (raw, Vec::with_capacity(raw.len()));
    while let Some(at) = memchr(b'\\', rest) {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let used = match escape.get(1).and_then(|&letter| meant_by(letter)) {
            Some(simple) => {
                out.push(simple);
                2
            }
            None => match unicode(escape) {
                Some((code, used)) => {
                    let mut bytes = [0; 4];
                    out.extend_from_slice(encoded(code, &mut bytes));
                    used
                }
                None => {
                    out.push(b'\\');
                    1
                }
            },
        };
        rest = escape.get(used..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    out
}

/// Gives the shortest form of `raw` to `write`, piece by piece: each character as itself, those that need an escape as
/// two, controls that have none as one byte. What is no valid escape stays as written. No longer one begins before
/// `first`.
pub(super) fn shortest(raw: &[u8], first: usize, mut write: impl FnMut(&[u8])) {
    let (head, _) = raw.split_at(first.min(raw.len()));
    // What is at `first` may be escaped itself. What is before a row of backslashes never is.
    let (mut from, mut at) = (0, head.len() - backslashes(head));
    while let Some(found) = raw.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        let place = at + found;
        if matches!(raw.get(place + 1), Some(b'u' | b'/')) {
            write(raw.get(from..place).unwrap_or_default());
            from = place + write_shortest(raw.get(place..).unwrap_or_default(), &mut write);
            at = from;
        } else {
            at = place + 2;
        }
    }
    write(raw.get(from..).unwrap_or_default());
}

/// How many backslashes `text` ends with.
pub(super) fn backslashes(text: &[u8]) -> usize {
    text.iter().rev().take_while(|&&c| c == b'\\').count()
}

/// `text` with what JSON must have escaped in its shortest form, but for controls that have none but a number: they stay.
pub fn escape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text {
        match letter_for(byte) {
            Some(letter) => out.extend([b'\\', letter]),
            None => out.push(byte),
        }
    }
    out
}

/// Writes the shortest form of the escape at the start of `escape`. Gives how long that is.
fn write_shortest(escape: &[u8], write: &mut impl FnMut(&[u8])) -> usize {
    if escape.starts_with(b"\\/") {
        write(b"/");
        return 2;
    }
    let Some((code, used)) = unicode(escape) else {
        let unknown = escape.get(..2).unwrap_or(escape);
        write(unknown);
        return unknown.len();
    };
    match u8::try_from(code).ok().and_then(letter_for) {
        Some(letter) => write(&[b'\\', letter]),
        None => write(encoded(code, &mut [0; 4])),
    }
    used
}

/// What `letter` stands for after a backslash.
fn meant_by(letter: u8) -> Option<u8> {
    let simple = SHORT.iter().find(|(short, _)| *short == letter).map(|(_, meant)| *meant);
    simple.or_else(|| (letter == b'/').then_some(b'/'))
}

/// The letter that stands for `byte` after a backslash, if it must be escaped and has one.
fn letter_for(byte: u8) -> Option<u8> {
    SHORT.iter().find(|(_, meant)| *meant == byte).map(|(letter, _)| *letter)
}

fn encoded(code: u32, bytes: &mut [u8; 4]) -> &[u8] {
    match char::from_u32(code) {
        Some(c) => c.encode_utf8(bytes).as_bytes(),
        None => {
            let [high, middle, low, _] = bytes;
            *high = 0xe0 | (code >> 12) as u8;
            *middle = 0x80 | (code >> 6 & 0x3f) as u8;
            *low = 0x80 | (code & 0x3f) as u8;
            bytes.get(..3).unwrap_or_default()
        }
    }
}

/// The code point of a `\uXXXX` or a surrogate pair at the start of `rest`, and the bytes that it takes.
fn unicode(rest: &[u8]) -> Option<(u32, usize)> {
    let high = unit(rest)?;
    let low = rest.get(6..).and_then(unit).filter(|low| (0xdc00..0xe000).contains(low));
    match low {
        Some(low) if (0xd800..0xdc00).contains(&high) => {
            Some((0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00), 12))
        }
        _ => Some((high, 6)),
    }
}

fn unit(escape: &[u8]) -> Option<u32> {
    let [b'\\', b'u', digits @ ..] = escape else { return None };
    let digits = digits.get(..4)?;
    digits.iter().try_fold(0, |value, &digit| Some(value * 16 + char::from(digit).to_digit(16)?))
}
