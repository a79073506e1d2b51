//! The path of a request: read, place, forward, relay.
//!
//! ```text
//! head -> admin path? -> admitted? -> body (bounded) -> prefix key -> tree -> pick -> engine
//!                                                                      ^               | nothing accepted
//!                                                                      +---- once -----+
//! ```
//!
//! Everything runs in the connection's own task. When the client goes away that task is dropped, and
//! with it whatever the request held: the engine's connection, its load, its place here.

pub mod admin_paths;
mod body;
pub mod exchange;
mod expectation;
pub mod failure;
mod forward;
mod headers;
pub mod keying;
mod linger;
mod pick;
mod place;
mod recent;
mod relay;
mod sse;
pub mod stop;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use grapevine_tree::{Api, KeySeed};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};

use crate::actors::replica::ReplicaHandle;
use crate::actors::tree::TreeHandle;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::RouterError;
use crate::metrics::Metrics;
use crate::metrics::outcome::Outcome;
use crate::telemetry::{ServerRequest, Tracer};
use exchange::{Admission, Exchange};
use forward::{Answer, Outbound};
use headers::{REPLICA, REQUEST_ID};
use pick::{Pick, Picker};
use recent::Recent;
use relay::{Held, Limits, Relay, Side};
use stop::Stop;

const MATCHED: HeaderName = HeaderName::from_static("x-grapevine-matched-tokens");
const REASON: HeaderName = HeaderName::from_static("x-grapevine-reason");
const ROUTER: HeaderName = HeaderName::from_static("x-grapevine-router");

/// Everything that requests share.
pub struct Proxy {
    settings: Settings,
    picker: Picker,
    recent: Recent,
    tree: TreeHandle,
    replicas: ReplicaHandle,
    client: reqwest::Client,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How many requests are here.
    pub admission: Admission,
    clock: Clock,
    stop: Stop,
    draining: Arc<AtomicBool>,
    tracer: Tracer,
    turn: AtomicU64,
}

/// What the proxy works with.
pub struct Wiring {
    /// Where requests go, and who is told of their answers.
    pub replicas: ReplicaHandle,
    /// What replicas hold.
    pub tree: TreeHandle,
    /// Speaks to engines.
    pub client: reqwest::Client,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Time.
    pub clock: Clock,
    /// Ends what still runs.
    pub stop: Stop,
    /// Clients are asked to come back on another connection, and so to another router.
    pub draining: Arc<AtomicBool>,
    /// Makes spans.
    pub tracer: Tracer,
    /// Of every random choice.
    pub seed: u64,
}

struct Settings {
    body_limit: usize,
    first_byte: Duration,
    idle: Duration,
    lookup: Duration,
    key_seed: KeySeed,
    debug_headers: bool,
    router: HeaderValue,
}

impl Proxy {
    /// The proxy that `config` describes.
    pub fn new(config: &Config, wiring: Wiring) -> Self {
        Self {
            settings: Settings {
                body_limit: config.body_limit,
                first_byte: config.first_byte_timeout,
                idle: config.idle_timeout,
                lookup: config.lookup_timeout,
                key_seed: keying::seed_of(config.cluster_secret.as_ref()),
                debug_headers: config.debug_headers,
                router: HeaderValue::from_str(&config.router_id)
                    .unwrap_or_else(|_| HeaderValue::from_static("unprintable")),
            },
            picker: Picker {
                replicas: Arc::clone(wiring.replicas.replicas()),
                policy: config.policy,
                weights: config.weights.clone(),
                bytes_per_token: config.bytes_per_token,
                max_inflight: config.max_inflight_per_replica,
                seed: wiring.seed,
            },
            recent: Recent::default(),
            tree: wiring.tree,
            replicas: wiring.replicas,
            client: wiring.client,
            metrics: wiring.metrics,
            admission: Admission::new(config.max_inflight),
            clock: wiring.clock,
            stop: wiring.stop,
            draining: wiring.draining,
            tracer: wiring.tracer,
            turn: AtomicU64::new(0),
        }
    }

    async fn serve(
        self: &Arc<Self>,
        mut parts: Parts,
        body: &mut Body,
        api: Api,
        turn: u64,
    ) -> Result<Response, RouterError> {
        let mut exchange = self.admit(&parts, body, api).inspect_err(|error| {
            self.metrics.ended(Outcome::of_error(*error));
        })?;
        match self.answer(&exchange, &mut parts, body, api, turn).await {
            Ok((pick, answer)) => Ok(self.respond(exchange, pick, answer, &parts.method, api)),
            Err(error) => {
                exchange.refuse(error);
                Err(error)
            }
        }
    }

