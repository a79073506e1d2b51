//! How many requests may be sent a second time.
//!
//! When a fleet fails, retries double what is asked of it. They are therefore a share of the requests of the
//! last seconds, and a few a second besides, so that a router with little to do may always try again.

use std::time::Duration;

use tower::retry::budget::{Budget, TpsBudget};

/// Requests of this long count.
const WINDOW: Duration = Duration::from_secs(10);

/// Retries a second that are always allowed.
const ALWAYS: u32 = 10;

/// The allowance.
#[derive(Debug)]
pub(super) struct RetryBudget(TpsBudget);

impl RetryBudget {
    /// Retries up to this share of requests.
    pub(super) fn new(ratio: f32) -> Self {
        Self(TpsBudget::new(WINDOW, ALWAYS, ratio))
    }

    /// A request came.
    pub(super) fn requested(&self) {
        self.0.deposit();
    }

    /// Whether one more may be sent again; counts it.
    pub(super) fn may_retry(&self) -> bool {
        self.0.withdraw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_fleet_is_not_asked_twice() {
        let budget = RetryBudget::new(0.2);
        for _ in 0..1_000 {
            budget.requested();
        }
        let granted = (0..1_000).filter(|_| budget.may_retry()).count();
        assert!((200..=310).contains(&granted), "{granted} of 1,000 at a fifth and 10 a second");
        assert!((0..1_000).filter(|_| RetryBudget::new(0.0).may_retry()).count() > 0, "never none");
    }
}
