//! What a pick expects to find in the replica's cache, for the answer to be held against.

use grapevine_route::{Answer, Decision};
use grapevine_tree::LastUse;
use tokio::sync::oneshot;

use super::usage::Usage;

/// An expectation. Only requests for which the tree was asked have one.
#[derive(Debug)]
pub(super) struct Expectation {
    /// The cache generation that it is of.
    pub(super) epoch: u32,
    /// The prompt is text alone.
    pub(super) textual: bool,
    /// How the replica had used the prompt's prefix before; the tree says so soon after the pick.
    pub(super) last_use: oneshot::Receiver<Option<LastUse>>,
}

impl Expectation {
    /// What the engine answered to it; `None` when it does not say what was cached.
    pub(super) fn against(mut self, decision: &Decision, usage: &Usage) -> Option<Answer> {
        let tokens = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let cached = usage.cached_tokens?;
        Some(Answer {
            prompt_tokens: decision.prompt_tokens,
            predicted_tokens: decision.matched_tokens,
            last_use: self.last_use.try_recv().ok().flatten(),
            reported_prompt_tokens: usage.prompt_tokens.map(tokens),
            reported_cached_tokens: Some(tokens(cached)),
            textual: self.textual,
        })
    }
}
