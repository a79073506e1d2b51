//! How much a replica's cache holds, learnt from what its answers say they found there.
//!
//! A cache that evicts what was used least recently holds what lies less than its size deep in the
//! order of use. So each answer is one look at one depth: held, or lost. Looks are counted by depth, on
//! a scale of four steps a doubling, and fade as newer ones come. The estimate is the depth that parts
//! the two best: it gives the fewest looks that it cannot explain.
//!
//! It errs upwards, because to believe in too large a cache costs little and in too small a one much
//! (docs/routing.md): a held look that it cannot explain counts as three lost ones, the assumed size as
//! [`PRIOR_LOOKS`] held ones at that depth, and of depths as good as each other the deepest is taken.

/// Depth at the lower edge of the first step, tokens. No engine's cache is smaller.
const SHALLOWEST_TOKENS: f64 = 1_024.0;

/// Steps a doubling: the estimate is within 19 %.
const STEPS: f64 = 4.0;

/// 96 steps are 24 doublings: 17 billion tokens.
const DEPTHS: usize = 96;

/// What a held look beyond the estimate costs, in lost looks before it.
const HELD_COST: f32 = 3.0;

/// Held looks that the assumed size stands for.
const PRIOR_LOOKS: f32 = 4.0;

/// Held looks without which nothing is said: an engine that caches nothing, or does not report it,
/// gives none.
const LEAST_HELD: f32 = 8.0;

/// Looks after which an old one counts half.
const HALF_LIFE_LOOKS: f64 = 512.0;

/// Weights are scaled back beyond this; far from where f32 loses units.
const LARGEST_WEIGHT: f32 = 1_024.0;

/// Lost looks that may stay unexplained for a deeper estimate: as they fade, it probes deeper again.
const SLACK: f32 = 1.5;

/// Finds that make a depth sure, and how many losses among them do not make it unsure: a share, and as
/// many as it takes to notice a lost cache.
const SURE_HELD: f32 = 3.0;
const SURE_SHARE: f32 = 0.125;
const SURE_LOST: f32 = 3.0;

/// The size of one replica's cache as its answers show it. 800 bytes.
#[derive(Clone, Debug)]
pub struct CapacityEstimate {
    held: [f32; DEPTHS],
    lost: [f32; DEPTHS],
    /// What a look counts now: it grows, so that older ones fade.
    weight: f32,
}

impl Default for CapacityEstimate {
    fn default() -> Self {
        Self { held: [0.0; DEPTHS], lost: [0.0; DEPTHS], weight: 1.0 }
    }
}

impl CapacityEstimate {
    /// Something `depth` tokens deep was found.
    pub fn held(&mut self, depth: u64) {
        self.look(depth, true);
    }

    /// Something `depth` tokens deep was gone.
    pub fn lost(&mut self, depth: u64) {
        self.look(depth, false);
    }

    /// Tokens that the cache seems to hold, where `assumed` was believed before; `None` until enough
    /// was found there to tell.
    pub fn tokens(&self, assumed: u64) -> Option<u64> {
        let known: f32 = self.held.iter().sum();
        if known < LEAST_HELD * self.weight {
            return None;
        }
        // Twice the deepest that was found, or what was assumed, is as far as belief may go on nothing.
        let furthest = (2.0 * edge(self.deepest(2.0) + 1)).max(assumed as f64);
        Some(edge(self.parting(step(assumed))).min(furthest) as u64)
    }

    /// Whether something `depth` tokens deep is there for all that is known: finds were made as deep or
    /// deeper, and hardly anything was lost that lay less deep.
    pub fn surely_holds(&self, depth: u64) -> bool {
        let at = step(depth);
        let held: f32 = self.held[at..].iter().sum();
        let lost: f32 = self.lost[..=at].iter().sum();
        held >= SURE_HELD * self.weight && lost <= held * SURE_SHARE + SURE_LOST * self.weight
    }

    /// The deepest step with at least `looks` finds in it and beyond; the first when there are none.
    fn deepest(&self, looks: f32) -> usize {
        let mut beyond = 0.0;
        let found = (0..DEPTHS).rev().find(|&at| {
            beyond += self.held[at];
            beyond >= looks * self.weight
        });
        found.unwrap_or(0)
    }

    /// The deepest step for which parting held from lost at its lower edge leaves about the fewest
    /// looks unexplained.
    fn parting(&self, assumed: usize) -> usize {
        let mut cost = HELD_COST * (self.held.iter().sum::<f32>() + PRIOR_LOOKS * self.weight);
        let mut best = (cost, 0);
        for at in 0..DEPTHS {
            let prior = if at == assumed { PRIOR_LOOKS * self.weight } else { 0.0 };
            cost += self.lost[at] - HELD_COST * (self.held[at] + prior);
            if cost <= best.0 + SLACK * self.weight {
                best = (best.0.min(cost), at + 1);
            }
        }
        best.1
    }

