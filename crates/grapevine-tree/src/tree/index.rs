//! Where every boundary is: one hash table over all of them, in shards.
//!
//! A table doubles when it is full, so one table is up to half empty, and moving a million entries at once
//! would keep requests waiting. Shards are chosen so that a full tree fills each of them well, and grow one
//! by one.

use hashbrown::HashTable;

use super::arena::{PackedMark, index_of};

/// Slots of a full shard, seven eighths of which may be used.
const SHARD_SLOTS: usize = 1 << 16;

/// Entries of a shard when the tree is full: 57,344 fit; the rest is for shards that get more than their
/// share, which differs by less than 300 from shard to shard.
const SHARD_ENTRIES: usize = 56_000;

/// A node's id in the upper 24 bits, the boundary's index in the schedule in the lower 8.
pub(super) type Entry = u32;

#[derive(Debug)]
pub(super) struct Index {
    shards: Vec<HashTable<Entry>>,
}

impl Index {
    /// For at most `most` boundaries, with memory for `reserved` at once.
    pub(super) fn new(most: usize, reserved: usize) -> Self {
        let count = most.div_ceil(SHARD_ENTRIES).max(1);
        let each = reserved.div_ceil(count).min(SHARD_SLOTS / 8 * 7);
        Self { shards: (0..count).map(|_| HashTable::with_capacity(each)).collect() }
    }

    pub(super) fn find(&self, mark: PackedMark, mut is: impl FnMut(Entry) -> bool) -> Option<Entry> {
        let hash = hash(mark);
        let shard = self.shards.get(self.shard(hash))?;
        shard.find(hash, |&entry| entry as u8 == index_of(mark) && is(entry)).copied()
    }

    /// Enters a mark that is not in the index. `mark_of` gives the mark of other entries.
    pub(super) fn insert(&mut self, mark: PackedMark, entry: Entry, mark_of: impl Fn(Entry) -> PackedMark) {
        let hash = hash(mark);
        let shard = self.shard(hash);
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.insert_unique(hash, entry, |&entry| self::hash(mark_of(entry)));
        }
    }

    /// Takes `entry` of `mark` out, or puts another in its place.
    pub(super) fn replace(&mut self, mark: PackedMark, entry: Entry, by: Option<Entry>) {
        let hash = hash(mark);
        let shard = self.shard(hash);
        let Some(shard) = self.shards.get_mut(shard) else { return };
        if let Ok(mut found) = shard.find_entry(hash, |&other| other == entry) {
            match by {
                Some(by) => *found.get_mut() = by,
                None => {
                    found.remove();
                }
            }
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let slots = |shard: &HashTable<Entry>| shard.capacity() * 8 / 7;
        self.shards.iter().map(slots).sum::<usize>() * (size_of::<Entry>() + 1)
    }

    /// Boundaries in it.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    fn shard(&self, hash: u64) -> usize {
        // Of bits that the table uses neither for the slot nor for the tag.
        let middle = (hash >> 24) & 0xffff_ffff;
        ((middle * self.shards.len() as u64) >> 32) as usize
    }
}

/// Spreads a mark over the hash table. Its lower 8 bits are an index, not random.
fn hash(mark: PackedMark) -> u64 {
    (mark >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
