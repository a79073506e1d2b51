//! Which numbered segments of one origin have been seen.

use std::collections::BTreeSet;

/// Tells new segment numbers from duplicates, in any order, and counts those that will not come.
///
/// An origin keeps its newest `span` segments where receivers find them. So a hole is open while
/// its number is among those, and lost once the origin has overwritten it.
#[derive(Clone, Debug)]
pub struct Sequence {
    span: u64,
    /// Every number up to this one was accepted or is lost.
    settled: u64,
    /// Accepted numbers above `settled`; at most `span` of them.
    ahead: BTreeSet<u64>,
    missed: u64,
}

impl Sequence {
    /// Starts after number `settled`: what came before it is of no interest.
    pub fn after(settled: u64, span: u64) -> Self {
        Self { span, settled, ahead: BTreeSet::new(), missed: 0 }
    }

    /// Takes note of a segment; whether it is new.
    pub fn accept(&mut self, seq: u64) -> bool {
        if seq <= self.settled || !self.ahead.insert(seq) {
            return false;
        }
        self.give_up_below(self.head().saturating_sub(self.span));
        while self.ahead.remove(&(self.settled.saturating_add(1))) {
            self.settled += 1;
        }
        true
    }

    /// Segments that the origin overwrote before they were seen here.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Numbers that were skipped and may still come.
    pub fn open(&self) -> u64 {
        (self.head() - self.settled) - self.ahead.len() as u64
    }

    /// The largest number seen.
    pub fn head(&self) -> u64 {
        self.ahead.last().copied().unwrap_or(self.settled)
    }

    fn give_up_below(&mut self, oldest_kept: u64) {
        if oldest_kept <= self.settled {
            return;
        }
        let kept = self.ahead.split_off(&(oldest_kept.saturating_add(1)));
        let seen = self.ahead.len() as u64;
        self.missed = self.missed.saturating_add(oldest_kept - self.settled - seen);
        self.ahead = kept;
        self.settled = oldest_kept;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn in_order_nothing_is_missed() {
        let mut sequence = Sequence::after(0, 4);
        assert!((1..=100).all(|seq| sequence.accept(seq)));
        assert_eq!((sequence.missed(), sequence.open(), sequence.head()), (0, 0, 100));
        assert!(!(1..=100).any(|seq| sequence.accept(seq)));
    }

    #[test]
    fn a_hole_stays_open_until_it_is_overwritten() {
        let mut sequence = Sequence::after(0, 4);
        assert!(sequence.accept(1) && sequence.accept(3) && sequence.accept(4));
        assert_eq!((sequence.missed(), sequence.open()), (0, 1));
        assert!(sequence.accept(6));
        assert_eq!((sequence.missed(), sequence.open()), (1, 1));
        assert!(!sequence.accept(2), "given up");
        assert!(sequence.accept(5));
        assert_eq!((sequence.missed(), sequence.open(), sequence.head()), (1, 0, 6));
    }

    #[test]
    fn absurd_numbers_neither_panic_nor_grow() {
        let mut sequence = Sequence::after(7, 64);
        assert!(sequence.accept(u64::MAX));
        assert!(!sequence.accept(u64::MAX) && !sequence.accept(8));
        assert_eq!(sequence.missed(), u64::MAX - 64 - 7);
        let mut at_the_end = Sequence::after(u64::MAX, 64);
        assert!(!at_the_end.accept(u64::MAX));
    }

    proptest! {
        /// Against a set of everything ever seen: nothing is accepted twice, what is neither
        /// accepted nor missed is open, and the memory is bounded by the span.
        #[test]
        fn any_order_is_accounted_for(numbers in proptest::collection::vec(1u64..200, 0..300)) {
            let mut sequence = Sequence::after(0, 16);
            let mut seen = BTreeSet::new();
            for seq in numbers {
                let accepted = sequence.accept(seq);
                prop_assert!(!accepted || seen.insert(seq));
                prop_assert!(sequence.ahead.len() <= 16);
            }
            let head = sequence.head();
            prop_assert_eq!(seen.last().copied().unwrap_or(0), head);
            prop_assert_eq!(seen.len() as u64 + sequence.missed() + sequence.open(), head);
        }
    }
}
