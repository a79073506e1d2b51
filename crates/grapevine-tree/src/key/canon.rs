//! The canonical prompt: the bytes that stand for what an engine is given.

use xxhash_rust::xxh3::xxh3_64;

use crate::boundary::{Chain, MAX_BYTES};
use crate::json::{Buffer, Value};

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

/// Text that is hashed makes room once it is so much: what comes next then lies in memory that the nearest caches
/// hold, however long the prompt.
const HASHED_BYTES: usize = 16 * 1_024;

/// Its boundaries, or its first [`MAX_BYTES`], and how long all of it is.
#[derive(Default)]
pub(super) struct Canon {
    /// Hashes what is written; without it the text is kept.
    chain: Option<Chain>,
    /// What was written last, or all of it.
    text: Buffer,
    /// Bytes at the start of `text` that are hashed.
    hashed: usize,
    /// Length of `text` at which the next boundary is reached.
    due: usize,
    total: u64,
    media: bool,
    /// Whose message begins, if anything is written.
    pending: Option<&'static [u8]>,
}

impl Canon {
    /// Begins another prompt, whose text is hashed as it is written.
    pub(super) fn begin(&mut self, seed: u64) {
        self.chain.get_or_insert_default().begin(seed);
        self.text.clear();
        (self.hashed, self.due, self.total) = (0, 0, 0);
        (self.media, self.pending) = (false, None);
    }

    /// Gives memory back after an unusually long prompt.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.text.shrink_to(bytes);
    }

    /// The hash at each boundary of what was written since [`Self::begin`].
    pub(super) fn hashes(&self) -> &[u64] {
        self.chain.as_ref().map_or(&[], Chain::hashes)
    }

    /// What was written, if nothing hashes it.
    pub(super) fn text(&self) -> &[u8] {
        self.text.as_slice()
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

    /// The content of a message of `role` follows.
    pub(super) fn role(&mut self, role: &[u8]) {
        self.mark(Mark::Role);
        self.push(role);
        self.mark(Mark::Content);
    }

    /// The same, if any does: until [`Self::or_nothing`] is called.
    pub(super) fn role_of_what_follows(&mut self, role: &'static [u8]) {
        self.pending = Some(role);
    }

    /// What follows is no content of the role that was announced.
    pub(super) fn or_nothing(&mut self) {
        self.pending = None;
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.write_pending();
        self.total += bytes.len() as u64;
        self.text.extend(bytes.get(..self.room()).unwrap_or(bytes));
        self.hash();
    }

    /// Writes a string's text, and nothing of what is no string: engines refuse it where text belongs.
    pub(super) fn push_text(&mut self, value: Value<'_>) {
        let length = value.raw().len();
        if !value.is_string() || length == 0 {
            return;
        }
        self.write_pending();
        let (before, room) = (self.position(), self.room());
        // Past the limit only the length counts. An escape is at most six times its text.
        let read = if length <= room { length } else { room * 6 };
        let mut text = std::mem::take(&mut self.text);
        value.text_in_parts(read, &mut text, |text| self.hash_text(text));
        self.text = text;
        if length <= room {
            self.total += (self.position() - before) as u64;
        } else {
            self.text.truncate(MAX_BYTES);
            self.total += length as u64;
        }
    }

    fn write_pending(&mut self) {
        if let Some(role) = self.pending.take() {
            self.role(role);
        }
    }

    /// Bytes written, as far as they matter.
    fn position(&self) -> usize {
        self.chain.as_ref().map_or(0, Chain::bytes) + self.text.len() - self.hashed
    }

    /// Bytes that still matter.
    fn room(&self) -> usize {
        MAX_BYTES.saturating_sub(self.position())
    }

    /// Hashes what reaches a boundary.
    fn hash(&mut self) {
        let mut text = std::mem::take(&mut self.text);
        self.hash_text(&mut text);
        self.text = text;
    }

    fn hash_text(&mut self, text: &mut Buffer) {
        let Some(chain) = &mut self.chain else { return };
        if text.len() < self.due {
            return;
        }
        self.hashed += chain.take(text.as_slice().get(self.hashed..).unwrap_or_default());
        if self.hashed >= HASHED_BYTES.max(text.len() / 2) {
            text.drop_front(self.hashed);
            self.hashed = 0;
        }
        self.due = self.hashed + chain.chunk().unwrap_or_default();
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
}
