//! How many requests may be here at once, and who waits for a place.
//!
//! Places are counted from a request's head to the end of its answer. When none is free a request waits, if
//! the operator allows it: in order of priority and then of arrival, for a bounded time, in a bounded
//! queue, before its body is read. A place that becomes free goes to whoever waits first; nobody overtakes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::RouterError;
use crate::replica::SharedReplicas;

/// The places, shared by all requests.
#[derive(Clone, Debug)]
pub struct Admission {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: AdmissionLimits,
    replicas: SharedReplicas,
    places: Mutex<Places>,
}

/// What an operator sets.
#[derive(Clone, Debug, Default)]
pub struct AdmissionLimits {
    /// Most requests in this router; 0 = no limit.
    pub inflight: usize,
    /// Most of them on one replica; 0 = no limit.
    pub per_replica: usize,
    /// Most that wait; 0 = nobody waits.
    pub queue: usize,
    /// Longest wait.
    pub patience: Duration,
    /// The field by which a client may say how urgent it is; none: all are equal.
    pub priority_header: Option<HeaderName>,
}

#[derive(Debug, Default)]
struct Places {
    taken: usize,
    waiting: BTreeMap<Turn, oneshot::Sender<Place>>,
    arrivals: u64,
}

/// Order of waiting: the urgent first, then the early.
type Turn = (Reverse<Priority>, u64);

/// How urgent a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Behind everybody else.
    Low,
    /// As everybody else.
    #[default]
    Normal,
    /// Before everybody else.
    High,
}

/// A place; dropping it gives it to whoever waits first.
#[derive(Debug)]
pub struct Place {
    shared: Arc<Shared>,
}

impl Admission {
    /// Places within `limits` in front of `replicas`.
    pub fn new(limits: AdmissionLimits, replicas: SharedReplicas) -> Self {
        Self { shared: Arc::new(Shared { limits, replicas, places: Mutex::default() }) }
    }

    /// Requests that have a place now.
    pub fn inflight(&self) -> usize {
        self.shared.places().taken
    }

    /// Requests that wait for one now.
    pub fn waiting(&self) -> usize {
        self.shared.places().waiting.len()
    }

    /// A place for a request with these fields.
    pub(super) async fn enter(&self, headers: &HeaderMap) -> Result<Place, RouterError> {
        let shared = &self.shared;
        let (turn, granted) = {
            let mut places = shared.places();
            if places.waiting.is_empty() && places.taken < shared.limit() {
                places.taken += 1;
                return Ok(Place { shared: Arc::clone(shared) });
            }
            if places.waiting.len() >= shared.limits.queue {
                return Err(RouterError::Overloaded);
            }
            places.arrivals += 1;
            let turn = (Reverse(shared.priority(headers)), places.arrivals);
            let (grant, granted) = oneshot::channel();
            places.waiting.insert(turn, grant);
            (turn, granted)
        };
        // The limit may have grown while nobody left.
        shared.serve_waiting();
        let waiting = Waiting { shared, turn };
        let place = timeout(shared.limits.patience, granted).await;
        drop(waiting);
        place.ok().and_then(Result::ok).ok_or(RouterError::QueueTimeout)
    }
}

/// A request in the queue; it leaves when its client does.
struct Waiting<'a> {
    shared: &'a Shared,
    turn: Turn,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.places().waiting.remove(&self.turn);
    }
}

impl Shared {
    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing that holds it can panic half-way.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The router's own limit, or what its replicas take together if that is less.
    fn limit(&self) -> usize {
        let own = if self.limits.inflight == 0 { usize::MAX } else { self.limits.inflight };
        if self.limits.per_replica == 0 {
            return own;
        }
        own.min(self.limits.per_replica.saturating_mul(self.replicas.load().open().count().max(1)))
    }

    fn priority(&self, headers: &HeaderMap) -> Priority {
        let said = self.limits.priority_header.as_ref().and_then(|name| headers.get(name));
        match said.map(|value| value.as_bytes().to_ascii_lowercase()) {
            Some(word) if word == b"high" => Priority::High,
            Some(word) if word == b"low" => Priority::Low,
            _ => Priority::Normal,
        }
    }

