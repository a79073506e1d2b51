//! The replicas a request can go to, as request actors see them.
//!
//! The replica actor owns the set and publishes it as a snapshot; what changes with every request
//! (load, health signals, counters) are atomics inside, so that a pick never waits for anybody.

pub mod learnt;
pub mod served;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use arc_swap::{ArcSwap, ArcSwapOption};
use grapevine_route::ReplicaLoad;
pub use grapevine_route::health;
use grapevine_tree::{Millis, ReplicaId};
use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;

use crate::auth::X_API_KEY;
use crate::auth::bearer;
use crate::config::ReplicaSpec;
use crate::discovery::{Source, SourceView};
use crate::engine::{Kind, Reading};
use health::{Health, Standing};
use learnt::Learnt;
use served::Served;

/// The current set. Readers take a snapshot; only the replica actor replaces it.
pub type SharedReplicas = Arc<ArcSwap<ReplicaSet>>;

/// All replicas, in the order in which they came.
#[derive(Debug, Default)]
pub struct ReplicaSet {
    /// The replicas; no two share an id or a name.
    pub replicas: Vec<Arc<Replica>>,
    /// Where they come from.
    pub sources: Vec<SourceView>,
}

/// One replica of an engine. What is said of it (name, weight, key, whether it drains) never changes
/// here: another word makes another `Replica`, which shares what was counted and learnt, as a clone does.
#[derive(Clone, Debug)]
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
    /// Everything that was said of it.
    pub spec: ReplicaSpec,
    /// Who said so.
    pub source: Source,
    /// It gets no new requests: it leaves when those in flight have ended, or an operator holds it.
    pub draining: bool,
    /// What is sent there instead of any other `Authorization`.
    key: Option<HeaderValue>,
    /// What is in flight there.
    pub load: Arc<ReplicaLoad>,
    /// Whether it should get requests.
    pub health: Arc<Health>,
    /// What came of what was sent there.
    pub counters: Arc<Counters>,
    /// Cache generation: grows when the replica restarted. Written by the replica actor.
    pub epoch: Arc<AtomicU32>,
    /// What its engine last said of itself. Written by the replica actor.
    pub engine: Arc<ArcSwapOption<Vitals>>,
    /// What was learnt of it. Written by the replica actor.
    pub learnt: Arc<Learnt>,
    /// What it said of its models. Written by the replica actor.
    pub served: Arc<ArcSwap<Served>>,
}

/// What an engine said of itself, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vitals {
    /// What it said.
    pub reading: Reading,
    /// When.
    pub at: Millis,
    /// Since when its gauges have been what they are.
    pub moved_at: Millis,
}

/// Gauges that say that something runs change with every token. Unchanged for so long they are frozen.
const FROZEN_MS: Millis = 20_000;

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
    /// A key that no header field may hold.
    #[error("the key of replica {0} holds characters that no header field may hold")]
    BadKey(String),
}

impl ReplicaSet {
    /// The set that `specs` describe.
    pub fn from_specs(specs: &[ReplicaSpec]) -> Result<Self, ReplicaError> {
        let mut set = Self::default();
        for spec in specs {
            let replica = Replica::new(spec.clone(), Source::Static)?;
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

    /// Replicas that may get new requests.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Replica>> {
        self.replicas.iter().filter(|replica| !replica.draining)
    }
}

impl Replica {
    /// Whether requests may reach it, as far as is known.
    pub fn is_reachable(&self, now: Millis) -> bool {
        self.health.standing(now) <= Standing::Suspect
    }

    /// A replica that nothing is known of but what is said.
    pub(crate) fn new(spec: ReplicaSpec, source: Source) -> Result<Self, ReplicaError> {
        let url = spec.url.trim_end_matches('/').to_owned();
        let base = Url::parse(&url).ok().filter(|base| base.has_host() && base.scheme().starts_with("http"));
        let base = base.ok_or_else(|| ReplicaError::BadUrl(spec.name.clone()))?;
        let key = spec.key.as_ref().map(bearer).transpose();
        Ok(Self {
            base,
            id: ReplicaId::of_url(&url),
            name_header: HeaderValue::from_str(&spec.name)
                .unwrap_or_else(|_| HeaderValue::from_static("unprintable")),
            name: spec.name.clone(),
            url,
            weight: spec.weight,
            key: key.map_err(|_| ReplicaError::BadKey(spec.name.clone()))?,
            spec,
            source,
            draining: false,
            load: Arc::default(),
            health: Arc::default(),
            counters: Arc::default(),
            epoch: Arc::default(),
            engine: Arc::default(),
            learnt: Arc::default(),
            served: Arc::default(),
        })
    }

    /// The same replica as others now say it is: what was counted and learnt stays.
    pub(crate) fn revised(
        &self,
        spec: &ReplicaSpec,
        source: Source,
        draining: bool,
    ) -> Result<Self, ReplicaError> {
        Ok(Self {
            draining,
            load: Arc::clone(&self.load),
            health: Arc::clone(&self.health),
            counters: Arc::clone(&self.counters),
            epoch: Arc::clone(&self.epoch),
            engine: Arc::clone(&self.engine),
            learnt: Arc::clone(&self.learnt),
            served: Arc::clone(&self.served),
            ..Self::new(spec.clone(), source)?
        })
    }

