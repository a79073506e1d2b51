//! By session, as a cookie does it: one table for all routers, no limit on load.

use std::collections::HashMap;

use rand::rngs::SmallRng;

use super::{Question, lowest};

/// Where every session went first.
#[derive(Debug, Default)]
pub struct Sticky {
    homes: HashMap<u32, usize>,
}

impl Sticky {
    pub(super) fn pick(&mut self, question: &Question<'_>, rng: &mut SmallRng) -> usize {
        *self
            .homes
            .entry(question.call.session)
            .or_insert_with(|| lowest(question.loads.len(), rng, |i| f64::from(question.loads[i].inflight)))
    }
}
