//! Asks the fleet's other routers for their status, so that any one of them can show all.
//!
//! Bounded: so many peers, so many at once, so long, so many bytes each; and however many look, peers are
//! asked at most once a second.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use http::{HeaderValue, StatusCode, header};
use reqwest::Url;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::fleet_view::Fleet;
use super::merge::{Asked, merge};
use super::status::{PeerStatus, Status};
use super::survey::Observatory;
use crate::auth::bearer;
use crate::bounded;
use crate::client;
use crate::config::Secret;

/// Peers that are asked; of a larger fleet the rest is named only.
const MAX_PEERS: usize = 64;

/// Peers asked at once.
const AT_ONCE: usize = 16;

/// Limit of one answer: somebody is waiting.
const LIMIT: Duration = Duration::from_millis(1_500);

/// Largest answer: a thousand replicas are about 1 MB.
const MAX_BYTES: usize = 8 << 20;

/// How long an answer is good for all who look.
const FRESH: Duration = Duration::from_secs(1);

/// Asks peers.
pub struct Asker {
    client: reqwest::Client,
    /// The fleet's admin token; peers are taken to have the same.
    token: Option<HeaderValue>,
    last: Mutex<Option<(Instant, Arc<Fleet>)>>,
}

impl Asker {
    /// One that shows `token` to peers.
    pub fn new(token: Option<&Secret>) -> Result<Self, reqwest::Error> {
        let client = client::builder()
            .connect_timeout(LIMIT)
            .timeout(LIMIT)
            .pool_idle_timeout(Duration::from_secs(10))
            .http1_only()
            .build()?;
        Ok(Self { client, token: token.and_then(|token| bearer(token).ok()), last: Mutex::new(None) })
    }

    async fn status_of(&self, peer: &PeerStatus, sealed: bool) -> Result<Box<Status>, &'static str> {
        let base = peer.admin_url.as_deref().ok_or("no_address")?;
        let url: Url =
            format!("{}/api/v1/status", base.trim_end_matches('/')).parse().map_err(|_| "no_address")?;
        let mut request = self.client.get(url);
        // The address came by gossip: without a seal anybody on this machine may have said it.
        if let Some(token) = self.token.as_ref().filter(|_| sealed) {
            request = request.header(header::AUTHORIZATION, token);
        }
        let mut answer = request.send().await.map_err(|error| reason(&error))?;
        match answer.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err("unauthorized"),
            _ => return Err("bad_answer"),
        }
        let body = bounded::read(&mut answer, MAX_BYTES).await.map_err(|_| "bad_answer")?;
        serde_json::from_slice(&body).map(Box::new).map_err(|_| "bad_answer")
    }
}

impl Observatory {
    /// The whole fleet, not older than a second.
    pub async fn fleet(&self) -> Arc<Fleet> {
        // Whoever comes while peers are asked waits here for the same answer.
        let mut last = self.asker.last.lock().await;
        if let Some((_, fleet)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(fleet);
        }
        let own = self.status();
        let fleet = Arc::new(merge(&own, &self.ask(&own).await));
        *last = Some((Instant::now(), Arc::clone(&fleet)));
        fleet
    }

    async fn ask(&self, own: &Status) -> Vec<Asked> {
        let sealed = own.gossip.sealed;
        let peers: Vec<(usize, PeerStatus)> = own.peers.iter().cloned().enumerate().collect();
        let asked = stream::iter(peers).map(|(place, peer)| self.ask_one(place, peer, sealed));
        // In the order of names, whoever answers first.
        asked.buffered(AT_ONCE).collect().await
    }

    async fn ask_one(&self, place: usize, peer: PeerStatus, sealed: bool) -> Asked {
        let answer = if place < MAX_PEERS {
            timeout(LIMIT, self.asker.status_of(&peer, sealed)).await.unwrap_or(Err("timeout"))
        } else {
            Err("too_many")
        };
        Asked { peer, answer }
    }
}

fn reason(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() { "timeout" } else { "unreachable" }
}
