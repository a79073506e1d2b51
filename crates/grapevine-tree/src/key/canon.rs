//! The canonical prompt: the bytes that stand for what an engine is given.

use xxhash_rust::xxh3::xxh3_64;

use crate::boundary::{Chain, MAX_BYTES};
use crate::json::{self, Value};

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

/// The hashes of its boundaries, or its first [`MAX_BYTES`], and how long all of it is.
///
/// Text of a body is in it as JSON has it, every escape in its shortest form: so it is hashed where it lies, and only
/// what reaches no boundary by itself is copied.
pub(super) struct Canon {
    /// Hashes what is written; without it the text is kept.
    chain: Option<Chain>,
    /// What was written since the last boundary, or all of it.
    text: Vec<u8>,
    /// Bytes up to the next boundary, or to the limit.
    missing: usize,
    total: u64,
    media: bool,
    /// Whose message begins, if anything is written.
    pending: Option<&'static [u8]>,
}

/// Text that is kept.
impl Default for Canon {
    fn default() -> Self {
        Self { chain: None, text: Vec::new(), missing: MAX_BYTES, total: 0, media: false, pending: None }
    }
}

impl Canon {
    /// Begins another prompt, whose text is hashed as it is written.
    pub(super) fn begin(&mut self, seed: u64) {
        let chain = self.chain.get_or_insert_default();
        chain.begin(seed);
        self.missing = chain.chunk().unwrap_or_default();
        self.text.clear();
        (self.total, self.media, self.pending) = (0, false, None);
    }

    /// The hash at each boundary of what was written since [`Self::begin`].
    pub(super) fn hashes(&self) -> &[u64] {
        self.chain.as_ref().map_or(&[], Chain::hashes)
    }

    /// What was written, if nothing hashes it.
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
        self.write(bytes);
    }

    /// Writes a string's text, and nothing of what is no string: engines refuse it where text belongs.
    pub(super) fn push_text(&mut self, value: Value<'_>) {
        let length = value.raw().len();
        if !value.is_string() || length == 0 {
            return;
        }
        self.write_pending();
        let (total, room) = (self.total, self.room());
        if length <= room {
            value.text_escaped(length, |piece| self.write(piece));
        } else {
            // Past the limit only the length counts. An escape is at most six times what it stands for.
            value.text_escaped(room * 6, |piece| self.write(piece));
            self.total = total + length as u64;
        }
    }

    /// Writes text that has no escapes.
    pub(super) fn push_plain(&mut self, text: &[u8]) {
        self.push(&json::escape(text));
    }

    fn write_pending(&mut self) {
        if let Some(role) = self.pending.take() {
            self.role(role);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        if bytes.len() < self.missing {
            self.text.extend_from_slice(bytes);
            self.missing -= bytes.len();
        } else {
            self.reach(bytes);
        }
    }

    /// Writes what reaches the next boundary, or the limit.
    fn reach(&mut self, bytes: &[u8]) {
        let (head, tail) = bytes.split_at(self.missing);
        let Some(chain) = &mut self.chain else {
            self.text.extend_from_slice(head);
            self.missing = 0;
            return;
        };
        let mut rest = bytes;
        if !self.text.is_empty() {
            self.text.extend_from_slice(head);
            chain.take(&self.text);
            self.text.clear();
            rest = tail;
        }
        let left = rest.get(chain.take(rest)..).unwrap_or_default();
        self.text.extend_from_slice(left);
        self.missing = chain.chunk().unwrap_or_default().saturating_sub(left.len());
    }

    /// Bytes that still matter.
    fn room(&self) -> usize {
        MAX_BYTES.saturating_sub(self.chain.as_ref().map_or(0, Chain::bytes) + self.text.len())
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
