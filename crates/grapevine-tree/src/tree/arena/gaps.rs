//! Where labels leave boundaries out, so that a walk down a prompt knows when it may stop.
//!
//! A router's own requests bring every boundary of a path. There, what is not known has nothing known
//! behind it. Peers leave boundaries out: behind such a gap a label goes on. Counting, for every index,
//! the boundaries that have a gap before them tells where it is worth looking past an unknown one.

use super::{PackedMark, index_of};

/// Boundaries with a gap before them, by index.
#[derive(Debug)]
pub(super) struct Gaps(Vec<u32>);

impl Gaps {
    pub(super) fn new() -> Self {
        Self(vec![0; usize::from(u8::MAX) + 1])
    }

    /// The first index from `from` on, below `end`, where a label may go on after a gap.
    pub(super) fn next(&self, from: usize, end: usize) -> Option<usize> {
        let gaps = self.0.get(from..end.min(self.0.len()))?;
        gaps.iter().position(|&count| count > 0).map(|at| from + at)
    }

    /// Counts, or counts no longer, the gaps of a label under a node that ends with index `above`.
    pub(super) fn count(&mut self, label: &[PackedMark], above: Option<u8>, add: bool) {
        let mut expected = above.map_or(0, |index| index.wrapping_add(1));
        for &mark in label {
            let index = index_of(mark);
            if index != expected {
                let count = &mut self.0[usize::from(index)];
                *count = if add { *count + 1 } else { *count - 1 };
            }
            expected = index.wrapping_add(1);
        }
    }

    /// All counts, for [`super::Arena::check`].
    pub(super) fn counts(&self) -> &[u32] {
        &self.0
    }
}