    fn look(&mut self, depth: u64, held: bool) {
        let looks = if held { &mut self.held } else { &mut self.lost };
        looks[step(depth)] += self.weight;
        self.weight *= (1.0 / HALF_LIFE_LOOKS).exp2() as f32;
        if self.weight > LARGEST_WEIGHT {
            let scale = 1.0 / self.weight;
            self.held.iter_mut().chain(&mut self.lost).for_each(|looks| *looks *= scale);
            self.weight = 1.0;
        }
    }
}

/// The step that `depth` lies in.
fn step(depth: u64) -> usize {
    let steps = (depth as f64 / SHALLOWEST_TOKENS).max(1.0).log2() * STEPS;
    (steps as usize).min(DEPTHS - 1)
}

/// Where a step begins, tokens.
fn edge(step: usize) -> f64 {
    SHALLOWEST_TOKENS * (step as f64 / STEPS).exp2()
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const TRUE: u64 = 200_000;

    /// Looks at random depths that belief allows, one in `noise` of them wrong. Gives the estimate.
    fn learn(estimate: &mut CapacityEstimate, assumed: u64, looks: usize, noise: u32) -> u64 {
        let mut rng = SmallRng::seed_from_u64(7);
        for _ in 0..looks {
            let believed = estimate.tokens(assumed).unwrap_or(assumed);
            let depth = (rng.random::<f64>().powi(2) * believed as f64) as u64;
            match (depth < TRUE) ^ (noise > 0 && rng.random_range(0..noise.max(1)) == 0) {
                true => estimate.held(depth),
                false => estimate.lost(depth),
            }
        }
        estimate.tokens(assumed).unwrap_or(assumed)
    }

    #[test]
    fn comes_to_the_truth_from_either_side_and_errs_upwards() {
        for noise in [0, 20] {
            for assumed in [TRUE / 4, TRUE / 2, TRUE, TRUE * 4, TRUE * 32] {
                let found = learn(&mut CapacityEstimate::default(), assumed, 2_000, noise);
                assert!((TRUE * 4 / 5..TRUE * 2).contains(&found), "{assumed} became {found}, noise {noise}");
            }
        }
    }

    #[test]
    fn follows_a_cache_that_grew_or_shrank() {
        let mut estimate = CapacityEstimate::default();
        for _ in 0..400 {
            for depth in [1_000, 20_000, 40_000, 60_000] {
                if depth < 50_000 { estimate.held(depth) } else { estimate.lost(depth) }
            }
        }
        let small = estimate.tokens(500_000).unwrap();
        assert!((40_000..=60_000).contains(&small), "{small}");
        let grown = learn(&mut estimate, 500_000, 8_000, 0);
        assert!((TRUE * 4 / 5..TRUE * 2).contains(&grown), "{grown}");
    }

    #[test]
    fn says_nothing_of_an_engine_that_finds_nothing() {
        let mut estimate = CapacityEstimate::default();
        assert_eq!((estimate.tokens(500_000), estimate.surely_holds(0)), (None, false));
        for depth in 0..10_000 {
            estimate.lost(depth);
        }
        assert_eq!((estimate.tokens(500_000), estimate.surely_holds(0)), (None, false));
    }

    #[test]
    fn a_few_early_losses_do_not_undo_what_was_assumed() {
        let mut estimate = CapacityEstimate::default();
        (0..20).for_each(|_| estimate.held(3_000));
        (0..6).for_each(|_| estimate.lost(9_000));
        assert!(estimate.tokens(500_000).unwrap() > 400_000);
        (0..30).for_each(|_| estimate.lost(9_000));
        assert!(estimate.tokens(500_000).unwrap() < 10_000);
    }

    #[test]
    fn sure_is_what_was_found_as_deep_and_not_lost_less_deep() {
        let mut estimate = CapacityEstimate::default();
        (0..10).for_each(|_| estimate.held(20_000));
        assert!(estimate.surely_holds(0) && estimate.surely_holds(20_000) && !estimate.surely_holds(40_000));
        (0..20).for_each(|_| estimate.lost(90_000));
        assert!(estimate.surely_holds(20_000), "what is lost deeper does not matter");
        (0..3).for_each(|_| estimate.lost(5_000));
        assert!(estimate.surely_holds(20_000));
        (0..3).for_each(|_| estimate.lost(5_000));
        assert!(estimate.surely_holds(4_000) && !estimate.surely_holds(20_000));
    }

    #[test]
    fn depths_of_any_size_are_taken() {
        let mut estimate = CapacityEstimate::default();
        (0..20).for_each(|_| estimate.held(u64::MAX));
        estimate.lost(0);
        assert!(estimate.tokens(1).unwrap() > 1 << 33);
        assert!((0..DEPTHS).all(|at| step(edge(at) as u64 + 1) == at));
    }
}
