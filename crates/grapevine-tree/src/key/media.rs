//! Images, audio and files: a digest that tells them apart, of a length that stands for their tokens.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::canon::{Canon, Mark};
use crate::json::{Kind, Value};

/// What an image counts as: about 1,024 tokens at 4 B, between what small and large vision
/// encoders use.
pub(super) const IMAGE_BYTES: usize = 4096;

/// Audio and files: about 256 tokens.
pub(super) const MEDIA_BYTES: usize = 1024;

/// Writes the digest of everything that says which one it is: its URL, data or id.
pub(super) fn write_media(out: &mut Canon, part: Value<'_>, length: usize) {
    out.mark(Mark::Part);
    out.push_media(digest(part, 0), length);
}

/// The members of an object count in any order.
fn digest(value: Value<'_>, seed: u64) -> u64 {
    match value.kind() {
        Kind::Object => {
            let members =
                value.members().filter(|(name, value)| **name != *b"cache_control" && !value.is_null());
            let each = members.map(|(name, value)| digest(value, xxh3_64_with_seed(&name, seed)));
            each.fold(seed, u64::wrapping_add)
        }
        Kind::Array => value.items().fold(seed, |seed, item| digest(item, seed.wrapping_add(1))),
        Kind::String => xxh3_64_with_seed(&value.text(), seed),
        Kind::Scalar => xxh3_64_with_seed(value.raw(), seed),
    }
}
