//! What answers say of the predictions: how far off they are, how much a cache holds, and whether a
//! replica has lost it.
//!
//! An engine that restarts, or whose cache is reset, may be back before anybody saw it gone. Then deep
//! predictions fail, one after the other. But they fail for other reasons too: the cache is smaller than
//! believed, nobody prefilled the prompt yet, the engine caches nothing, one client's requests bypass
//! the cache. So a failure counts only where success was certain:
//!
//! - this replica has found what was predicted since it was last believed empty;
//! - it has found things that lay as deep in the order of use or deeper, and lost hardly any that lay
//!   less deep;
//! - it was last used `SETTLED_MS` and a slow answer's time ago, whichever is longer, so that prompts of
//!   one burst do not accuse the first, nor those that wait in a slow engine's queue;
//! - all of its tail was gone, and the tail was worth caching (`DEEP_TOKENS`).
//!
//! A row of such failures within `ROW_MS` is a lost cache, where one loss explains them all: it came after
//! the last use of each of them and before the first answer, and nothing from before it was found since.
//! A small cache that evicts fails otherwise: what it lost was used, and so was there, when the cache
//! should have been gone already. A row is long enough when it is too unlikely to be chance (`SURPRISE`), by
//! how often things that lay so deep were lost before. A verdict is cheap when wrong (one replica's credit,
//! relearnt within minutes), but each one doubles the row that the next needs, for `FORGIVE_MS`.

use grapevine_tree::{LastUse, Millis};

use crate::capacity::CapacityEstimate;

/// Failures in a row that make a lost cache, at least.
const ROW: usize = 3;

/// How unlikely a row must be by chance: the sum of each failure's ln(1 / chance), here one row in 60,000.
/// Where nothing was ever lost that is three failures, where an eighth was it is six. A row of three whatever
/// was lost before accused busy engines with full caches every few minutes.
const SURPRISE: f32 = 11.0;

/// Failures further apart are no row.
const ROW_MS: Millis = 30_000;

/// A success acquits if its prefix was last used this long before the row began, or longer: one that was
/// used since then was prefilled anew, whatever happened. An answer's time and some.
const HEALED_MS: Millis = 10_000;

/// A prefix used more recently may not have been prefilled yet. Nothing is lost by waiting: a prefix
/// used so often is back in the cache after its first failure.
const SETTLED_MS: Millis = 2_000;

/// What a slow answer's time falls by with every quicker one: a half after 44.
const SLOW_KEPT: f32 = 63.0 / 64.0;

/// A tail shorter than this tells nothing: engines cache whole blocks, estimates are off by some.
const DEEP_TOKENS: u32 = 1_024;

/// A verdict doubles what the next row needs at most this often.
const MAX_STRIKES: u32 = 4;

/// One verdict is forgiven after this long.
const FORGIVE_MS: Millis = 600_000;

/// Estimated tokens differ from an engine's: by a share of the prompt, as text differs in bytes a
/// token along a prompt, and by a block or two.
const SLACK_SHARE: f32 = 0.125;
const SLACK_TOKENS: f32 = 64.0;

/// Answers that the mean error is taken over.
const MEAN_ANSWERS: u32 = 64;

/// One answer, and what had been expected of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Answer {
    /// Tokens of the prompt as the router estimated them: [`crate::Decision::prompt_tokens`].
    pub prompt_tokens: u32,
    /// Tokens predicted to be cached: [`crate::Decision::matched_tokens`].
    pub predicted_tokens: u32,
    /// How the replica had last used the prompt's prefix, asked at pick time; `None` if never.
    pub last_use: Option<LastUse>,
    /// Tokens of the prompt as the engine counted them, where it says.
    pub reported_prompt_tokens: Option<u32>,
    /// Tokens found in the cache, where the engine says. Not saying is not zero.
    pub reported_cached_tokens: Option<u32>,
    /// The prompt is text alone. Images and audio are tokens that no bytes tell of.
    pub textual: bool,
    /// When the replica was picked.
    pub picked_at: Millis,
    /// When the answer's first token was here: the prompt has been looked up by then.
    pub answered_at: Millis,
}

