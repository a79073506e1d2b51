//! Resolving escapes.
//!
//! A prompt has one at every line break. Whoever goes from one to the next by the text between them mispredicts
//! a branch at each, since no line is as long as the one before, and that costs more than the copying. So
//! backslashes are looked for in whole blocks, and what lies between two of them is copied by a fixed length that
//! is enough for most lines; what was copied too much is overwritten.

use wide::u8x16;

/// Bytes that are searched together: a bit for each.
const BLOCK: usize = 64;

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
pub(super) fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let to = out.len();
    // No escape is shorter than what it stands for.
    out.resize(to + raw.len() + RUN, 0);
    let mut copy = Copy { raw, from: 0, out, to };
    let (blocks, tail) = raw.as_chunks();
    for (index, block) in blocks.iter().enumerate() {
        copy.through(index * BLOCK, backslashes(block));
    }
    let mut last = [0; BLOCK];
    last.iter_mut().zip(tail).for_each(|(to, from)| *to = *from);
    copy.through(blocks.len() * BLOCK, backslashes(&last));
    copy.run(raw.len());
    let end = copy.to;
    out.truncate(end);
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
    /// Long enough for all of it and a run more.
    out: &'a mut Vec<u8>,
    to: usize,
}

impl Copy<'_> {
    /// Copies up to behind the last of the backslashes in the block at `start`.
    fn through(&mut self, start: usize, mut backslashes: u64) {
        while backslashes != 0 {
            let at = start + backslashes.trailing_zeros() as usize;
            backslashes &= backslashes - 1;
            // Otherwise it is the second of two, which the first one escapes.
            if at >= self.from {
                self.run(at);
                self.escape();
            }
        }
    }

    /// Copies text without escapes up to `end`.
    fn run(&mut self, end: usize) {
        let length = end.saturating_sub(self.from);
        let rest = self.raw.get(self.from..).unwrap_or_default();
        let room = self.out.get_mut(self.to..).unwrap_or_default();
        if let (Some(from), Some(to)) = (rest.first_chunk::<RUN>(), room.first_chunk_mut::<RUN>())
            && length <= RUN
        {
            *to = *from;
        } else if let (Some(from), Some(to)) = (rest.get(..length), room.get_mut(..length)) {
            to.copy_from_slice(from);
        }
        self.from += length;
        self.to += length;
    }

    /// Resolves the escape that comes next.
    fn escape(&mut self) {
        let letter = self.raw.get(self.from + 1).copied().unwrap_or_default();
        let simple = SIMPLE.get(usize::from(letter)).copied().unwrap_or_default();
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
