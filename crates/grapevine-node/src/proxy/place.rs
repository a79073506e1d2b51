//! Which replica gets a request: key, tree, pick, and telling the tree.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use grapevine_route::Policy;
use grapevine_tree::{Api, Matches, PrefixKey, ReplicaId};
use http::Method;

use super::exchange::Exchange;
use super::expectation::Expectation;
use super::pick::{Pick, Question};
use super::{Proxy, keying};
use crate::error::RouterError;
use crate::telemetry::RouteSpan;

/// A request as far as its placement is concerned.
pub(super) struct Job<'a> {
    pub(super) exchange: &'a Exchange,
    /// The model that the body names, if it was read.
    pub(super) model: Option<String>,
    /// The body asks for a stream, if it was read.
    pub(super) stream: bool,
    turn: u64,
    /// The prompt is text alone.
    textual: bool,
    /// Present when the request has a prompt that was read.
    pub(super) key: Option<Arc<PrefixKey>>,
    /// What the tree knows of it; `None` when it was not asked or did not answer in time.
    pub(super) matches: Option<Matches>,
    /// Present when it names a stored response: the replica that owns it, if anybody remembers.
    pub(super) owner: Option<Option<ReplicaId>>,
    /// Picks of this router that the tree knew then.
    known_picks: u64,
    /// Open until the first pick.
    route: Option<RouteSpan>,
    began: Instant,
}

impl Proxy {
    /// Reads the prompt and asks the tree, where the policy wants to know.
    pub(super) async fn look_up<'a>(
        &self,
        exchange: &'a Exchange,
        method: &Method,
        api: Api,
        body: &Bytes,
        turn: u64,
    ) -> Job<'a> {
        let mut job = Job::new(exchange, turn);
        if !self.reads(method, api) {
            return job;
        }
        let prompt = keying::extract(self.settings.key_seed, api, body).await;
        (job.model, job.stream, job.textual) = (prompt.model, prompt.stream, !prompt.media);
        let key = Arc::new(prompt.key);
        if !key.hashes.is_empty() {
            // Counted when a replica was chosen.
            if let Some(found) = self.tree.lookup(&key, self.settings.lookup).await {
                (job.matches, job.known_picks) = (Some(found.matches), found.picks);
            }
        }
        job.key = Some(key);
        job
    }

    /// Whether such a request has a prompt that the policy wants to know.
    pub(super) fn reads(&self, method: &Method, api: Api) -> bool {
        self.picker.policy == Policy::Affinity && api != Api::Other && *method == Method::POST
    }

    /// Picks a replica and tells the tree at once: the next request with this prefix must see it,
    /// long before the engine has answered.
    pub(super) fn place(&self, job: &mut Job<'_>, except: &[ReplicaId]) -> Result<Pick, RouterError> {
        let mut route = job.route.take().unwrap_or_else(|| job.exchange.span.route());
        if let (Some(key), Some(matches)) = (&job.key, &mut job.matches) {
            self.recent.complete(job.known_picks, key, matches);
        }
        let question = job.question(except, self.to_show());
        let picked_at = self.clock.now();
        let (mut pick, choice) = match self.picker.pick(&question, picked_at) {
            Ok(picked) => picked,
            Err(error) => {
                if error == RouterError::ModelNotFound {
                    self.replicas.model_missed();
                }
                route.fail(error.facts().code);
                return Err(error);
            }
        };
        if let Some(key) = job.keyed() {
            let (replica, new_tokens) = (pick.replica.id, pick.decision.uncached_tokens());
            let number = self.recent.add(key, replica);
            let epoch = pick.replica.epoch.load(Relaxed);
            let last_use = self.tree.observe(key, replica, new_tokens, Some(number));
            let textual = job.textual;
            let expected = Expectation { epoch, textual, picked_at, answered_at: None, last_use };
            pick.expectation = job.matches.is_some().then_some(expected);
        }
        let lag = self.picker.hearing.lag();
        route.considered(job.lookup().name(), lag, choice.candidates_total, &choice.considered);
        self.note(job, choice, 1 + except.len() as u32, job.began.elapsed());
        route.decided(&pick.decision, &pick.replica.name);
        Ok(pick)
    }

    /// Whether there is a replica for it besides these.
    pub(super) fn could_place(&self, job: &Job<'_>, except: &[ReplicaId]) -> bool {
        self.picker.choose(&job.question(except, 0), self.clock.now()).is_ok()
    }

    /// The replica did not take the request after all: what the tree was told is taken back.
    pub(super) fn take_back(&self, job: &Job<'_>, replica: ReplicaId) {
        if let Some(key) = job.keyed() {
            self.tree.retract(key, replica);
        }
    }
}

impl<'a> Job<'a> {
    pub(super) fn new(exchange: &'a Exchange, turn: u64) -> Self {
        Self {
            exchange,
            model: None,
            stream: false,
            turn,
            textual: false,
            key: None,
            matches: None,
            owner: None,
            known_picks: 0,
            route: Some(exchange.span.route()),
            began: Instant::now(),
        }
    }

    /// Where to, but not to one of `except`? With so many candidates to be shown.
    fn question<'q>(&'q self, except: &'q [ReplicaId], show: usize) -> Question<'q> {
        Question {
            turn: self.turn,
            key: self.key.as_deref(),
            matches: self.matches.as_ref(),
            model: self.model.as_deref(),
            only: self.owner.flatten().filter(|owner| !except.contains(owner)),
            except,
            show,
        }
    }

    /// Whether its body was read for a prompt.
    pub(super) fn is_read(&self) -> bool {
        self.key.is_some()
    }

    pub(super) fn keyed(&self) -> Option<&Arc<PrefixKey>> {
        self.key.as_ref().filter(|key| !key.hashes.is_empty())
    }
}
