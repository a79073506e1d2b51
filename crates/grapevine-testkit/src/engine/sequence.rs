//! One sequence: a prompt on its way through queue, prefill and decode.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::cache::{block_hashes, extend_chain};
use super::prompt::open_message;
use super::request::{Api, Generation};
use super::state::{Core, Flight, Ticket};
use super::text::{Voice, tokens_of};

/// A sequence that has been admitted.
pub(crate) struct Sequence {
    /// Its choice's number in the answer.
    pub(crate) index: u32,
    /// Its prompt's first choice: what `usage` reports of the cache.
    pub(crate) leads: bool,
    pub(crate) prompt: Arc<[u8]>,
    pub(crate) voice: Voice,
    pub(crate) tokens: u32,
    pub(crate) finish: &'static str,
    api: Api,
    namespace: u64,
    chain: Vec<u64>,
    core: Arc<Core>,
    flight: Arc<Flight>,
    ticket: Ticket,
    slot: Option<OwnedSemaphorePermit>,
}

/// What a prefill found in the cache, and what it put there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefilled {
    pub(crate) cached_tokens: u64,
    pub(crate) created_tokens: u64,
}

/// The sequences of a request: for each prompt, `n` choices.
pub(crate) fn sequences(request: &Generation, flight: &Arc<Flight>, tickets: Vec<Ticket>) -> Vec<Sequence> {
    let core = flight.core();
    let model = xxh3_64_with_seed(request.model.as_bytes(), 0);
    let namespace = xxh3_64_with_seed(request.salt.as_bytes(), model);
    let prompts = request.prompts.iter().flat_map(|prompt| {
        let chain = block_hashes(namespace, core.config.block_bytes, prompt);
        let prompt: Arc<[u8]> = Arc::from(prompt.as_slice());
        (0..request.n).map(move |choice| (choice, Arc::clone(&prompt), chain.clone()))
    });
    let numbered = (0u32..).zip(prompts);
    numbered
        .zip(tickets)
        .map(|((index, (choice, prompt, chain)), ticket)| Sequence {
            index,
            leads: choice == 0,
            voice: Voice::new(&prompt, choice),
            prompt,
            tokens: request.tokens,
            finish: request.finish,
            api: request.api,
            namespace,
            chain,
            core: Arc::clone(core),
            flight: Arc::clone(flight),
            ticket,
            slot: None,
        })
        .collect()
}

impl Sequence {
    /// Waits for a slot and a prefill lane, then takes as long as the uncached part needs. When it
    /// returns, the first token is there.
    pub(crate) async fn prefill(&mut self) -> Prefilled {
        self.slot = acquire(&self.core.slots).await;
        let lane = acquire(&self.core.prefill_lanes).await;
        let blocks = self.chain.len() as u64;
        self.ticket.run(blocks);
        let hit = self.core.lookup(&self.chain, tokens_of(self.prompt.len()));
        let config = &self.core.config;
        let missed = u32::try_from(blocks - hit).unwrap_or(u32::MAX);
        let time = config.base + config.prefill_per_block.saturating_mul(missed);
        if !time.is_zero() {
            sleep(time).await;
        }
        self.core.insert(&self.chain);
        drop(lane);
        self.flight.token();
        let tokens = config.block_tokens();
        Prefilled { cached_tokens: hit * tokens, created_tokens: u64::from(missed) * tokens }
    }

    /// Takes as long as all tokens need.
    pub(crate) async fn decode(&self) {
        let time = self.core.config.decode_per_token.saturating_mul(self.tokens.saturating_sub(1));
        if !time.is_zero() {
            sleep(time).await;
        }
    }

    /// The clock of a sequence that is decoded token by token.
    pub(crate) fn pace(&self) -> Pace {
        Pace { next: Instant::now(), step: self.core.config.decode_per_token }
    }

    /// The last token is out: frees the slot and lets the answer into the cache.
    pub(crate) fn finish(mut self) {
        if self.core.config.cache_output {
            self.cache_output();
        }
        let (tokens, stop) = (u64::from(self.tokens), self.finish == "stop");
        self.core.count(|stats| {
            stats.generated_tokens += tokens;
            stats.finished_stop += u64::from(stop);
            stats.finished_length += u64::from(!stop);
        });
    }

    /// In the form in which a next turn would carry it.
    fn cache_output(&mut self) {
        let mut text = self.prompt.to_vec();
        if self.api == Api::Chat {
            open_message(&mut text, "assistant");
        }
        text.extend_from_slice(self.voice.say(self.tokens).as_bytes());
        if self.api == Api::Chat {
            text.push(b'\n');
        }
        let prefilled = self.chain.len();
        extend_chain(&mut self.chain, self.namespace, self.core.config.block_bytes, &text);
        if self.chain.len() > prefilled {
            self.core.insert(&self.chain);
        }
    }
}

/// Ticks once a token, without drifting.
pub(crate) struct Pace {
    next: Instant,
    step: std::time::Duration,
}

impl Pace {
    pub(crate) async fn tick(&mut self) {
        if !self.step.is_zero() {
            self.next += self.step;
            sleep_until(self.next).await;
        }
    }
}

/// `None` would mean a closed semaphore, which these never are.
async fn acquire(semaphore: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.ok()
}

impl std::iter::Sum for Prefilled {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |all, part| Self {
            cached_tokens: all.cached_tokens + part.cached_tokens,
            created_tokens: all.created_tokens + part.created_tokens,
        })
    }
}
