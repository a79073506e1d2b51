//! What a pick expects to find in the replica's cache, for the answer to be held against.

use grapevine_route::{Answer, Decision};
use grapevine_tree::{LastUse, Millis};
use tokio::sync::oneshot;

use super::usage::Usage;

/// An expectation. Only requests for which the tree was asked have one.
#[derive(Debug)]
pub(super) struct Expectation {
    /// The cache generation that it is of.
    pub(super) epoch: u32,
    /// The prompt is text alone.
    pub(super) textual: bool,
    /// When it was picked.
    pub(super) picked_at: Millis,
    /// When the first token was here.
    pub(super) answered_at: Option<Millis>,
    /// How the replica had used the prompt's prefix before; the tree says so soon after the pick.
    pub(super) last_use: oneshot::Receiver<Option<LastUse>>,
}

impl Expectation {
    /// What the engine had answered to it by `now`; `None` when it does not say what was cached.
    pub(super) fn against(mut self, decision: &Decision, usage: &Usage, now: Millis) -> Option<Answer> {
        let tokens = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let cached = usage.cached_tokens?;
        Some(Answer {
            prompt_tokens: decision.prompt_tokens,
            predicted_tokens: decision.matched_tokens,
            last_use: self.last_use.try_recv().ok().flatten(),
            reported_prompt_tokens: usage.prompt_tokens.map(tokens),
            reported_cached_tokens: Some(tokens(cached)),
            textual: self.textual,
            picked_at: self.picked_at,
            answered_at: self.answered_at.unwrap_or(now),
        })
    }
}
