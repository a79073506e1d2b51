//! So many a second, without a lock.

use grapevine_tree::Millis;

use crate::atomic::{AtomicU64, Ordering::Relaxed};

/// Bits that count; the others are the second.
const COUNT_BITS: u32 = 8;

/// Lets the first of each second pass.
#[derive(Debug)]
pub struct Pace {
    per_second: u64,
    /// The latest second that anybody came in, and how many passed in it.
    passed: AtomicU64,
}

impl Pace {
    /// At most `per_second` (below 256) pass in a second.
    pub fn new(per_second: u8) -> Self {
        Self { per_second: per_second.into(), passed: AtomicU64::new(0) }
    }

    /// Whether one more may pass at `now`. Who read the clock before others came of a later second counts
    /// among those.
    pub fn passes(&self, now: Millis) -> bool {
        let second = now / 1_000;
        let pass = |passed: u64| {
            let (latest, count) = (passed >> COUNT_BITS, passed & ((1 << COUNT_BITS) - 1));
            let (latest, count) = if latest < second { (second, 0) } else { (latest, count) };
            (count < self.per_second).then_some(latest << COUNT_BITS | (count + 1))
        };
        self.passed.fetch_update(Relaxed, Relaxed, pass).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_pass_in_a_second() {
        let pace = Pace::new(50);
        let passed = |now| (0..200).filter(|_| pace.passes(now)).count();
        assert_eq!((passed(10), passed(999), passed(1_000)), (50, 0, 50));
        assert_eq!((passed(999), passed(1_999), passed(2_000)), (0, 0, 50), "the clock read too early");
    }
}
