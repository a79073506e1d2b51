//! Where strings end.
//!
//! A prompt is read once here and once when it is hashed: blocks are asked at the same time for what may end a string
//! and for what may begin an escape that has a shorter form.

use fearless_simd::prelude::*;
use fearless_simd::{Level, Simd, dispatch, u8x64};
use memchr::{memchr, memchr2};

use super::escapes::backslashes;

/// Bytes that are looked at together.
const BLOCK: usize = 64;

/// Names, roles and the like are shorter, and found sooner without so large a block.
const SHORT: usize = 32;

/// The end of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// Where its closing quote is.
    pub(super) at: usize,
    /// At or before the first escape in it that has a shorter form; the end if none has.
    pub(super) longer: usize,
}

/// The end of the string whose text begins at `start`, if it has one.
pub(super) fn end(body: &[u8], start: usize) -> Option<End> {
    let text = body.get(start..)?;
    let mut from = 0;
    if let Some(head) = text.get(..SHORT) {
        match memchr2(b'"', b'\\', head) {
            Some(at) if head.get(at) == Some(&b'"') => {
                return Some(End { at: start + at, longer: start + at });
            }
            Some(at) => from = at,
            None => from = SHORT,
        }
    }
    let mut longer = None;
    loop {
        from = match longer {
            None => dispatch!(Level::new(), simd => stop(simd, text, from))?,
            // The first one is enough.
            Some(_) => from + memchr(b'"', text.get(from..)?)?,
        };
        if text.get(from) != Some(&b'"') {
            longer = Some(from);
        } else if backslashes(text.get(..from)?).is_multiple_of(2) {
            // An even row of them escapes itself.
            return Some(End { at: start + from, longer: start + longer.unwrap_or(from) });
        }
        from += 1;
    }
}

/// The next quote from `from` on, or backslash before `u` or `/`. Compiled for every width of vectors that a processor
/// may have.
#[inline(always)]
fn stop<S: Simd>(simd: S, text: &[u8], mut from: usize) -> Option<usize> {
    let is = |block: u8x64<S>, byte: u8| block.simd_eq(byte);
    while let Some((block, next)) = block_at(text, from).zip(block_at(text, from + 1)) {
        let (block, next) = (u8x64::from_slice(simd, block), u8x64::from_slice(simd, next));
        let stops = is(block, b'"') | is(block, b'\\') & (is(next, b'u') | is(next, b'/'));
        if stops.any_true() {
            return Some(from + stops.to_bitmask().trailing_zeros() as usize);
        }
        from += BLOCK;
    }
    let rest = text.get(from..)?.iter().zip(text.get(from + 1..)?.iter().chain([&0]));
    rest.map(|(&byte, &next)| byte == b'"' || byte == b'\\' && matches!(next, b'u' | b'/'))
        .position(|stops| stops)
        .map(|at| from + at)
}

#[inline(always)]
fn block_at(text: &[u8], at: usize) -> Option<&[u8; BLOCK]> {
    text.get(at..)?.first_chunk()
}
