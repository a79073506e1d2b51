//! The canonical prompt: the bytes that stand for what an engine is given.

use xxhash_rust::xxh3::xxh3_64;

use crate::boundary::MAX_BYTES;
use crate::json::Value;

/// Separators start with a byte that no UTF-8 text contains, so no text can imitate them.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// Tools follow.
    Tools,
    /// A message begins; its role follows.
    Role,
    /// The message's content follows.
    Content,
    /// Something that stands by itself within it.
    Part,
    /// Something else that templates print of a message.
    Field,
    /// A tool call.
    Call,
}

impl Mark {
    const fn bytes(self) -> &'static [u8] {
        match self {
            Self::Tools => b"\xffT",
            Self::Role => b"\xffR",
            Self::Content => b"\xffC",
            Self::Part => b"\xffP",
            Self::Field => b"\xffF",
            Self::Call => b"\xffL",
        }
    }
}

/// Its first [`MAX_BYTES`], and how long all of it is.
#[derive(Default)]
pub(super) struct Canon {
    text: Vec<u8>,
    total: u64,
    media: bool,
}

/// A place to come back to.
#[derive(Clone, Copy)]
pub(super) struct Place {
    text: usize,
    total: u64,
}

impl Canon {
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.total = 0;
        self.media = false;
    }

    /// Gives memory back after an unusually long prompt.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.text.truncate(bytes);
        self.text.shrink_to(bytes);
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether tokens stand in it that its bytes do not tell of.
    pub(super) fn has_media(&self) -> bool {
        self.media
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.push(mark.bytes());
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = MAX_BYTES - self.text.len();
        self.text.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    /// Writes a string's text, and nothing of what is no string: engines refuse it where text belongs.
    pub(super) fn push_text(&mut self, value: Value<'_>) {
        if !value.is_string() {
            return;
        }
        let raw = value.raw();
        let (before, room) = (self.text.len(), MAX_BYTES - self.text.len());
        if raw.len() <= room {
            value.text_into(&mut self.text);
            self.total += (self.text.len() - before) as u64;
        } else {
            // Past the limit only the length counts. An escape is at most six times its text.
            value.text_prefix_into(room * 6, &mut self.text);
            self.text.truncate(MAX_BYTES);
            self.total += raw.len() as u64;
        }
    }

    /// Writes `length` bytes that stand for `digest`.
    pub(super) fn push_digest(&mut self, digest: u64, length: usize) {
        let bytes = digest.to_le_bytes();
        for _ in 0..length / bytes.len() {
            self.push(&bytes);
        }
    }

    /// The same, for data of another kind than text.
    pub(super) fn push_media(&mut self, digest: u64, length: usize) {
        self.media = true;
        self.push_digest(digest, length);
    }

    /// The digest of some data.
    pub(super) fn digest(data: &[u8]) -> u64 {
        xxh3_64(data)
    }

    /// Lets what another prompt adds count for length only.
    pub(super) fn count(&mut self, other: &Self) {
        self.total += other.total;
        self.media |= other.media;
    }

    pub(super) fn place(&self) -> Place {
        Place { text: self.text.len(), total: self.total }
    }

    /// Takes back what was written since `place`.
    pub(super) fn back_to(&mut self, place: Place) {
        self.text.truncate(place.text);
        self.total = place.total;
    }
}
