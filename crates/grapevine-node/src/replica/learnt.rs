//! What the replica actor learnt of a replica, for everybody to look at.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Written by the replica actor.
#[derive(Debug)]
pub struct Learnt {
    /// The bits of an f32; NaN is unknown.
    credit_error: AtomicU32,
    /// 0 is unknown.
    capacity: AtomicU64,
    /// The capacity is its engine's word, not learnt from answers.
    said: AtomicBool,
    /// Times that its predictions failed so that it must have lost its cache.
    pub lost_caches: AtomicU64,
}

impl Default for Learnt {
    fn default() -> Self {
        Self {
            credit_error: AtomicU32::new(f32::NAN.to_bits()),
            capacity: AtomicU64::new(0),
            said: AtomicBool::new(false),
            lost_caches: AtomicU64::new(0),
        }
    }
}

impl Learnt {
    /// Predicted minus reported cached tokens, mean over the last answers; positive when too much is
    /// believed. `None` until an answer said how much was cached.
    pub fn credit_error(&self) -> Option<f32> {
        Some(f32::from_bits(self.credit_error.load(Relaxed))).filter(|error| !error.is_nan())
    }

    /// Sets it.
    pub fn set_credit_error(&self, tokens: Option<f32>) {
        self.credit_error.store(tokens.unwrap_or(f32::NAN).to_bits(), Relaxed);
    }

    /// Tokens that its cache is believed to hold, in the router's tokens; `None` while that is the
    /// default.
    pub fn capacity(&self) -> Option<u64> {
        Some(self.capacity.load(Relaxed)).filter(|tokens| *tokens > 0)
    }

    /// Sets it; `said` when its engine says so.
    pub fn set_capacity(&self, tokens: u64, said: bool) {
        self.said.store(said, Relaxed);
        self.capacity.store(tokens, Relaxed);
    }

    /// Whose word the capacity is: `engine`, `learnt` or `default`.
    pub fn capacity_source(&self) -> &'static str {
        match (self.capacity(), self.said.load(Relaxed)) {
            (None, _) => "default",
            (Some(_), true) => "engine",
            (Some(_), false) => "learnt",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_zero() {
        let learnt = Learnt::default();
        assert_eq!((learnt.credit_error(), learnt.capacity()), (None, None));
        assert_eq!(learnt.capacity_source(), "default");
        learnt.set_credit_error(Some(0.0));
        learnt.set_capacity(7, true);
        assert_eq!((learnt.credit_error(), learnt.capacity()), (Some(0.0), Some(7)));
        assert_eq!(learnt.capacity_source(), "engine");
    }
}
