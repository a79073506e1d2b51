//! Where a request would go and why, without sending it: nothing is counted, and the tree learns nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use bytes::Bytes;
use grapevine_route::Decision;
use grapevine_tree::{Api, ReplicaId};
use http::Method;

use super::pick::{Choice, Question};
use super::{Proxy, admin_paths, keying, owner};
use crate::error::{Refused, RouterError};
use crate::observe::decisions::{Considered, Lookup, short};
use crate::replica::Replica;

/// Candidates that are explained, at most.
const CANDIDATES: usize = 256;

/// An answer.
#[derive(Debug)]
pub struct Explanation {
    /// The decision.
    pub decision: Decision,
    /// What affinity would have done, in shadow mode.
    pub wanted: Option<Decision>,
    /// The replica whose affinity vote the guard took.
    pub guarded: Option<Arc<Replica>>,
    /// What the tree said.
    pub lookup: Lookup,
    /// The model that is asked for.
    pub model: Option<String>,
    /// Bytes of the prompt, as the key counts them.
    pub key_bytes: u64,
    /// Boundaries of the prompt.
    pub boundaries: usize,
    /// The hash of the deepest one.
    pub hash: Option<u64>,
    /// How long it took to read, look up and choose.
    pub micros: u64,
    /// Replicas that might get it.
    pub candidates_total: usize,
    /// They, the best first.
    pub candidates: Vec<Considered>,
}

impl Proxy {
    /// Decides on a request that is not there.
    pub async fn explain_request(
        &self,
        method: &Method,
        path: &str,
        body: &Bytes,
    ) -> Result<Explanation, Refused> {
        let began = Instant::now();
        if admin_paths::denied(method, path) {
            return Err(RouterError::AdminPath.into());
        }
        let api = Api::of_path(path);
        let reads = self.reads(method, api);
        let prompt =
            if reads { keying::extract(self.settings.key_seed, api, body).await } else { <_>::default() };
        let key = Arc::new(prompt.key);
        let asks = !key.hashes.is_empty();
        let found = if asks { self.tree.ask(&key, self.settings.lookup).await } else { None };
        let question = Question {
            turn: self.turn.load(Relaxed),
            key: reads.then_some(&*key),
            matches: found.as_ref().map(|found| &found.matches),
            model: prompt.model.as_deref(),
            only: self.owner_in(api, path, body).await,
            except: &[],
            show: CANDIDATES,
        };
        let model = prompt.model.as_deref().map(short);
        let chosen = self.picker.choose(&question, self.clock.now());
        let choice = chosen.map_err(|error| Refused { error, model: model.clone() })?;
        let Choice { decision, shadowed, candidates_total, considered, .. } = choice;
        Ok(Explanation {
            guarded: decision.guarded.and_then(|id| self.picker.replicas.load().get(id).cloned()),
            decision,
            wanted: shadowed.map(|shadowed| shadowed.wanted),
            lookup: Lookup::of(asks, found.is_some()),
            model,
            key_bytes: key.bytes,
            boundaries: key.hashes.len(),
            hash: key.hashes.last().copied(),
            micros: began.elapsed().as_micros() as u64,
            candidates_total,
            candidates: considered,
        })
    }

    async fn owner_in(&self, api: Api, path: &str, body: &Bytes) -> Option<ReplicaId> {
        self.owner_of(&owner::named(api, path, body).await?).await
    }
}
