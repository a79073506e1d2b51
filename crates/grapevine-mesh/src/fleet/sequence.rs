//! Which numbered segments of one origin have been seen.

use std::collections::BTreeSet;

/// Tells new segment numbers from duplicates, in any order, and counts those that will not come.
///
/// A number between the seen ones, or up to one that was announced, is a hole. It is mended, or given
/// up: by [`Self::lose`] when nobody has it, or when it falls `span` behind the newest.
#[derive(Clone, Debug)]
pub struct Sequence {
    span: u64,
    /// Where this record began: what came before is of no interest.
    start: u64,
    /// Every number up to this one was accepted or is lost.
    settled: u64,
    /// Accepted or lost numbers above `settled`; at most `span` of them.
    ahead: BTreeSet<u64>,
    announced: u64,
    missed: u64,
}

impl Sequence {
    /// Starts after number `settled`: what came before it is of no interest.
    pub fn after(settled: u64, span: u64) -> Self {
        Self { span, start: settled, settled, ahead: BTreeSet::new(), announced: settled, missed: 0 }
    }

    /// Takes note of a segment; whether it is new.
    pub fn accept(&mut self, seq: u64) -> bool {
        if seq <= self.settled || !self.ahead.insert(seq) {
            return false;
        }
        self.tidy();
        true
    }

    /// Whether `seq` was accepted or is lost.
    pub fn has(&self, seq: u64) -> bool {
        seq <= self.settled || self.ahead.contains(&seq)
    }

    /// There is a segment `seq`, wherever it may be.
    pub fn announce(&mut self, seq: u64) {
        self.announced = self.announced.max(seq);
        self.tidy();
    }

    /// Nobody has these any more: the holes among them are lost. How many there were.
    pub fn lose(&mut self, first: u64, last: u64) -> u64 {
        let last = last.min(self.head());
        let before = self.missed;
        if last <= self.settled {
            return 0;
        }
        for seq in first.max(self.settled.saturating_add(1))..=last {
            self.missed = self.missed.saturating_add(u64::from(self.ahead.insert(seq)));
        }
        self.tidy();
        self.missed - before
    }

    /// Everything up to `settled` is known from elsewhere; what follows it is of interest, also where
    /// this record began later.
    pub fn resume(&mut self, settled: u64) {
        if settled < self.start && self.settled - settled <= self.span {
            self.ahead.extend(self.start.saturating_add(1)..=self.settled);
            (self.settled, self.start) = (settled, settled);
        } else if settled > self.settled {
            self.ahead.retain(|&seq| seq > settled);
            self.settled = settled;
            self.announced = self.announced.max(settled);
        }
        self.tidy();
    }

    /// Segments that are lost.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Every number up to this one was accepted or is lost.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Numbers that were skipped and may still come.
    pub fn open(&self) -> u64 {
        (self.head() - self.settled) - self.ahead.len() as u64
    }