impl Answer {
    /// Cached tokens in the router's own, estimated ones.
    fn cached_tokens(&self) -> Option<f32> {
        let cached = self.reported_cached_tokens? as f32;
        match self.reported_prompt_tokens {
            Some(counted @ 1..) => Some(cached * self.prompt_tokens as f32 / counted as f32),
            _ => Some(cached),
        }
    }
}

/// What must be done about a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its cache is empty: void its credit on every router.
    LostCache,
}

/// What was found of a prompt's tail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    Held,
    Partly { tokens: f32 },
    Lost,
}

/// What one replica's answers say.
#[derive(Clone, Debug, Default)]
pub struct Feedback {
    capacity: CapacityEstimate,
    error_tokens: f32,
    answers: u32,
    /// Something predicted was found since the cache was last believed empty.
    proven: bool,
    row: Row,
    /// The time of a slow answer to its first token, ms.
    slow_ms: f32,
    strikes: u32,
    struck_at: Millis,
}

/// Failures that one loss may explain.
#[derive(Clone, Debug, Default)]
struct Row {
    /// How deep they lay. A few hundred at most: then they convict.
    depths: Vec<u64>,
    /// How unlikely they are by chance.
    surprise: f32,
    began: Millis,
    /// The loss came after the last use of each of them,
    after: Millis,
    /// and before the first of them was answered.
    before: Millis,
}

impl Feedback {
    /// Takes in an answer of the replica. Not for requests that failed or were broken off.
    #[must_use]
    pub fn answered(&mut self, answer: &Answer, now: Millis) -> Option<Verdict> {
        let cached = answer.cached_tokens().filter(|_| answer.textual)?;
        self.note_time(answer);
        self.note_error(answer.predicted_tokens as f32 - cached);
        let known = answer.last_use.map_or(0, |last| last.matched_tokens).max(answer.predicted_tokens);
        if cached >= 2.0 * known as f32 + DEEP_TOKENS as f32 {
            self.capacity.found_unbelieved();
        }
        let last_use = answer.last_use?;
        let look = look(&last_use, cached)?;
        let used_at = answer.picked_at.saturating_sub(last_use.unused_ms);
        if look == Look::Lost && self.proven && self.capacity.surely_holds(last_use.newer_tokens) {
            // The size of the cache does not explain it.
            let settled = last_use.unused_ms >= SETTLED_MS.max(self.slow_ms as Millis);
            let accuses = settled && last_use.tail_tokens >= DEEP_TOKENS;
            return if accuses { self.accuse(&last_use, used_at, answer.answered_at, now) } else { None };
        }
        if look != Look::Lost {
            self.proven = true;
            if self.row.is_refuted_by(used_at, answer.picked_at, self.slow_ms as Millis) {
                self.acquit();
            }
        }
        self.note_depth(&last_use, look);
        None
    }

    /// The replica's cache was emptied, as somebody else found out. It may be another one since.
    pub fn emptied(&mut self) {
        self.proven = false;
        self.row = Row::default();
        self.capacity = CapacityEstimate::default();
    }

    /// Predicted minus reported cached tokens, mean over about the last 64 answers. Positive: the
    /// router believes in more than there is. `None` until an answer reported any number.
    pub fn error_tokens(&self) -> Option<f32> {
        (self.answers > 0).then_some(self.error_tokens)
    }

    /// What the cache seems to hold.
    pub fn capacity(&self) -> &CapacityEstimate {
        &self.capacity
    }

    fn note_error(&mut self, error_tokens: f32) {
        self.answers = (self.answers + 1).min(MEAN_ANSWERS);
        self.error_tokens += (error_tokens - self.error_tokens) / self.answers as f32;
    }

    fn note_time(&mut self, answer: &Answer) {
        let took = answer.answered_at.saturating_sub(answer.picked_at) as f32;
        self.slow_ms = took.max(self.slow_ms * SLOW_KEPT);
    }

