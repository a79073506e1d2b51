//! Memory for labels: runs of boundaries of any length, without an allocation and a header for each.
//!
//! All runs lie in one vector. A freed run waits, by its length, for another of that length; a longer one
//! is cut before the vector grows. What nobody fits into is won back by moving everything together, which
//! the owner of the spans does when a quarter of the vector is vacant and it would have to grow.

use super::arena::PackedMark;

/// No run: the end of a list.
const NONE: u32 = u32::MAX;

/// Least growth of the vector, marks: 32 KiB. In tests little, so that they see labels move.
const MIN_GROWTH: usize = if cfg!(test) { 16 } else { 4_096 };

/// Where a label lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    at: u32,
    len: u16,
}

impl Span {
    pub(super) fn len(self) -> usize {
        usize::from(self.len)
    }

    pub(super) fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Both parts of a span cut before `at`.
    pub(super) fn split(self, at: usize) -> (Self, Self) {
        let len = (at as u16).min(self.len);
        let upper = Self { at: self.at, len };
        (upper, Self { at: self.at + u32::from(len), len: self.len - len })
    }

    fn range(self) -> std::ops::Range<usize> {
        self.at as usize..self.at as usize + self.len()
    }
}

#[derive(Debug, Default)]
pub(super) struct Labels {
    marks: Vec<PackedMark>,
    /// First free run of each length; a run's first mark holds the place of the next.
    free: Vec<u32>,
    vacant: usize,
}

impl Labels {
    pub(super) fn get(&self, span: Span) -> &[PackedMark] {
        // Spans come from here and end with their node.
        &self.marks[span.range()]
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.marks.capacity() * size_of::<PackedMark>() + self.free.capacity() * size_of::<u32>()
    }

    /// Stores a label.
    pub(super) fn store(&mut self, label: &[PackedMark]) -> Span {
        let span = self.take(label.len());
        self.marks[span.range()].copy_from_slice(label);
        span
    }

    /// Stores the label that consists of two stored ones and what is between them. Both stay.
    pub(super) fn join(&mut self, a: Span, between: &[PackedMark], b: Span) -> Span {
        let span = self.take(a.len() + between.len() + b.len());
        let (first, second) = (span.range().start, span.range().start + a.len());
        self.marks.copy_within(a.range(), first);
        self.marks[second..second + between.len()].copy_from_slice(between);
        self.marks.copy_within(b.range(), second + between.len());
        span
    }

    pub(super) fn release(&mut self, span: Span) {
        let len = span.len();
        if len == 0 {
            return;
        }
        if self.free.len() <= len {
            self.free.resize(len + 1, NONE);
        }
        let next = std::mem::replace(&mut self.free[len], span.at);
        self.marks[span.at as usize] = PackedMark::from(next);
        self.vacant += len;
    }

    fn take(&mut self, len: usize) -> Span {
        let at = self.reuse(len).unwrap_or_else(|| self.append(len));
        Span { at, len: len as u16 }
    }

    fn reuse(&mut self, len: usize) -> Option<u32> {
        if let Some(at) = self.pop(len) {
            return Some(at);
        }
        if self.fits(len) {
            return None;
        }
        let longer = (len + 1..self.free.len()).find(|&longer| self.free[longer] != NONE)?;
        let at = self.pop(longer)?;
        self.release(Span { at: at + len as u32, len: (longer - len) as u16 });
        Some(at)
    }

    fn pop(&mut self, len: usize) -> Option<u32> {
        let first = self.free.get_mut(len).filter(|first| **first != NONE)?;
        let at = *first;
        *first = self.marks[at as usize] as u32;
        self.vacant -= len;
        Some(at)
    }

    fn fits(&self, len: usize) -> bool {
        self.marks.len() + len <= self.marks.capacity()
    }

    fn append(&mut self, len: usize) -> u32 {
        if !self.fits(len) {
            // By an eighth, not to the double: memory that is never used is the larger cost.
            self.marks.reserve_exact(len.max(self.marks.len() / 8).max(MIN_GROWTH));
        }
        let at = self.marks.len();
        self.marks.resize(at + len, 0);
        at as u32
    }

    /// Whether to call [`Self::compact`] before labels of together `len` marks are stored.
    pub(super) fn is_scattered(&self, len: usize) -> bool {
        !self.fits(len) && self.vacant > self.marks.len() / 4
    }

    /// Moves all labels in use together; `spans` are all of them.
    pub(super) fn compact<'a>(&mut self, spans: impl Iterator<Item = &'a mut Span>) {
        let used = self.marks.len() - self.vacant;
        let mut marks = Vec::with_capacity(used + (used / 8).max(MIN_GROWTH));
        for span in spans.filter(|span| !span.is_empty()) {
            let at = marks.len() as u32;
            marks.extend_from_slice(self.get(*span));
            span.at = at;
        }
        *self = Self { marks, free: Vec::new(), vacant: 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks(seed: u64, len: usize) -> Vec<PackedMark> {
        (0..len as u64).map(|i| seed << 16 | i).collect()
    }

    proptest! {
        #[test]
        fn labels_keep_their_marks_and_memory_is_bounded(
            steps in prop::collection::vec((0usize..5, 1usize..105, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut labels = Labels::default();
            let mut live: Vec<(Span, Vec<PackedMark>)> = Vec::new();
            let mut most = 0;
            for (seed, (what, len, which)) in (0u64..).zip(steps) {
                if labels.is_scattered(2 * len) {
                    labels.compact(live.iter_mut().map(|(span, _)| span));
                }
                let chosen = (!live.is_empty()).then(|| which.index(live.len()));
                match (what, chosen) {
                    (0, Some(at)) => labels.release(live.swap_remove(at).0),
                    (1, Some(at)) => {
                        let (span, old) = live.swap_remove(at);
                        let cut = len.min(old.len() - 1).max(1);
                        let (upper, lower) = span.split(cut);
                        live.push((upper, old[..upper.len()].to_vec()));
                        if !lower.is_empty() {
                            live.push((lower, old[cut..].to_vec()));
                        }
                    }
                    (2, Some(at)) if live[at].1.len() < 105 => {
                        let (span, mut old) = live.swap_remove(at);
                        let more = marks(seed, len);
                        let (a, b) = span.split(old.len() / 2);
                        let joined = labels.join(a, &more, b);
                        labels.release(span);
                        old.splice(old.len() / 2..old.len() / 2, more);
                        live.push((joined, old));
                    }
                    _ => {
                        let new = marks(seed, len);
                        live.push((labels.store(&new), new));
                    }
                }
                let used: usize = live.iter().map(|(span, _)| span.len()).sum();
                most = used.max(most);
                prop_assert_eq!(labels.marks.len() - labels.vacant, used);
                prop_assert!(labels.marks.capacity() <= most * 3 / 2 + 8 * 105);
                for (span, marks) in &live {
                    prop_assert_eq!(labels.get(*span), &marks[..]);
                }
            }
        }
    }
}