    /// Everything that can be refused before the body is read.
    fn admit(self: &Arc<Self>, parts: &Parts, body: &Body, api: Api) -> Result<Exchange, RouterError> {
        let path = parts.uri.path();
        if !path.starts_with('/') {
            return Err(RouterError::BadTarget);
        }
        if api == Api::Other && admin_paths::denied(&parts.method, path) {
            return Err(RouterError::AdminPath);
        }
        if body::announces_too_much(body, self.settings.body_limit) {
            return Err(RouterError::BodyTooLarge);
        }
        let request = ServerRequest {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            route: route_of(path),
            headers: &parts.headers,
        };
        Exchange::begin(self, &request)
    }

    async fn answer(
        &self,
        exchange: &Exchange,
        parts: &mut Parts,
        body: &mut Body,
        api: Api,
        turn: u64,
    ) -> Result<(Pick, Answer), RouterError> {
        let body = body::read(body, self.settings.body_limit).await?;
        headers::prepare_request(&mut parts.headers);
        let job = self.look_up(exchange, &parts.method, api, &body, turn).await;
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let outbound = Outbound { method: &parts.method, target, headers: &parts.headers, body: &body };
        self.forward(job, &outbound).await
    }

    /// The answer's head; its body is a [`Relay`].
    fn respond(
        &self,
        mut exchange: Exchange,
        pick: Pick,
        answer: Answer,
        method: &Method,
        api: Api,
    ) -> Response {
        exchange.span.status(answer.response.status());
        let (mut parts, body) = answer.response.into_parts();
        let event_stream = headers::is_event_stream(&parts.headers);
        let side = side_of(&parts.headers, method, event_stream);
        headers::prepare_response(&mut parts.headers, event_stream);
        if parts.status.is_redirection() {
            headers::hide_replica(&mut parts.headers, &pick.replica.url);
        }
        parts.headers.insert(REPLICA, pick.replica.name_header.clone());
        if self.settings.debug_headers {
            parts.headers.insert(MATCHED, pick.decision.matched_tokens.into());
            parts.headers.insert(REASON, HeaderValue::from_static(pick.decision.reason.name()));
            parts.headers.insert(ROUTER, self.settings.router.clone());
        }
        let limits =
            Limits { first_event_by: answer.sent_at + self.settings.first_byte, idle: self.settings.idle };
        let held = Held { pick, span: answer.span, exchange };
        let relay = Relay::new(body, answer.head, side, limits, api, parts.status, held);
        Response::from_parts(parts, Body::new(relay))
    }
}

/// What can be read of an answer on the way.
fn side_of(headers: &HeaderMap, method: &Method, event_stream: bool) -> Side {
    if headers::is_encoded(headers) {
        Side::Blind
    } else if event_stream {
        Side::Events(sse::Watcher::default())
    } else if *method == Method::POST && headers::is_json(headers) {
        Side::Json(usage::Tail::default())
    } else {
        Side::Blind
    }
}

/// The path as a name of few values, for spans.
fn route_of(path: &str) -> Option<&'static str> {
    const KNOWN: [&str; 8] = [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/models",
        "/v1/embeddings",
        "/v1/messages/count_tokens",
        "/generate",
    ];
    KNOWN.into_iter().find(|known| *known == path)
}

/// Serves one request of the public listener.
pub async fn handle(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (mut parts, mut body) = request.into_parts();
    let api = Api::of_path(parts.uri.path());
    let turn = proxy.turn.fetch_add(1, Relaxed);
    let id = parts.headers.entry(REQUEST_ID).or_insert_with(mint_id).clone();
    // Such a client sends its body only when it is asked to.
    let waits = parts.headers.contains_key(header::EXPECT);
    let version = parts.version;
    let mut response = match proxy.serve(parts, &mut body, api, turn).await {
        Ok(response) => response,
        Err(error) => {
            proxy.metrics.errored(error);
            tracing::debug!(code = error.facts().code, request_id = ?id, "request refused");
            let response = error.response(api);
            if waits { response } else { linger::until_uploaded(response, body) }
        }
    };
    headers::set_if_absent(response.headers_mut(), REQUEST_ID, id);
    if proxy.draining.load(Relaxed) && version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An id that no other request of any router has: engines make it the id of their answer.
fn mint_id() -> HeaderValue {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let random = rand::random::<[u8; 16]>();
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or(b'0');
    let digits: [u8; 32] = std::array::from_fn(|i| {
        let byte = random.get(i / 2).copied().unwrap_or(0);
        digit(if i % 2 == 0 { byte >> 4 } else { byte & 15 })
    });
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}
