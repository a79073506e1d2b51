//! How much a replica's cache holds, learnt from what its answers say they found there.
//!
//! A cache that evicts what was used least recently holds what lies less than its size deep in the
//! order of use. So each answer is one look at one depth: held, or lost. Looks are counted by depth, on
//! a scale of four steps a doubling, and fade as newer ones come. The estimate is the depth that parts
//! the two best: it gives the fewest looks that it cannot explain.
//!
//! It errs upwards, because to believe in too small a cache costs hits on all traffic, in too large a
//! one only where caches are tight (docs/routing.md): the assumed size counts as `PRIOR_LOOKS` held looks at that depth, and of depths
//! about as good as each other the deepest is taken. Nobody looks deeper than is believed, so belief
//! goes on to `REACH` times what was found, and further when things are found that were not believed.

/// Depth at the lower edge of the first step, tokens. No engine's cache is smaller.
const SHALLOWEST_TOKENS: f64 = 1_024.0;

/// Steps a doubling: the estimate is within 19 %.
const STEPS: f64 = 4.0;

/// 96 steps are 24 doublings: 17 billion tokens.
const DEPTHS: usize = 96;

/// Held looks that the assumed size stands for.
const PRIOR_LOOKS: f32 = 2.0;

/// How far beyond what was found belief may go on nothing. With 1.4, routers that see an eighth of the
/// traffic each need hours to come from a tenth of the size (replays).
const REACH: f64 = 2.0;

/// Finds that it takes to go on from there: one may be a stray.
const REACH_LOOKS: f32 = 2.0;

/// Finds of what was not believed any more that double the reach. A few may come from peers' picks that
/// this router was not told of.
const UNBELIEVED_LOOKS: u32 = 4;

/// Held looks without which nothing is said: an engine that caches nothing, or does not report it,
/// gives none.
const LEAST_HELD: f32 = 8.0;

/// Looks at one depth that are kept: then the older ones begin to fade.
const LOOKS_KEPT: f32 = 64.0;

/// After this many looks all of them fade a little: a tenth remains after 22,000.
const FADE_LOOKS: u32 = 256;
const FADE: f32 = 31.0 / 32.0;

/// Lost looks that may stay unexplained for a deeper estimate: as they fade, it probes deeper again.
const SLACK: f32 = 1.0;

/// Finds that make a depth sure, and how many losses do not make it unsure: a share of the finds, and
/// two strays.
const SURE_HELD: f32 = 3.0;
const SURE_SHARE: f32 = 0.125;
const SURE_LOST: f32 = 2.0;

/// The size of one replica's cache as its answers show it. 800 bytes.
#[derive(Clone, Debug)]
pub struct CapacityEstimate {
    held: [f32; DEPTHS],
    lost: [f32; DEPTHS],
    looks: u32,
    /// Finds that were not believed, since the reach last changed.
    unbelieved: u32,
    /// How often they doubled the reach.
    doublings: u32,
}

