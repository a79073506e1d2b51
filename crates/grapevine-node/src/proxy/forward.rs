//! Sending a request to an engine, and to one other if the first accepted nothing.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use grapevine_tree::ReplicaId;
use http::{HeaderMap, Method};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout};

use super::Proxy;
use super::body::Upload;
use super::failure::{self, PEEK_BYTES, Refusal};
use super::owner;
use super::parcel::{self, Parcel};
use super::pick::Pick;
use super::place::Job;
use crate::error::{Retry, RouterError};
use crate::replica::Replica;
use crate::telemetry::{EngineCall, EngineSpan};

/// Replicas that are tried for one request, at most.
const MAX_ATTEMPTS: usize = 2;

/// Limit to read an error body that is already announced as short.
const PEEK_LIMIT: Duration = Duration::from_secs(1);

/// How long a request waits where the system has no socket left: connections come back as other requests end. A
/// second in all.
const SOCKET_WAITS: u32 = 20;
const SOCKET_WAIT: Duration = Duration::from_millis(50);

/// A request as it goes to an engine. Sent again, it is the same bytes.
pub(super) struct Outbound<'a> {
    pub(super) method: &'a Method,
    /// Path and query as the client wrote them.
    pub(super) target: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: &'a Upload,
}

/// An engine's answer, its body still to come.
pub(super) struct Answer {
    pub(super) response: http::Response<reqwest::Body>,
    /// What was already read of the body.
    pub(super) head: Option<Bytes>,
    pub(super) sent_at: Instant,
    /// By how long after that its first byte must be here.
    pub(super) patience: Duration,
    pub(super) span: EngineSpan,
    /// What it was asked, if the engine may still be reading that.
    pub(super) parcel: Option<Parcel>,
}

/// How a try on one replica went.
enum Attempt {
    /// The engine took the request, whatever it says to it.
    Answered(Answer),
    /// The engine says that it took nothing.
    Refused(Answer),
    /// There is no answer.
    Failed(RouterError),
}

impl Proxy {
    /// Gets an answer from a replica. Another one is tried, once, if the first accepted nothing.
    pub(super) async fn forward(
        &self,
        job: &mut Job<'_>,
        outbound: &Outbound<'_>,
    ) -> Result<(Pick, Answer), RouterError> {
        self.retries.requested();
        let mut pick = self.place(job, &[])?;
        let mut refused: SmallVec<[ReplicaId; 4]> = SmallVec::new();
        loop {
            let attempt = self.attempt(job, &pick, outbound).await;
            refused.push(pick.replica.id);
            if !self.may_try_another(job, &attempt, &refused) {
                return attempt.result(pick);
            }
            // Where there is no other, the client gets what this one said.
            let Ok(other) = self.place(job, &refused) else { return attempt.result(pick) };
            drop(attempt);
            self.metrics.retries.inc();
            pick = other;
        }
    }

    /// One other replica, if nothing was accepted, there is one, and the budget allows; several for a stored
    /// response whose owner nobody remembers.
    fn may_try_another(&self, job: &Job<'_>, attempt: &Attempt, refused: &[ReplicaId]) -> bool {
        let tried = refused.len();
        if let (Some(_), Attempt::Answered(answer)) = (&job.owner, attempt) {
            return owner::is_not_known(answer.response.status()) && tried < owner::MOST_ASKED;
        }
        let accepted_nothing = match attempt {
            Attempt::Answered(_) => false,
            Attempt::Refused(_) => true,
            Attempt::Failed(error) => error.facts().retry == Retry::OtherReplica,
        };
        // The budget last: what nobody could take costs none of it.
        accepted_nothing && tried < MAX_ATTEMPTS && self.could_place(job, refused) && self.retries.may_retry()
    }

    async fn attempt(&self, job: &Job<'_>, pick: &Pick, outbound: &Outbound<'_>) -> Attempt {
        let replica = &*pick.replica;
        let sent_at = Instant::now();
        let mut span = job.exchange.span.engine(&EngineCall {
            inference: job.exchange.kind.inference,
            method: outbound.method,
            model: job.model.as_deref(),
            stream: job.stream,
            replica: &replica.name,
            url: &replica.url,
        });
        let patience = if job.stream { self.settings.stream_first_byte } else { self.settings.first_byte };
        match self.send(replica, outbound, patience, &span).await {
            Ok((response, parcel)) => {
                span.status(response.status());
                // Before anything is awaited: the client may leave there.
                if !response.status().is_success() {
                    self.take_back(job, replica.id);
                }
                self.judge(replica, Answer { response, head: None, sent_at, patience, span, parcel }).await
            }
            Err(error) => {
                span.fail(error.facts().code);
                self.take_back(job, replica.id);
                Attempt::Failed(error)
            }
        }
    }

    /// Sends it. Where the system has no socket for it, a connection to the replica may become free soon.
    async fn send(
        &self,
        replica: &Replica,
        outbound: &Outbound<'_>,
        patience: Duration,
        span: &EngineSpan,
    ) -> Result<(http::Response<reqwest::Body>, Option<Parcel>), RouterError> {
        for _ in 0..SOCKET_WAITS {
            match self.send_once(replica, outbound, patience, span).await {
                Err(RouterError::NoSockets) => sleep(SOCKET_WAIT).await,
                sent => return sent,
            }
        }
        let sent = self.send_once(replica, outbound, patience, span).await;
        if let Err(RouterError::NoSockets) = sent {
            tracing::warn!(
                replica = replica.name,
                "no socket left to reach it with: raise the limit of open files"
            );
        }
        sent
    }