    fn note_depth(&mut self, last_use: &LastUse, look: Look) {
        let (begin, tail) = (last_use.newer_tokens, u64::from(last_use.tail_tokens));
        match look {
            Look::Held => self.capacity.held(begin + tail),
            Look::Lost => self.capacity.lost(begin),
            // Tails go first: what is left ends where the cache does.
            Look::Partly { tokens } => {
                self.capacity.held(begin + tokens as u64);
                self.capacity.lost(begin + tokens as u64);
            }
        }
    }

    /// Counts a failure.
    fn accuse(
        &mut self,
        last_use: &LastUse,
        used_at: Millis,
        answered_at: Millis,
        now: Millis,
    ) -> Option<Verdict> {
        let forgiven = now.saturating_sub(self.struck_at) / FORGIVE_MS;
        if forgiven > 0 {
            self.strikes = u64::from(self.strikes).saturating_sub(forgiven) as u32;
            self.struck_at = now;
        }
        if now.saturating_sub(self.row.began) > ROW_MS || !self.row.explains(used_at, answered_at) {
            self.acquit();
        }
        let surprise = -self.capacity.chance_of_loss(last_use.newer_tokens).ln();
        self.row.add(last_use.newer_tokens, surprise, used_at, answered_at, now);
        self.row.convicts(self.strikes).then(|| self.convict(now))
    }

    /// The failures so far were no row: then they tell of the cache's size like any other.
    fn acquit(&mut self) {
        for depth in std::mem::take(&mut self.row).depths {
            self.capacity.lost(depth);
        }
    }

    fn convict(&mut self, now: Millis) -> Verdict {
        // Should it have been the cache's size all the same, then now that is known.
        self.acquit();
        self.proven = false;
        self.strikes = (self.strikes + 1).min(MAX_STRIKES);
        self.struck_at = now;
        Verdict::LostCache
    }
}

impl Row {
    /// Whether the loss that explains the others may explain this failure too. What was used after it was
    /// prefilled anew, and is gone for another reason.
    fn explains(&self, used_at: Millis, answered_at: Millis) -> bool {
        self.depths.is_empty() || self.after.max(used_at) < self.before.min(answered_at)
    }

    fn add(&mut self, depth: u64, surprise: f32, used_at: Millis, answered_at: Millis, now: Millis) {
        if self.depths.is_empty() {
            *self = Self { began: now, after: used_at, before: answered_at, ..Self::default() };
        }
        self.after = self.after.max(used_at);
        self.before = self.before.min(answered_at);
        self.depths.push(depth);
        self.surprise += surprise;
    }

    /// Whether it is long enough, after so many verdicts.
    fn convicts(&self, strikes: u32) -> bool {
        self.depths.len() >= ROW << strikes && self.surprise >= SURPRISE * (1 << strikes) as f32
    }

    /// Whether a success shows that nothing was lost: what was used before the loss, and prefilled within
    /// `slow_ms`, was there after it; or it was used so long before the row began that no loss can lie between.
    fn is_refuted_by(&self, used_at: Millis, picked_at: Millis, slow_ms: Millis) -> bool {
        let outlived = used_at + slow_ms <= self.after && picked_at >= self.before;
        !self.depths.is_empty() && (outlived || used_at + HEALED_MS <= self.began)
    }
}

/// What `cached` says of the tail of what was last used; `None` where it is too short to tell.
fn look(last_use: &LastUse, cached: f32) -> Option<Look> {
    let (matched, tail) = (last_use.matched_tokens as f32, last_use.tail_tokens as f32);
    let slack = SLACK_SHARE * matched + SLACK_TOKENS;
    if tail < 2.0 * slack {
        return None;
    }
    let head = matched - tail;
    Some(if cached >= matched - slack {
        Look::Held
    } else if cached <= head + slack {
        Look::Lost
    } else {
        Look::Partly { tokens: cached - head }
    })
}

#[cfg(test)]
mod tests;