impl Default for CapacityEstimate {
    fn default() -> Self {
        Self { held: [0.0; DEPTHS], lost: [0.0; DEPTHS], looks: 0, unbelieved: 0, doublings: 0 }
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

    /// Something was found that was believed gone: it lay deeper than belief goes.
    pub fn found_unbelieved(&mut self) {
        self.unbelieved += 1;
        if self.unbelieved >= UNBELIEVED_LOOKS {
            self.unbelieved = 0;
            self.doublings = (self.doublings + 1).min(DEPTHS as u32);
        }
    }

    /// Tokens that the cache seems to hold, where `assumed` was believed before; `None` until enough
    /// was found there to tell.
    pub fn tokens(&self, assumed: u64) -> Option<u64> {
        if self.held.iter().sum::<f32>() < LEAST_HELD && self.doublings == 0 {
            return None;
        }
        let found = (REACH * edge(self.deepest(REACH_LOOKS) + 1)).max(assumed as f64);
        let furthest = found * f64::from(self.doublings).exp2();
        Some(edge(self.parting(step(assumed))).min(furthest) as u64)
    }

    /// Whether something `depth` tokens deep is there for all that is known: finds were made as deep or
    /// deeper, and hardly anything was lost that lay less deep.
    pub fn surely_holds(&self, depth: u64) -> bool {
        let (held, lost) = self.evidence(step(depth));
        held >= SURE_HELD && lost <= held * SURE_SHARE + SURE_LOST
    }

    /// How likely it is that something `depth` tokens deep is gone, by what was lost that lay less deep and found
    /// that lay deeper, or by what was lost and found about there, whichever is more: more than 0, less than 1.
    /// A cache that nothing is known of is taken for one that keeps nine of ten.
    pub fn chance_of_loss(&self, depth: u64) -> f32 {
        let at = step(depth);
        let about = at.saturating_sub(1)..(at + 2).min(DEPTHS);
        let there = (self.held[about.clone()].iter().sum(), self.lost[about].iter().sum());
        let chance = |(held, lost): (f32, f32)| (lost + 0.1) / (held + lost + 1.0);
        chance(self.evidence(at)).max(chance(there))
    }

    /// Finds at step `at` or deeper, which speak for it, and losses there or less deep, which speak against.
    fn evidence(&self, at: usize) -> (f32, f32) {
        (self.held[at..].iter().sum(), self.lost[..=at].iter().sum())
    }

    /// The deepest step with at least `looks` finds in it and beyond; the first when there are none.
    fn deepest(&self, looks: f32) -> usize {
        let mut beyond = 0.0;
        let found = (0..DEPTHS).rev().find(|&at| {
            beyond += self.held[at];
            beyond >= looks
        });
        found.unwrap_or(0)
    }

    /// The deepest step for which parting held from lost at its lower edge leaves about the fewest
    /// looks unexplained.
    fn parting(&self, assumed: usize) -> usize {
        let mut cost = self.held.iter().sum::<f32>() + PRIOR_LOOKS;
        let mut best = (cost, 0);
        for at in 0..DEPTHS {
            let prior = if at == assumed { PRIOR_LOOKS } else { 0.0 };
            cost += self.lost[at] - self.held[at] - prior;
            if cost <= best.0 + SLACK {
                best = (best.0.min(cost), at + 1);
            }
        }
        best.1
    }

    fn look(&mut self, depth: u64, held: bool) {
        let at = step(depth);
        if held && self.doublings > 0 && at >= self.deepest(REACH_LOOKS) {
            // Now it is known how deep.
            (self.unbelieved, self.doublings) = (0, 0);
        }
        let (seen, other) = match held {
            true => (&mut self.held[at], &mut self.lost[at]),
            false => (&mut self.lost[at], &mut self.held[at]),
        };
        *seen += 1.0;
        // Looks at one depth fade as newer ones at that depth come.
        if *seen + *other > LOOKS_KEPT {
            *seen *= 0.5;
            *other *= 0.5;
        }
        // And all do, slowly: nobody looks deeper than is believed, so what was lost there by chance
        // would never be looked for again.
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(FADE_LOOKS) {
            self.unbelieved = 0;
            self.held.iter_mut().chain(&mut self.lost).for_each(|looks| *looks *= FADE);
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
    fn follows_a_cache_that_shrank() {
        let mut estimate = CapacityEstimate::default();
        (0..2_000).for_each(|n| estimate.held(n * 250));
        assert!(estimate.tokens(500_000).unwrap() > 450_000);
        let shrunk = learn(&mut estimate, 500_000, 2_000, 0);
        assert!((TRUE * 4 / 5..TRUE * 2).contains(&shrunk), "{shrunk}");
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
        (0..2).for_each(|_| estimate.lost(9_000));
        assert!(estimate.tokens(500_000).unwrap() > 400_000);
        (0..30).for_each(|_| estimate.lost(9_000));
        assert!(estimate.tokens(500_000).unwrap() < 10_000);
    }

    #[test]
    fn finds_that_were_not_believed_carry_belief_beyond_a_depth_that_nobody_looks_at() {
        let mut estimate = CapacityEstimate::default();
        // All that is used again lies 150,000 deep.
        for _ in 0..200 {
            match estimate.tokens(20_000).is_some_and(|believed| believed >= 150_000) {
                true => estimate.held(150_000),
                false => estimate.found_unbelieved(),
            }
        }
        let found = estimate.tokens(20_000).unwrap();
        assert!((150_000..500_000).contains(&found), "{found}");
    }

    #[test]
    fn sure_is_what_was_found_as_deep_and_not_lost_less_deep() {
        let mut estimate = CapacityEstimate::default();
        (0..10).for_each(|_| estimate.held(20_000));
        assert!(estimate.surely_holds(0) && estimate.surely_holds(22_000) && !estimate.surely_holds(40_000));
        (0..20).for_each(|_| estimate.lost(90_000));
        assert!(estimate.surely_holds(20_000), "what is lost deeper does not matter");
        (0..2).for_each(|_| estimate.lost(5_000));
        assert!(estimate.surely_holds(20_000));
        (0..2).for_each(|_| estimate.lost(5_000));
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