    /// The holes, as at most `most` ranges of first and last number, lowest first.
    pub fn holes(&self, most: usize) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut next = self.settled.saturating_add(1);
        let beyond = self.head().checked_add(1);
        for &seq in self.ahead.iter().chain(&beyond) {
            if holes.len() >= most {
                break;
            }
            if next < seq {
                holes.push((next, seq - 1));
            }
            next = seq.saturating_add(1);
        }
        holes
    }

    /// The largest number seen or announced.
    pub fn head(&self) -> u64 {
        self.ahead.last().copied().unwrap_or(self.settled).max(self.announced)
    }

    fn tidy(&mut self) {
        self.give_up_below(self.head().saturating_sub(self.span));
        while let Some(next) = self.settled.checked_add(1).filter(|next| self.ahead.remove(next)) {
            self.settled = next;
        }
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
    fn a_hole_stays_open_until_it_falls_behind() {
        let mut sequence = Sequence::after(0, 4);
        assert!(sequence.accept(1) && sequence.accept(3) && sequence.accept(4));
        assert_eq!((sequence.missed(), sequence.holes(9)), (0, vec![(2, 2)]));
        assert!(sequence.accept(6));
        assert_eq!((sequence.missed(), sequence.holes(9)), (1, vec![(5, 5)]));
        assert!(!sequence.accept(2), "given up");
        assert!(sequence.accept(5));
        assert_eq!((sequence.missed(), sequence.open(), sequence.head()), (1, 0, 6));
    }

    #[test]
    fn what_is_announced_is_a_hole_until_it_comes_or_is_lost() {
        let mut sequence = Sequence::after(0, 64);
        sequence.accept(2);
        sequence.announce(5);
        sequence.announce(4);
        assert_eq!((sequence.holes(9), sequence.open(), sequence.head()), (vec![(1, 1), (3, 5)], 4, 5));
        assert_eq!(sequence.holes(1), [(1, 1)]);
        assert!(sequence.accept(4));
        assert_eq!(sequence.lose(1, 3), 2);
        assert_eq!((sequence.settled(), sequence.missed(), sequence.holes(9)), (4, 2, vec![(5, 5)]));
        assert_eq!(sequence.lose(0, u64::MAX), 1, "never beyond what is known to exist");
        assert_eq!((sequence.settled(), sequence.open()), (5, 0));
        assert!(sequence.accept(6));
    }

    #[test]
    fn a_record_resumes_where_another_one_stands() {
        let mut behind = Sequence::after(10, 64);
        behind.accept(13);
        behind.resume(12);
        assert_eq!((behind.settled(), behind.missed()), (13, 0));

        let mut late = Sequence::after(10, 64);
        late.accept(11);
        late.accept(13);
        late.resume(7);
        assert_eq!(late.holes(9), [(8, 10), (12, 12)]);
        late.resume(3);
        assert_eq!(late.holes(9), [(4, 10), (12, 12)], "the older one lacks more");
        late.resume(5);
        assert_eq!((late.settled(), late.missed()), (5, 0));
    }

    #[test]
    fn absurd_numbers_neither_panic_nor_grow() {
        let mut sequence = Sequence::after(7, 64);
        assert!(sequence.accept(u64::MAX));
        assert!(!sequence.accept(u64::MAX) && !sequence.accept(8));
        assert_eq!(sequence.missed(), u64::MAX - 64 - 7);
        assert_eq!(sequence.holes(9), [(u64::MAX - 63, u64::MAX - 1)]);
        sequence.resume(u64::MAX);
        assert_eq!(sequence.holes(9), []);
        let mut at_the_end = Sequence::after(u64::MAX, 64);
        assert!(!at_the_end.accept(u64::MAX));
        at_the_end.resume(0);
        assert_eq!(at_the_end.lose(0, u64::MAX), 0);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Accept(u64),
        Announce(u64),
        Lose(u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let seq = || 1u64..200;
        prop_oneof![
            8 => seq().prop_map(Step::Accept),
            1 => seq().prop_map(Step::Announce),
            1 => (seq(), 0u64..4).prop_map(|(first, len)| Step::Lose(first, first + len)),
        ]
    }

    proptest! {
        /// Against a set of everything ever seen: nothing is accepted twice, what is neither
        /// accepted nor missed is open, and the memory is bounded by the span.
        #[test]
        fn any_order_is_accounted_for(steps in proptest::collection::vec(step(), 0..300)) {
            let mut sequence = Sequence::after(0, 16);
            let mut seen = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Accept(seq) => {
                        let had = sequence.has(seq);
                        let accepted = sequence.accept(seq);
                        prop_assert!(!accepted || seen.insert(seq));
                        prop_assert!(had != accepted && sequence.has(seq));
                    }
                    Step::Announce(seq) => sequence.announce(seq),
                    Step::Lose(first, last) => _ = sequence.lose(first, last),
                }
                prop_assert!(sequence.ahead.len() <= 16);
                let holes: u64 = sequence.holes(99).iter().map(|(first, last)| last - first + 1).sum();
                prop_assert_eq!(holes, sequence.open());
            }
            prop_assert!(seen.last().copied().unwrap_or(0) <= sequence.head());
            prop_assert_eq!(seen.len() as u64 + sequence.missed() + sequence.open(), sequence.head());
        }
    }
}