    fn serve_waiting(self: &Arc<Self>) {
        let limit = self.limit();
        loop {
            let grant = {
                let mut places = self.places();
                if places.taken >= limit {
                    return;
                }
                let Some((_, grant)) = places.waiting.pop_first() else { return };
                places.taken += 1;
                grant
            };
            // Outside the lock: whoever has stopped waiting drops the place, which takes the lock.
            let _ = grant.send(Place { shared: Arc::clone(self) });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let somebody_waits = {
            let mut places = self.shared.places();
            places.taken -= 1;
            !places.waiting.is_empty()
        };
        if somebody_waits {
            self.shared.serve_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use futures_util::poll;
    use http::HeaderValue;
    use std::pin::pin;

    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::ReplicaSet;

    fn admission(limits: AdmissionLimits) -> Admission {
        let spec = |i| ReplicaSpec::new(format!("r{i}"), format!("http://127.0.0.1:{i}"));
        let set = ReplicaSet::from_specs(&[spec(1), spec(2)]).unwrap();
        Admission::new(limits, Arc::new(ArcSwap::from_pointee(set)))
    }

    fn limits(inflight: usize, queue: usize) -> AdmissionLimits {
        let priority_header = Some(HeaderName::from_static("x-priority"));
        let patience = Duration::from_secs(10);
        AdmissionLimits { inflight, queue, patience, priority_header, ..AdmissionLimits::default() }
    }

    fn fields(priority: &'static str) -> HeaderMap {
        let value = HeaderValue::from_static(priority);
        HeaderMap::from_iter([(HeaderName::from_static("x-priority"), value)])
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_queue_the_one_too_many_is_refused_at_once() {
        let admission = admission(limits(2, 0));
        let none = HeaderMap::new();
        let held = (admission.enter(&none).await.unwrap(), admission.enter(&none).await.unwrap());
        assert_eq!(admission.enter(&none).await.err(), Some(RouterError::Overloaded));
        drop(held);
        assert!(admission.enter(&none).await.is_ok());
        assert_eq!(admission.inflight(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_served_by_priority_and_then_in_order() {
        let admission = admission(limits(1, 4));
        let first = admission.enter(&HeaderMap::new()).await.unwrap();
        let words = [fields("low"), fields("whatever"), fields("HIGH"), fields("high")];
        let mut waits: Vec<_> = words.iter().map(|word| Box::pin(admission.enter(word))).collect();
        for wait in &mut waits {
            assert!(poll!(wait).is_pending());
        }
        assert_eq!(admission.waiting(), 4);
        assert_eq!(admission.enter(&fields("high")).await.err(), Some(RouterError::Overloaded), "full");
        let mut place = Some(first);
        for next in [2, 3, 1, 0] {
            drop(place.take());
            place = Some(waits[next].as_mut().await.unwrap());
            assert_eq!(admission.inflight(), 1);
        }
        drop(place);
        assert_eq!((admission.inflight(), admission.waiting()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn patience_ends_and_who_leaves_leaves_no_trace() {
        let admission = admission(limits(1, 4));
        let none = HeaderMap::new();
        let held = admission.enter(&none).await.unwrap();
        assert_eq!(admission.enter(&none).await.err(), Some(RouterError::QueueTimeout));
        {
            let mut left = pin!(admission.enter(&none));
            assert!(poll!(&mut left).is_pending());
        }
        assert_eq!((admission.inflight(), admission.waiting()), (1, 0));
        // Granted, and dropped before it was seen: the place is not lost.
        {
            let mut granted = pin!(admission.enter(&none));
            assert!(poll!(&mut granted).is_pending());
            drop(held);
        }
        assert_eq!((admission.inflight(), admission.waiting()), (0, 0));
    }

    #[tokio::test]
    async fn limits_per_replica_add_up() {
        let per_replica = AdmissionLimits { per_replica: 2, ..limits(0, 0) };
        let admission = admission(per_replica);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(admission.enter(&HeaderMap::new()).await.unwrap());
        }
        assert_eq!(admission.enter(&HeaderMap::new()).await.err(), Some(RouterError::Overloaded));
    }
}
