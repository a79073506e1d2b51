//! The one record of why a request went where it did.

use grapevine_tree::{ReplicaId, Teacher};

/// Why the winner won.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It holds the longest useful prefix.
    Affinity,
    /// Nobody holds anything useful; it is the prefix's home by rendezvous hashing.
    Home,
    /// Nobody holds anything useful; it has the least to do.
    Load,
    /// Another replica holds more of the prompt but its queue outvoted that.
    Spill,
    /// The imbalance guard took the favourite's affinity vote away.
    Guard,
    /// There was one candidate.
    Only,
    /// The prompt has no key (not JSON, no prompt, an endpoint without one), or the tree did not
    /// answer in time: by load alone.
    NoKey,
    /// A baseline policy was configured.
    Policy,
    /// Shadow mode: by load alone, whatever affinity says.
    Shadow,
}

impl Reason {
    /// All reasons, for metrics that must exist before they happen.
    pub const ALL: [Self; 9] = [
        Self::Affinity,
        Self::Home,
        Self::Load,
        Self::Spill,
        Self::Guard,
        Self::Only,
        Self::NoKey,
        Self::Policy,
        Self::Shadow,
    ];

    /// The name in metrics, spans and headers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Home => "home",
            Self::Load => "load",
            Self::Spill => "spill",
            Self::Guard => "guard",
            Self::Only => "only",
            Self::NoKey => "no_key",
            Self::Policy => "policy",
            Self::Shadow => "shadow",
        }
    }
}

/// Where a request goes, and why. The votes of every candidate are in the
/// [`crate::pick::Ballot`] that was passed to [`crate::decide`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The winner.
    pub replica: ReplicaId,
    /// Its position in the slice of candidates.
    pub index: usize,
    /// Why it won.
    pub reason: Reason,
    /// Tokens of the prompt, estimated from its bytes.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that the winner is believed to hold.
    pub matched_tokens: u32,
    /// The most tokens that any candidate is believed to hold.
    pub best_matched_tokens: u32,
    /// Who taught the winner's match; `None` without one.
    pub teacher: Option<Teacher>,
    /// The replica whose affinity vote the guard took away, if it fired.
    pub guarded: Option<ReplicaId>,
    /// How many candidates shared the lowest sum (1 = no tie).
    pub tied: u32,
}

impl Decision {
    /// Tokens that the winner will have to prefill, as predicted.
    pub fn uncached_tokens(&self) -> u32 {
        self.prompt_tokens - self.matched_tokens.min(self.prompt_tokens)
    }
}
