//! The replicas a request can go to, as request actors see them.
//!
//! The replica actor owns the set and publishes it as a snapshot; what changes with every request
//! (load, health signals, counters) are atomics inside, so that a pick never waits for anybody.

pub mod health;
pub mod learnt;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwap, ArcSwapOption};
use grapevine_route::ReplicaLoad;
use grapevine_tree::{Millis, ReplicaId};
use http::HeaderValue;
use reqwest::Url;

use crate::config::ReplicaSpec;
use crate::engine::Reading;
use health::Health;
use learnt::Learnt;

/// The current set. Readers take a snapshot; only the replica actor replaces it.
pub type SharedReplicas = Arc<ArcSwap<ReplicaSet>>;

/// All replicas, in the order they were configured.
#[derive(Debug, Default)]
pub struct ReplicaSet {
    /// The replicas; no two share an id.
    pub replicas: Vec<Arc<Replica>>,
}

/// One replica of an engine.
#[derive(Debug)]
pub struct Replica {
    /// Stable over routers and restarts.
    pub id: ReplicaId,
    /// Its name in metrics, headers and logs.
    pub name: String,
    /// Base URL without a trailing slash.
    pub url: String,
    /// The same, parsed.
    pub base: Url,
    /// The name as a header value.
    pub name_header: HeaderValue,
    /// Relative capacity.
    pub weight: f32,
    /// What is in flight there.
    pub load: Arc<ReplicaLoad>,
    /// Whether it should get requests.
    pub health: Health,
    /// What came of what was sent there.
    pub counters: Counters,
    /// Cache generation: grows when the replica restarted. Written by the replica actor.
    pub epoch: AtomicU32,
    /// What its engine last said of itself. Written by the replica actor.
    pub engine: ArcSwapOption<Vitals>,
    /// What was learnt of it. Written by the replica actor.
    pub learnt: Learnt,
}

/// What an engine said of itself, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vitals {
    /// What it said.
    pub reading: Reading,
    /// When.
    pub at: Millis,
}

/// Gauges older than this say nothing of now. Engines write theirs up to seconds late already.
const GAUGES_TTL_MS: Millis = 15_000;

/// Totals of one replica since the router's start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests sent there.
    pub picks: AtomicU64,
    /// Prompt tokens sent there, estimated from bytes.
    pub prompt_tokens: AtomicU64,
    /// Of those, predicted to be in its cache.
    pub predicted_tokens: AtomicU64,
    /// What a replica drawn at random would have had cached of those, estimated.
    pub random_tokens: AtomicU64,
    /// Prompt tokens that its answers reported.
    pub reported_prompt_tokens: AtomicU64,
    /// Cached tokens that its answers reported.
    pub reported_cached_tokens: AtomicU64,
}

/// Why replicas cannot be used as they are configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplicaError {
    /// Two replicas whose URLs have one id.
    #[error("replicas {first} and {second} have the same id: their URLs are equal or collide")]
    SameId {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// A URL that is none.
    #[error("the URL of replica {0} is not one of http or https with a host")]
    BadUrl(String),
}

impl ReplicaSet {
    /// The set that `specs` describe.
    pub fn from_specs(specs: &[ReplicaSpec]) -> Result<Self, ReplicaError> {
        let mut set = Self::default();
        for spec in specs {
            let replica = Replica::new(spec)?;
            if let Some(twin) = set.get(replica.id) {
                return Err(ReplicaError::SameId { first: twin.name.clone(), second: replica.name });
            }
            set.replicas.push(Arc::new(replica));
        }
        Ok(set)
    }

    /// The replica called `id`.
    pub fn get(&self, id: ReplicaId) -> Option<&Arc<Replica>> {
        self.replicas.iter().find(|r| r.id == id)
    }
}

impl Replica {
    fn new(spec: &ReplicaSpec) -> Result<Self, ReplicaError> {
        let url = spec.url.trim_end_matches('/').to_owned();
        let base = Url::parse(&url).ok().filter(|base| base.has_host() && base.scheme().starts_with("http"));
        Ok(Self {
            base: base.ok_or_else(|| ReplicaError::BadUrl(spec.name.clone()))?,
            id: ReplicaId::of_url(&url),
            name_header: HeaderValue::from_str(&spec.name)
                .unwrap_or_else(|_| HeaderValue::from_static("unprintable")),
            name: spec.name.clone(),
            url,
            weight: 1.0,
            load: Arc::default(),
            health: Health::default(),
            counters: Counters::default(),
            epoch: AtomicU32::new(0),
            engine: ArcSwapOption::empty(),
            learnt: Learnt::default(),
        })
    }

    /// Its cache is gone: begins the next generation, and gives it. For the replica actor.
    pub fn next_epoch(&self) -> u32 {
        self.epoch.fetch_add(1, Relaxed) + 1
    }

    /// Share of its KV cache in use, if its engine said so lately.
    pub fn kv_use(&self, now: Millis) -> Option<f32> {
        let vitals = self.engine.load();
        let fresh = vitals.as_ref().filter(|v| now.saturating_sub(v.at) <= GAUGES_TTL_MS);
        fresh.and_then(|v| v.reading.kv_use).map(|share| share as f32)
    }
}

impl Counters {
    /// A request was sent with this prediction.
    pub fn picked(&self, prompt_tokens: u32, predicted_tokens: u32) {
        self.picks.fetch_add(1, Relaxed);
        self.prompt_tokens.fetch_add(u64::from(prompt_tokens), Relaxed);
        self.predicted_tokens.fetch_add(u64::from(predicted_tokens), Relaxed);
    }

    /// An answer said what it really was.
    pub fn reported(&self, prompt_tokens: u64, cached_tokens: u64) {
        self.reported_prompt_tokens.fetch_add(prompt_tokens, Relaxed);
        self.reported_cached_tokens.fetch_add(cached_tokens, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, url: &str) -> ReplicaSpec {
        ReplicaSpec { name: name.into(), url: url.into() }
    }

    #[test]
    fn one_url_twice_is_refused() {
        let twice = [spec("a", "http://h:1"), spec("b", "http://h:1/")];
        assert!(ReplicaSet::from_specs(&twice).is_err());
        for bad in ["h:1", "ftp://h", "http://", "http://::1:8000"] {
            let refused = ReplicaSet::from_specs(&[spec("a", bad)]);
            assert_eq!(refused.err(), Some(ReplicaError::BadUrl("a".into())), "{bad}");
        }
        let set = ReplicaSet::from_specs(&[spec("a", "http://h:1/"), spec("b", "http://h:2")]).unwrap();
        assert_eq!(set.replicas[0].url, "http://h:1", "joining paths never makes //");
        assert_eq!(set.get(ReplicaId::of_url("http://h:2")).unwrap().name, "b");
    }
}
