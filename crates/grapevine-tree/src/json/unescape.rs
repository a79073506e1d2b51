//! Resolving escapes.
//!
//! A prompt has one at every line break. Whoever goes from one to the next by the text between them mispredicts
//! a branch at each, since no line is as long as the one before, and that costs more than the copying. So
//! backslashes are looked for in whole blocks, their places in a stride of blocks are listed without asking how
//! many a block has, and what lies between two of them is copied by a fixed length that is enough for most lines;
//! what was copied too much is overwritten.

use memchr::memchr;
use wide::u8x16;

use super::Buffer;

/// Bytes that are searched together: a bit for each.
const BLOCK: usize = 64;

/// Bytes whose backslashes are listed together, and whose text is there before its reader is asked to take it.
const STRIDE: usize = 32 * BLOCK;

/// Places of a block that are listed whether it has so many backslashes or not.
const LISTED: usize = 2;

/// Runs up to this are copied as if they were as long.
const RUN: usize = 128;

/// What the letter after a backslash stands for; 0: nothing simple.
const SIMPLE: [u8; 256] = {
    let mut table = [0; 256];
    table[b'n' as usize] = b'\n';
    table[b't' as usize] = b'\t';
    table[b'r' as usize] = b'\r';
    table[b'b' as usize] = 8;
    table[b'f' as usize] = 12;
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table
};

/// Appends `raw` with its escapes resolved. A lone surrogate becomes its three bytes of generalised UTF-8, an
/// unknown escape stays as written: equal input gives equal output, and nothing fails.
///
/// It appends a stride at a time, and after each calls `after`, which may take away what is there.
pub(super) fn unescape(raw: &[u8], out: &mut Buffer, mut after: impl FnMut(&mut Buffer)) {
    let (plain, escaped) = raw.split_at(memchr(b'\\', raw).unwrap_or(raw.len()));
    for stride in plain.chunks(STRIDE) {
        out.extend(stride);
        after(out);
    }
    if !escaped.is_empty() {
        unescape_strides(escaped, out, after);
    }
}

fn unescape_strides(raw: &[u8], out: &mut Buffer, mut after: impl FnMut(&mut Buffer)) {
    let mut from = 0;
    let mut places = std::mem::take(&mut out.places);
    for (index, stride) in raw.chunks(STRIDE).enumerate() {
        let start = index * STRIDE;
        // No escape is shorter than what it stands for, and the last run may be copied too far.
        let mut copy = Copy { raw, from, out: out.room(stride.len() + RUN), to: 0 };
        for place in places.of_backslashes(stride) {
            let at = start + usize::from(*place);
            // Otherwise it is the second of two, which the first one escapes.
            if at >= copy.from {
                copy.line(at);
            }
        }
        copy.run(start + stride.len());
        let written = copy.to;
        from = copy.from;
        out.wrote(written);
        after(out);
    }
    out.places = places;
}

/// Where a stride has its backslashes. Keeps its memory, which is too much to be zeroed for every string.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    list: Vec<u16>,
}

impl Places {
    /// Lists those of `stride`, which is at most [`STRIDE`] long.
    fn of_backslashes(&mut self, stride: &[u8]) -> &[u16] {
        if self.list.len() < stride.len() + LISTED {
            self.list.resize(stride.len() + LISTED, 0);
        }
        let (blocks, tail) = stride.as_chunks();
        let mut count = 0;
        for (index, block) in blocks.iter().enumerate() {
            count = self.list(count, index * BLOCK, backslashes(block));
        }
        let mut last = [0; BLOCK];
        last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
        count = self.list(count, blocks.len() * BLOCK, backslashes(&last));
        self.list.get(..count).unwrap_or_default()
    }

    /// Lists the bits of `mask` as places behind `start`, after the `count` that are there. Gives the new count.
    fn list(&mut self, mut count: usize, start: usize, mut mask: u64) -> usize {
        if let Some(few) = self.list.get_mut(count..).and_then(|free| free.first_chunk_mut::<LISTED>()) {
            for place in few {
                count += usize::from(mask != 0);
                *place = next_place(start, &mut mask);
            }
        }
        while mask != 0
            && let Some(place) = self.list.get_mut(count)
        {
            count += 1;
            *place = next_place(start, &mut mask);
        }
        count
    }
}

/// The place of the lowest bit of `mask`, which is cleared; without one it is of no meaning.
fn next_place(start: usize, mask: &mut u64) -> u16 {
    // The highest bit is never in the way, and spares asking whether there is one.
    let place = start + (*mask | 1 << (BLOCK - 1)).trailing_zeros() as usize;
    *mask &= mask.wrapping_sub(1);
    place as u16
}

/// Where in `block` there are backslashes: bit by byte.
fn backslashes(block: &[u8; BLOCK]) -> u64 {
    let (lanes, _) = block.as_chunks();
    lanes.iter().rev().fold(0, |mask, lane| {
        let found = u8x16::new(*lane).simd_eq(u8x16::splat(b'\\')).to_bitmask();
        mask << 16 | u64::from(found as u16)
    })
}

/// A copy under way.
struct Copy<'a> {
    raw: &'a [u8],
    /// What of it is done.
    from: usize,
    /// Long enough for the stride and a run more.
    out: &'a mut [u8],
    to: usize,
}

impl Copy<'_> {
    /// Copies up to the backslash at `at` and resolves its escape.
    fn line(&mut self, at: usize) {
        let length = at - self.from;
        let simple = self.simple_at(at);
        let text = self.raw.get(self.from..).and_then(|rest| rest.first_chunk::<RUN>());
        let room = self.out.get_mut(self.to..).and_then(|room| room.first_chunk_mut::<RUN>());
        if let (Some(text), Some(room)) = (text, room)
            && simple != 0
            && length < RUN
        {
            *room = *text;
            if let Some(end) = room.get_mut(length) {
                *end = simple;
            }
            self.from = at + 2;
            self.to += length + 1;
        } else {
            self.run(at);
            self.escape(simple);
        }
    }

    /// What the escape at `at` stands for; 0: nothing simple.
    fn simple_at(&self, at: usize) -> u8 {
        let letter = self.raw.get(at + 1).copied().unwrap_or_default();
        SIMPLE.get(usize::from(letter)).copied().unwrap_or_default()
    }

    /// Copies text without escapes up to `end`.
    fn run(&mut self, end: usize) {
        let length = end.saturating_sub(self.from);
        let rest = self.raw.get(self.from..).unwrap_or_default();
        let room = self.out.get_mut(self.to..).unwrap_or_default();
        if let (Some(from), Some(to)) = (rest.get(..length), room.get_mut(..length)) {
            to.copy_from_slice(from);
        }
        self.from += length;
        self.to += length;
    }

    /// Resolves the escape that comes next.
    fn escape(&mut self, simple: u8) {
        if simple != 0 {
            self.put(&[simple], 2);
        } else {
            self.escape_by_number();
        }
    }

    #[cold]
    fn escape_by_number(&mut self) {
        match unicode(self.raw.get(self.from..).unwrap_or_default()) {
            Some((code, used)) => match char::from_u32(code) {
                Some(c) => self.put(c.encode_utf8(&mut [0; 4]).as_bytes(), used),
                None => self.put(&surrogate(code), used),
            },
            None => self.put(b"\\", 1),
        }
    }

    /// `bytes` for the next `used` of the text.
    fn put(&mut self, bytes: &[u8], used: usize) {
        let room = self.out.get_mut(self.to..).unwrap_or_default();
        room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        self.to += bytes.len();
        self.from += used;
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

fn surrogate(code: u32) -> [u8; 3] {
    [0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8]
}