    async fn send_once(
        &self,
        replica: &Replica,
        outbound: &Outbound<'_>,
        patience: Duration,
        span: &EngineSpan,
    ) -> Result<(http::Response<reqwest::Body>, Option<Parcel>), RouterError> {
        let mut request = outbound.to(replica);
        let (body, parcel) = parcel::pack(outbound.body, !self.settings.engine_http2);
        *request.body_mut() = body;
        span.inject(request.headers_mut());
        let sent = timeout(patience, self.client.execute(request));
        let sent = tokio::select! {
            biased;
            sent = sent => sent,
            () = self.stop.wait() => return Err(RouterError::ShuttingDown),
        };
        match sent {
            Ok(Ok(response)) => Ok((response.into(), parcel)),
            Ok(Err(error)) => Err(self.explain(replica, &error)),
            Err(_) => {
                replica.health.server_error(self.clock.now(), rand::random());
                tracing::info!(replica = replica.name, "no answer in time");
                Err(RouterError::EngineTimeout)
            }
        }
    }

    /// What a failure to get an answer means for the replica and for the client.
    fn explain(&self, replica: &Replica, error: &reqwest::Error) -> RouterError {
        if failure::no_sockets(error) {
            tracing::debug!(replica = replica.name, %error, "no socket left to reach it with");
            return RouterError::NoSockets;
        }
        if error.is_connect() {
            replica.health.connect_failed(self.clock.now(), failure::refused(error), rand::random());
            tracing::debug!(replica = replica.name, %error, "cannot connect");
            return RouterError::NoReplica;
        }
        if error.is_builder() {
            return RouterError::BadTarget;
        }
        // It may have begun to work: sending the request again could run it twice.
        replica.health.server_error(self.clock.now(), rand::random());
        tracing::info!(replica = replica.name, "connection closed without an answer");
        RouterError::EngineClosed
    }

    /// Whether the engine took the request, and what that says of its health.
    async fn judge(&self, replica: &Replica, mut answer: Answer) -> Attempt {
        let status = answer.response.status();
        if !status.is_server_error() {
            replica.health.served(self.clock.now());
            return Attempt::Answered(answer);
        }
        if failure::may_refuse(status) && !answer.peek().await {
            return Attempt::Failed(RouterError::EngineClosed);
        }
        let refusal = answer.head.as_deref().and_then(|body| failure::refusal(status, body));
        match refusal {
            Some(Refusal::Busy) => replica.health.served(self.clock.now()),
            Some(Refusal::Loading | Refusal::Leaving) => {
                replica.health.eject(self.clock.now(), rand::random());
            }
            None => replica.health.server_error(self.clock.now(), rand::random()),
        }
        if refusal.is_some() { Attempt::Refused(answer) } else { Attempt::Answered(answer) }
    }
}

impl Attempt {
    fn result(self, pick: Pick) -> Result<(Pick, Answer), RouterError> {
        match self {
            Self::Answered(answer) | Self::Refused(answer) => Ok((pick, answer)),
            Self::Failed(error) => Err(error),
        }
    }
}

impl Answer {
    /// Reads the body if it is known to be short. False when the connection broke on the way.
    async fn peek(&mut self) -> bool {
        let body = self.response.body_mut();
        let short = body.size_hint().exact().is_some_and(|length| length <= PEEK_BYTES as u64);
        if !short {
            return true;
        }
        let mut head = BytesMut::new();
        let read = async {
            while let Some(frame) = body.frame().await {
                match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => head.extend_from_slice(&data),
                    Ok(Err(_)) => {}
                    Err(_) => return false,
                }
            }
            true
        };
        let whole = timeout(PEEK_LIMIT, read).await.unwrap_or(true);
        self.head = (!head.is_empty()).then(|| head.freeze());
        whole
    }
}

impl Outbound<'_> {
    /// The request as `replica` gets it. The client library's URL type resolves dot segments and
    /// escapes what no URL may hold; everything else of path and query stays as it was written.
    fn to(&self, replica: &Replica) -> reqwest::Request {
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (self.target, None),
        };
        let mut url = replica.base.clone();
        match replica.base.path() {
            "/" => url.set_path(path),
            base => url.set_path(&format!("{base}{path}")),
        }
        url.set_query(query);
        let mut request = reqwest::Request::new(self.method.clone(), url);
        *request.headers_mut() = self.headers.clone();
        replica.authorize(request.headers_mut());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReplicaSpec;
    use crate::replica::ReplicaSet;

    fn url_of(base: &str, target: &str) -> String {
        let spec = ReplicaSpec::new("a", base);
        let set = ReplicaSet::from_specs(&[spec]).unwrap();
        let (headers, body) = (HeaderMap::new(), Upload::default());
        let outbound = Outbound { method: &Method::GET, target, headers: &headers, body: &body };
        outbound.to(&set.replicas[0]).url().to_string()
    }

    #[test]
    fn a118_path_and_query_are_kept_and_a29_urls_join_with_one_slash() {
        for target in
            ["/v1/embeddings?x=1", "/", "/?a?b", "/v1/a%2Fb?q=%20+&&z", "/?", "/v1/~a/b;c=d/", "//v1//x"]
        {
            assert_eq!(url_of("http://h:8000/", target), format!("http://h:8000{target}"));
        }
        assert_eq!(url_of("http://h:8000/base/", "/v1/x"), "http://h:8000/base/v1/x");
        assert_eq!(url_of("http://[::1]:8000", "/v1/x"), "http://[::1]:8000/v1/x", "a121");
    }
}
