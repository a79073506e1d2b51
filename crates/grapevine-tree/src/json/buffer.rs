//! Bytes that are written, hashed and written over again.

use super::unescape::Places;

/// Grows like a vector. What it once had stays initialised, so that room for more costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    /// The first `length` count.
    bytes: Vec<u8>,
    length: usize,
    /// Of whoever writes text with escapes.
    pub(super) places: Places,
}

impl Buffer {
    /// How many bytes were written.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// What was written.
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// Forgets all of it.
    pub fn clear(&mut self) {
        self.length = 0;
    }

    /// Forgets what comes after the first `length` bytes.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Forgets the first `count` bytes.
    pub fn drop_front(&mut self, count: usize) {
        let count = count.min(self.length);
        self.bytes.copy_within(count..self.length, 0);
        self.length -= count;
    }

    /// Gives memory beyond `bytes` back.
    pub fn shrink_to(&mut self, bytes: usize) {
        if self.bytes.len() > bytes {
            self.bytes.truncate(bytes);
            self.bytes.shrink_to(bytes);
            self.truncate(bytes);
        }
    }

    /// Writes `bytes`.
    pub fn extend(&mut self, bytes: &[u8]) {
        if let Some(room) = self.room(bytes.len()).get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
        }
        self.wrote(bytes.len());
    }

    /// Room for at least `count` bytes, to be written and told of.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        let needed = self.length + count;
        if self.bytes.len() < needed {
            // By half at least, as vectors grow: their spare room could not be written to.
            self.bytes.resize(needed.max(self.bytes.len() * 3 / 2), 0);
        }
        self.bytes.get_mut(self.length..).unwrap_or_default()
    }

    /// That so many bytes of the room count from now on.
    pub(super) fn wrote(&mut self, count: usize) {
        self.length = self.bytes.len().min(self.length + count);
    }

    /// All of it.
    pub(super) fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.length);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_written_last() {
        let mut buffer = Buffer::default();
        buffer.extend(b"one two");
        buffer.drop_front(4);
        buffer.extend(b" three");
        assert_eq!(buffer.as_slice(), b"two three");
        buffer.truncate(3);
        assert_eq!((buffer.as_slice(), buffer.len()), (&b"two"[..], 3));
        buffer.drop_front(9);
        assert!(buffer.is_empty());
        buffer.room(1_000).fill(b'x');
        buffer.wrote(2);
        buffer.shrink_to(1);
        assert_eq!(buffer.into_vec(), b"x");
    }
}