    /// The same, when nobody wants it any more.
    pub(crate) fn leaving(&self) -> Self {
        self.clone().with_hold(true)
    }

    /// The same, with or without new requests.
    pub(crate) fn with_hold(self, held: bool) -> Self {
        Self { draining: held, ..self }
    }

    /// Puts its own key, if it has one, in the place of every other credential.
    pub fn authorize(&self, headers: &mut HeaderMap) {
        if let Some(key) = &self.key {
            headers.remove(X_API_KEY);
            headers.insert(header::AUTHORIZATION, key.clone());
        }
    }

    /// A GET to `path` of it, with its key.
    pub(crate) fn get(&self, client: &reqwest::Client, path: &str) -> reqwest::RequestBuilder {
        let mut headers = HeaderMap::new();
        self.authorize(&mut headers);
        client.get(format!("{}{path}", self.url)).headers(headers)
    }

    /// What it is: as somebody said, else as it seems.
    pub fn kind(&self) -> Kind {
        let seems = || self.engine.load().as_ref().map_or(Kind::Plain, |vitals| vitals.reading.kind);
        self.spec.kind.unwrap_or_else(seems)
    }

    /// Its cache is gone: begins the next generation, and gives it. For the replica actor.
    pub fn next_epoch(&self) -> u32 {
        self.epoch.fetch_add(1, Relaxed) + 1
    }

    /// Share of its KV cache in use, if its engine said so lately. With fewer requests in flight, of the whole
    /// fleet, than ran when it said so, it is less by as much: gauges come seconds late, and stay up after
    /// mass aborts.
    pub fn kv_use(&self, inflight: f32, now: Millis) -> Option<f32> {
        let vitals = self.engine.load();
        let vitals = vitals.as_ref().filter(|vitals| now.saturating_sub(vitals.at) <= GAUGES_TTL_MS)?;
        let share = vitals.reading.kv_use? as f32;
        if share > 0.0 && now.saturating_sub(vitals.moved_at) > FROZEN_MS {
            return None;
        }
        let ran = vitals.reading.running.map_or(0.0, |running| running as f32);
        Some(if inflight < ran { share * inflight / ran } else { share })
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
    use crate::config::Secret;

    fn spec(name: &str, url: &str) -> ReplicaSpec {
        ReplicaSpec::new(name, url)
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

    #[test]
    fn a_replica_of_which_something_else_is_said_keeps_what_was_learnt() {
        let replica = Replica::new(spec("a", "http://h:1"), Source::Static).unwrap();
        let guard = replica.load.begin(7);
        replica.epoch.store(3, Relaxed);
        let said = ReplicaSpec { weight: 2.0, ..spec("b", "http://h:1") };
        let revised = replica.revised(&said, Source::File, true).unwrap();
        assert_eq!((revised.id, revised.name.as_str(), revised.weight), (replica.id, "b", 2.0));
        assert_eq!((revised.load.own_inflight(), revised.epoch.load(Relaxed)), (1, 3));
        drop(guard);
        assert_eq!(revised.load.own_inflight(), 0);
    }

    #[test]
    fn gauges_that_lag_or_freeze_are_corrected_and_age_out() {
        let replica = Replica::new(spec("a", "http://h:1"), Source::Static).unwrap();
        assert_eq!(replica.kv_use(8.0, 0), None, "unknown is not zero");
        let reading = Reading { kv_use: Some(0.8), running: Some(8.0), ..Reading::default() };
        let say = |at, moved_at| replica.engine.store(Some(Arc::new(Vitals { reading, at, moved_at })));
        say(1_000, 1_000);
        assert_eq!(replica.kv_use(12.0, 1_500), Some(0.8));
        assert_eq!(replica.kv_use(2.0, 1_500), Some(0.2), "six have ended since");
        assert_eq!(replica.kv_use(0.0, 1_500), Some(0.0), "all were aborted");
        assert_eq!(replica.kv_use(12.0, 1_001 + GAUGES_TTL_MS), None, "too old");
        say(30_000, 1_000);
        assert_eq!(replica.kv_use(12.0, 30_000), None, "frozen");
    }

    #[test]
    fn a_key_of_its_own_takes_the_place_of_every_other_credential() {
        let sent = || {
            let pairs = [("authorization", "Bearer client"), ("x-api-key", "client"), ("x-other", "1")];
            let field = |(name, value): (&'static str, &'static str)| {
                (http::HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            HeaderMap::from_iter(pairs.map(field))
        };
        let plain = Replica::new(spec("a", "http://h:1"), Source::Static).unwrap();
        let mut headers = sent();
        plain.authorize(&mut headers);
        assert_eq!(headers, sent());
        let keyed = ReplicaSpec { key: Some(Secret::new("own".into())), ..spec("a", "http://h:1") };
        Replica::new(keyed.clone(), Source::Static).unwrap().authorize(&mut headers);
        assert_eq!(headers["authorization"], "Bearer own");
        assert!(!headers.contains_key("x-api-key") && headers.contains_key("x-other"));
        let bad = ReplicaSpec { key: Some(Secret::new("a\nb".into())), ..keyed };
        assert_eq!(Replica::new(bad, Source::Static).err(), Some(ReplicaError::BadKey("a".into())));
    }
}
