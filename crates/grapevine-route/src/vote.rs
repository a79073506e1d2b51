//! Scorers. Each is one pure function that prices one candidate in one currency: prefill tokens.
//! Lower is better; the sum decides.

use crate::pick::{Candidate, Request};

/// How much each scorer counts. All in tokens of cost per unit of what it measures.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Per token that the candidate would have to prefill. 12: replays of real traces; 1 melts under
    /// overload, above 16 first tokens come later and hits hardly gain.
    pub prefix: f32,
    /// Per prefill token queued there. The unit of the currency.
    pub queue: f32,
    /// Per request in flight there: decoding slots and fixed costs, in tokens.
    pub inflight: f32,
    /// Share of the prompt's full price charged as KV use goes from 80 % to 100 %.
    pub kv: f32,
    /// Discount for the cold prompt's home, as a share of the price of its cold part.
    pub home: f32,
    /// Surcharge for a replica that took more than its share of cold tokens lately, as a share of the
    /// price of the cold part per 100 % of excess over the mean, and steeper beyond
    /// [`CALM_EXCESS`] where the router is informed. No more than `home`: then routers that hear
    /// nothing of each other, and see different excesses, still agree on homes.
    pub spread: f32,
    /// The guard's absolute gap: requests in flight above the mean.
    pub guard_abs: f32,
    /// The guard's relative gap: times the mean.
    pub guard_rel: f32,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            prefix: 12.0,
            queue: 1.0,
            inflight: 64.0,
            kv: 1.0,
            home: 0.15,
            spread: 0.15,
            guard_abs: 8.0,
            guard_rel: 1.5,
        }
    }
}

/// The votes of one candidate, in tokens of cost; negative is a discount.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Votes {
    /// Uncached part of the prompt.
    pub prefix: f32,
    /// Prefill tokens queued.
    pub queue: f32,
    /// Requests in flight.
    pub inflight: f32,
    /// KV cache pressure.
    pub kv: f32,
    /// Home of a cold prompt.
    pub home: f32,
    /// Cold tokens taken lately against the others.
    pub spread: f32,
}

impl Votes {
    /// What decides.
    pub fn total(&self) -> f32 {
        self.prefix + self.queue + self.inflight + self.kv + self.home + self.spread
    }
}

/// What the scorers need to know of all candidates together.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetView {
    /// Mean of cold tokens taken lately, per unit of replica weight.
    pub mean_intake: f32,
    /// Mean requests in flight, per unit of replica weight.
    pub mean_inflight: f32,
    /// Tokens of the prompt that nobody holds.
    pub cold_tokens: f32,
    /// What a token of the deepest match counts, see [`worth`].
    pub worth: f32,
    /// The candidate that is the cold part's home.
    pub home: Option<usize>,
    /// See [`Request::informed`].
    pub informed: bool,
}

/// Uncached tokens: what this candidate would have to prefill, beyond what it holds.
pub fn prefix(w: &Weights, fleet: &FleetView, request: &Request<'_>, matched_tokens: f32) -> f32 {
    w.prefix * (request.prompt_tokens - fleet.worth * matched_tokens).max(0.0)
}

/// What a token that is held counts, 0..=1, when its prefix was picked `count` times lately.
///
/// A conversation's own history counts whole: nobody else will use it. A head that all requests share
/// is different: a replica without it prefills it once, for all that it will get, so each pays a
/// fraction. Without that, nothing in an idle fleet leaves the one replica that has the system prompt.
pub fn worth(count: f32, candidates: usize) -> f32 {
    1.0 / (1.0 + (count - OWN_PACE).max(0.0) / candidates.max(1) as f32)
}

/// Picks of one prefix that may all be one conversation's: with counts that halve in two minutes, a
/// request every 11 s.
pub const OWN_PACE: f32 = 16.0;

/// Prefill tokens dispatched there that have not come back.
pub fn queue(w: &Weights, c: &Candidate) -> f32 {
    w.queue * c.share(c.load.queued_tokens)
}

/// Requests in flight there.
pub fn inflight(w: &Weights, c: &Candidate) -> f32 {
    w.inflight * c.share(c.load.inflight)
}

/// KV cache pressure above 80 %. An engine that does not say gets no vote: unknown is not zero, and
/// not full either.
pub fn kv(w: &Weights, request: &Request<'_>, c: &Candidate) -> f32 {
    let Some(used) = c.kv_use else { return 0.0 };
    let pressure = ((used - 0.8) / 0.2).clamp(0.0, 1.0);
    w.kv * w.prefix * request.prompt_tokens * pressure
}

/// The home of the cold part of a prompt gets a small discount, so that routers which see the same
/// new prefix at the same moment agree without having talked.
pub fn home(w: &Weights, fleet: &FleetView, index: usize) -> f32 {
    if fleet.home == Some(index) { -w.home * w.prefix * fleet.cold_tokens } else { 0.0 }
}

/// Cold tokens fill caches. A replica that took more than its share lately pays for it, one that
/// took less is favoured, so that caches of equal size turn over equally fast. Bounded, in
/// proportion to the cold part: a warm prompt does not care.
pub fn spread(w: &Weights, fleet: &FleetView, c: &Candidate) -> f32 {
    // The prompt itself is the absolute gap: one prompt more than the mean is no imbalance.
    let base = fleet.mean_intake.max(fleet.cold_tokens);
    if base <= 0.0 {
        return 0.0;
    }
    let excess = ((c.share(c.load.intake_tokens) - fleet.mean_intake) * (1.0 / base)).clamp(-1.0, 1.0);
    // Who sees a part of the traffic alone sees excesses that are none.
    let steep = if fleet.informed { STEEP } else { 0.0 };
    let beyond = (excess.abs() - CALM_EXCESS).max(0.0).copysign(excess);
    w.spread * w.prefix * fleet.cold_tokens * (excess + steep * beyond)
}

/// Excess up to this share of the mean is what chance makes of equal shares: there homes decide.
pub const CALM_EXCESS: f32 = 0.15;

/// Beyond it fairness outvotes homes within a few hundredths: few conversations, each much work, else
/// keep what chance gave them, and in an idle fleet no other vote would move one.
pub const STEEP: f32 = 15.0;
