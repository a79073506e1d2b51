//! Which of one sender's counters were used already.

const WORDS: usize = 16;

/// Counters remembered behind the highest: a full chitchat message has 58 fragments, so a dozen
/// large messages may overtake each other.
pub(super) const WINDOW: u64 = 64 * WORDS as u64;

/// The usual sliding window: a counter is good once, and not when it is too far behind to tell.
#[derive(Clone, Debug)]
pub(super) struct ReplayWindow {
    /// One more than the highest counter used; 0 before the first.
    next: u64,
    used: [u64; WORDS],
}

impl ReplayWindow {
    pub(super) fn new() -> Self {
        Self { next: 0, used: [0; WORDS] }
    }

    /// Whether `counter` is fresh.
    pub(super) fn is_fresh(&self, counter: u64) -> bool {
        if counter >= self.next {
            return counter < u64::MAX;
        }
        self.next - counter <= WINDOW && !self.is_used(counter)
    }

    /// Uses `counter`; whether it was fresh. Only for datagrams whose seal held.
    pub(super) fn use_up(&mut self, counter: u64) -> bool {
        if !self.is_fresh(counter) {
            return false;
        }
        if counter >= self.next {
            self.slide_to(counter + 1);
        }
        let (word, bit) = position(counter);
        if let Some(word) = self.used.get_mut(word) {
            *word |= bit;
        }
        true
    }

    fn is_used(&self, counter: u64) -> bool {
        let (word, bit) = position(counter);
        self.used.get(word).is_some_and(|word| word & bit != 0)
    }

    /// Makes room up to `next`, clearing what the ring of bits reuses.
    fn slide_to(&mut self, next: u64) {
        if next - self.next >= WINDOW {
            self.used = [0; WORDS];
        } else {
            for counter in self.next..next {
                let (word, bit) = position(counter);
                if let Some(word) = self.used.get_mut(word) {
                    *word &= !bit;
                }
            }
        }
        self.next = next;
    }
}

fn position(counter: u64) -> (usize, u64) {
    let at = counter % WINDOW;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_counter_is_good_once() {
        let mut window = ReplayWindow::new();
        assert!(window.use_up(0) && !window.use_up(0));
        assert!(window.use_up(5) && window.use_up(3) && !window.use_up(5));
        assert!(window.use_up(WINDOW + 4) && window.use_up(6) && !window.is_fresh(4), "too far behind");
        assert!(window.use_up(1 << 60) && !window.is_fresh(WINDOW + 4));
        assert!(!window.is_fresh(u64::MAX) && window.use_up(u64::MAX - 1));
    }

    proptest! {
        /// Against a set of all counters: never accepted twice, and always accepted when new and
        /// not too far behind.
        #[test]
        fn agrees_with_a_set(counters in proptest::collection::vec(0u64..4_000, 0..600)) {
            let mut window = ReplayWindow::new();
            let mut seen = BTreeSet::new();
            for counter in counters {
                let behind = seen.last().is_some_and(|&last| counter + WINDOW <= last);
                prop_assert_eq!(window.use_up(counter), !behind && !seen.contains(&counter));
                if !behind {
                    seen.insert(counter);
                }
            }
        }
    }
}
