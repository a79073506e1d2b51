//! Replicas from Kubernetes: the endpoints of Services, as their EndpointSlices tell.
//!
//! ```text
//! list (whole, paged) --> tell --> watch from there --> tell after each change
//!   ^                                   |
//!   +--- 410 Gone, error, end, time ----+
//! ```
//!
//! A watch may end, fall behind or fall silent without a word, so the whole list is read again from time
//! to time whatever the watch says: what was missed is noticed then. While the API server cannot be
//! reached, what it said last stays.

mod endpoints;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use super::Feed;
use super::parts::Parts;
use crate::config::{KubernetesEndpoints, ReplicaSpec};

/// Slices asked for at once: what the API server's own clients ask for.
const PAGE: u32 = 500;

/// Most slices of one Service: with 100 endpoints each far more than there may be replicas.
const MAX_SLICES: usize = 10_000;

/// News that may wait for the replica actor.
const NEWS: usize = 64;

/// `410 Gone`: the watch asked for changes that the API server no longer has.
const GONE: u16 = 410;

/// When what is done again.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The whole list is read again after this, however well the watch seems to be.
    relist: Duration,
    /// First pause after a failure; it doubles with each in a row.
    first_retry: Duration,
    /// Longest pause, and the limit of one list.
    longest_retry: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { relist: seconds(300), first_retry: seconds(1), longest_retry: seconds(30) }
    }
}

/// What is told of the endpoints at this place of the list.
type News = (usize, Result<Vec<ReplicaSpec>, String>);

/// Follows `wanted` for ever.
pub(crate) async fn follow(wanted: Vec<KubernetesEndpoints>, feed: Feed) {
    let pace = Pace::default();
    let mut parts = Parts::of(wanted.iter().map(ToString::to_string));
    let client = loop {
        match Client::try_default().await {
            Ok(client) => break client,
            Err(error) => parts.put(0, Err(format!("no access to Kubernetes: {error}"))),
        }
        feed.found(parts.finding()).await;
        sleep(pace.longest_retry).await;
    };
    let (tell, mut news) = mpsc::channel(NEWS);
    let mut watches = JoinSet::new();
    for (index, wanted) in wanted.into_iter().enumerate() {
        watches.spawn(Watch::of(index, wanted, &client, tell.clone(), pace).run());
    }
    drop(tell);
    while let Some((index, found)) = news.recv().await {
        parts.put(index, found);
        feed.found(parts.finding()).await;
    }
}

/// The slices of one Service or selector.
struct Watch {
    index: usize,
    wanted: KubernetesEndpoints,
    api: Api<EndpointSlice>,
    tell: mpsc::Sender<News>,
    pace: Pace,
    slices: BTreeMap<String, EndpointSlice>,
}

/// Why a watch is over.
enum Ended {
    /// It is time to read everything again, or the server says that it must be.
    ReadAgain,
    Failed(String),
}

impl Watch {
    fn of(
        index: usize,
        wanted: KubernetesEndpoints,
        client: &Client,
        tell: mpsc::Sender<News>,
        pace: Pace,
    ) -> Self {
        let api = match &wanted.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::default_namespaced(client.clone()),
        };
        Self { index, wanted, api, tell, pace, slices: BTreeMap::new() }
    }

    /// Ends when nobody listens any more.
    async fn run(mut self) {
        let mut pause = self.pace.first_retry;
        while !self.tell.is_closed() {
            let failed = match self.round(&mut pause).await {
                Ended::ReadAgain => None,
                Ended::Failed(problem) => Some(problem),
            };
            if let Some(problem) = failed {
                let _ = self.tell.send((self.index, Err(problem))).await;
                pause = (pause * 2).min(self.pace.longest_retry);
            }
            // Also after a good round: a server that ends every watch at once must not be flooded.
            sleep(pause).await;
        }
    }

    /// Reads the whole list, then follows what changes.
    async fn round(&mut self, pause: &mut Duration) -> Ended {
        let deadline = Instant::now() + self.pace.longest_retry;
        let version = match timeout_at(deadline, self.list()).await {
            Ok(Ok(version)) => version,
            Ok(Err(problem)) => return Ended::Failed(problem),
            Err(_) => return Ended::Failed("the API server did not answer in time".to_owned()),
        };
        *pause = self.pace.first_retry;
        self.tell_all().await;
        let until = Instant::now() + self.pace.relist;
        timeout_at(until, self.watch(&version)).await.unwrap_or(Ended::ReadAgain)
    }

    /// Takes the whole list, all of it or nothing; gives the version that it is of.
    async fn list(&mut self) -> Result<String, String> {
        let mut params = ListParams::default().labels(&self.wanted.selector).limit(PAGE);
        let mut slices = BTreeMap::new();
        loop {
            let page = self.api.list(&params).await.map_err(|error| explain(&error))?;
            slices.extend(page.items.into_iter().filter_map(named));
            if slices.len() > MAX_SLICES {
                return Err(format!("more than {MAX_SLICES} EndpointSlices"));
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    self.slices = slices;
                    return Ok(page.metadata.resource_version.unwrap_or_default());
                }
            }
        }
    }

    async fn watch(&mut self, version: &str) -> Ended {
        let params = WatchParams::default().labels(&self.wanted.selector);
        let events = match self.api.watch(&params, version).await {
            Ok(events) => events,
            Err(kube::Error::Api(status)) if status.code == GONE => return Ended::ReadAgain,
            Err(error) => return Ended::Failed(explain(&error)),
        };
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(WatchEvent::Added(slice) | WatchEvent::Modified(slice)) => {
                    self.put(slice);
                }
                Ok(WatchEvent::Deleted(slice)) => {
                    named(slice).map(|(name, _)| self.slices.remove(&name));
                }
                Ok(WatchEvent::Bookmark(_)) => continue,
                Ok(WatchEvent::Error(status)) if status.code == GONE => return Ended::ReadAgain,
                Err(kube::Error::Api(status)) if status.code == GONE => return Ended::ReadAgain,
                Ok(WatchEvent::Error(status)) => return Ended::Failed(status.message),
                Err(error) => return Ended::Failed(explain(&error)),
            }
            self.tell_all().await;
        }
        Ended::ReadAgain
    }

    fn put(&mut self, slice: EndpointSlice) {
        if let Some((name, slice)) = named(slice)
            && (self.slices.len() < MAX_SLICES || self.slices.contains_key(&name))
        {
            self.slices.insert(name, slice);
        }
    }

    async fn tell_all(&self) {
        let found = endpoints::replicas(&self.wanted, self.slices.values());
        let _ = self.tell.send((self.index, found)).await;
    }
}

fn named(slice: EndpointSlice) -> Option<(String, EndpointSlice)> {
    slice.metadata.name.clone().map(|name| (name, slice))
}

fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
