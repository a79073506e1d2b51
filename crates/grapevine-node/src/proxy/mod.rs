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
pub mod admission;
mod body;
mod consider;
pub mod exchange;
mod expectation;
pub mod explain;
pub mod failure;
mod finish;
mod forward;
mod headers;
pub mod hearing;
pub mod keying;
mod linger;
mod models;
mod naming;
mod note;
mod owner;
mod parcel;
mod pick;
mod place;
mod recent;
mod relay;
mod retries;
pub mod sse;
pub mod stop;
mod upgrade;
pub mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use grapevine_tree::{Api, KeySeed, Millis};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use hyper::upgrade::OnUpgrade;

use crate::actors::replica::ReplicaHandle;
use crate::actors::tree::TreeHandle;
use crate::auth::Gate;
use crate::clock::Clock;
use crate::config::Config;
use crate::error::{Refused, RouterError};
use crate::metrics::Metrics;
use crate::metrics::kind::Kind;
use crate::metrics::outcome::Outcome;
use crate::observe::decisions::Decisions;
use crate::observe::log::DecisionLog;
use crate::observe::taught::Taught;
use crate::telemetry::{ServerRequest, Tracer};
use admission::{Admission, AdmissionLimits};
use exchange::Exchange;
use forward::{Answer, Outbound};
use headers::{REPLICA, REQUEST_ID};
use hearing::Hearing;
use models::ModelList;
use pick::{Pick, Picker};
use recent::Recent;
use relay::{Held, Limits, Relay, Side};
use retries::RetryBudget;
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
    /// The last decisions.
    pub decisions: Decisions,
    /// Whose word predictions rest on.
    pub taught: Taught,
    /// Where decisions are written, if anywhere.
    pub log: Option<DecisionLog>,
    /// How many requests are here.
    pub admission: Admission,
    gate: Option<Gate>,
    models: ModelList,
    retries: RetryBudget,
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
    /// What this router hears of its peers.
    pub hearing: Arc<Hearing>,
    /// Knows clients' keys; without it none is needed.
    pub gate: Option<Gate>,
    /// Ends what still runs.
    pub stop: Stop,
    /// Clients are asked to come back on another connection, and so to another router.
    pub draining: Arc<AtomicBool>,
    /// Makes spans.
    pub tracer: Tracer,
    /// Where decisions are written, if anywhere.
    pub log: Option<DecisionLog>,
    /// Of every random choice.
    pub seed: u64,
}

struct Settings {
    body_limit: usize,
    /// Silence within a request's body until it is given up.
    client_timeout: Duration,
    first_byte: Duration,
    stream_first_byte: Duration,
    idle: Duration,
    /// Silence in an event stream until a comment is sent; none: never.
    comment_after: Option<Duration>,
    lookup: Duration,
    key_seed: KeySeed,
    debug_headers: bool,
    engine_http2: bool,
    /// Clients' credentials are for the engine.
    keep_credentials: bool,
    router: HeaderValue,
}

impl Proxy {
    /// The proxy that `config` describes.
    pub fn new(config: &Config, wiring: Wiring) -> Self {
        let limits = AdmissionLimits {
            inflight: config.max_inflight,
            per_replica: config.max_inflight_per_replica,
            queue: config.queue_limit,
            patience: config.queue_timeout,
            priority_header: config.priority_header.clone(),
        };
        let admission = Admission::new(limits, Arc::clone(wiring.replicas.replicas()));
        Self {
            settings: Settings {
                body_limit: config.body_limit,
                client_timeout: config.client_timeout,
                first_byte: config.first_byte_timeout,
                stream_first_byte: config.stream_first_byte_timeout,
                idle: config.idle_timeout,
                comment_after: Some(config.stream_keepalive).filter(|after| !after.is_zero()),
                lookup: config.lookup_timeout,
                key_seed: keying::seed_of(config.cluster_secret.as_ref()),
                debug_headers: config.debug_headers,
                engine_http2: config.engine_http2,
                keep_credentials: config.client_keys.is_none() && config.engine_key.is_none(),
                router: HeaderValue::from_str(&config.router_id)
                    .unwrap_or_else(|_| HeaderValue::from_static("unprintable")),
            },
            picker: Picker {
                replicas: Arc::clone(wiring.replicas.replicas()),
                policy: config.policy,
                mode: config.mode,
                weights: config.weights.clone(),
                bytes_per_token: config.bytes_per_token,
                max_inflight: config.max_inflight_per_replica,
                slow_start_ms: config.slow_start.as_millis() as Millis,
                hearing: wiring.hearing,
                seed: wiring.seed,
            },
            recent: Recent::default(),
            tree: wiring.tree,
            replicas: wiring.replicas,
            client: wiring.client,
            metrics: wiring.metrics,
            decisions: Decisions::default(),
            taught: Taught::default(),
            log: wiring.log,
            admission,
            gate: wiring.gate,
            models: ModelList::default(),
            retries: RetryBudget::new(config.retry_ratio),
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
    ) -> Result<Response, Refused> {
        let too_large = body::announces_too_much(body, self.settings.body_limit);
        let kind = Kind::of(&parts.method, parts.uri.path(), api);
        let began = Instant::now();
        if let Err(error) = self.check(&parts, too_large) {
            self.turned_away(kind, began, error);
            return Err(error.into());
        }
        let mut exchange = self.admit(&parts, kind, began).await?;
        if models::concerns(&parts.method, parts.uri.path(), parts.uri.query()) {
            return Ok(self.answer_models(exchange, &parts.headers).await?);
        }
        if let Some(client) = upgrade::wanted(&mut parts) {
            return Ok(self.answer_socket(exchange, client, parts, turn).await?);
        }
        match self.answer(&exchange, &mut parts, body, api, turn).await {
            Ok((pick, answer)) => Ok(self.respond(exchange, pick, answer, &parts.method, api)),
            Err(refused) => {
                exchange.refuse(refused.error);
                Err(refused)
            }
        }
    }

    async fn answer_models(
        &self,
        mut exchange: Exchange,
        headers: &HeaderMap,
    ) -> Result<Response, RouterError> {
        let listed = self.list_models(headers).await.inspect_err(|error| exchange.refuse(*error))?;
        exchange.answered(listed.status());
        exchange.conclude(Outcome::of_status(listed.status()));
        Ok(listed)
    }

    async fn answer_socket(
        &self,
        mut exchange: Exchange,
        client: OnUpgrade,
        mut parts: Parts,
        turn: u64,
    ) -> Result<Response, RouterError> {
        let opened = self.open_socket(&exchange, &mut parts, turn).await;
        let (pick, answer) = opened.inspect_err(|error| exchange.refuse(*error))?;
        if answer.response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(upgrade::answer(client, exchange, pick, answer));
        }
        Ok(self.respond(exchange, pick, answer, &parts.method, Api::Other))
    }

    /// Everything that is refused by its head alone.
    fn check(&self, parts: &Parts, too_large: bool) -> Result<(), RouterError> {
        let path = parts.uri.path();
        if !path.starts_with('/') {
            return Err(RouterError::BadTarget);
        }
        if !headers::names_one_host(parts.version, &parts.headers) {
            return Err(RouterError::BadHost);
        }
        if admin_paths::denied(&parts.method, path) {
            return Err(RouterError::AdminPath);
        }
        if let Some(gate) = &self.gate {
            gate.check(&parts.headers)?;
        }
        if too_large { Err(RouterError::BodyTooLarge) } else { Ok(()) }
    }

    /// Counts a request that was refused by its head.
    fn turned_away(&self, kind: Kind, began: Instant, error: RouterError) {
        let outcome = Outcome::of_error(error);
        self.metrics.ended(outcome);
        self.metrics.times.ended(kind, Some(error.facts().status), outcome, began.elapsed());
    }

    /// A place, before the body is read. A client that leaves while it waits for one is counted, too.
    async fn admit(
        self: &Arc<Self>,
        parts: &Parts,
        kind: Kind,
        began: Instant,
    ) -> Result<Exchange, RouterError> {
        let request = ServerRequest {
            method: &parts.method,
            uri: &parts.uri,
            scheme: self.metrics.times.scheme,
            version: parts.version,
            route: kind.route(),
            headers: &parts.headers,
        };
        let mut exchange = Exchange::begin(self, &request, kind, began);
        match self.admission.enter(&parts.headers).await {
            Ok(place) => {
                exchange.take(place);
                Ok(exchange)
            }
            Err(error) => {
                exchange.refuse(error);
                Err(error)
            }
        }
    }

    async fn answer(
        &self,
        exchange: &Exchange,
        parts: &mut Parts,
        body: &mut Body,
        api: Api,
        turn: u64,
    ) -> Result<(Pick, Answer), Refused> {
        let mut body = body::read(body, self.settings.body_limit, self.settings.client_timeout).await?;
        headers::prepare_request(&mut parts.headers, self.settings.keep_credentials);
        if let Some(trailers) = &mut body.trailers {
            headers::prepare_trailers(trailers, &mut parts.headers);
        }
        let mut job = self.look_up(exchange, &parts.method, api, &body.data, turn).await;
        if !job.is_read() && self.picker.replicas.load().models_matter() {
            job.model = naming::model_of(&parts.headers, &body.data).await;
        }
        if let Some(id) = owner::named(api, parts.uri.path(), &body.data).await {
            job.owner = Some(self.owner_of(&id).await);
        }
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let outbound = Outbound { method: &parts.method, target, headers: &parts.headers, body: &body };
        let answered = self.forward(&mut job, &outbound).await;
        answered.map_err(|error| Refused { error, model: job.model })
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
        exchange.answered(answer.response.status());
        let (mut parts, body) = answer.response.into_parts();
        let event_stream = headers::is_event_stream(&parts.headers);
        let side = side_of(&parts.headers, method, event_stream, answer.span.is_recording());
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
        let limits = Limits {
            first_event_by: answer.sent_at + answer.patience,
            idle: self.settings.idle,
            comment_after: self.settings.comment_after,
        };
        let held = Held { pick, span: answer.span, _parcel: answer.parcel, exchange };
        let relay = Relay::new(body, answer.head, side, limits, api, parts.status, held);
        Response::from_parts(parts, Body::new(relay))
    }
}

/// What can be read of an answer on the way; `traced`: a span wants to know why it ended.
fn side_of(headers: &HeaderMap, method: &Method, event_stream: bool, traced: bool) -> Side {
    if headers::is_encoded(headers) {
        Side::Blind
    } else if event_stream {
        Side::Events(sse::Watcher::traced(traced))
    } else if *method == Method::POST && headers::is_json(headers) {
        Side::Json(usage::Tail::default())
    } else {
        Side::Blind
    }
}

/// Serves one request of the public listener.
pub async fn handle(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let (mut parts, mut body) = request.into_parts();
    let api = Api::of_path(parts.uri.path());
    let turn = proxy.turn.fetch_add(1, Relaxed);
    let id = parts.headers.entry(REQUEST_ID).or_insert_with(mint_id).clone();
    let version = parts.version;
    // A client that expects to be asked has not begun; HTTP/2 has a way to say that the rest is not wanted.
    let unasked = version <= Version::HTTP_11 && !parts.headers.contains_key(header::EXPECT);
    let mut response = match proxy.serve(parts, &mut body, api, turn).await {
        Ok(response) => response,
        Err(refused) => {
            proxy.metrics.errored(refused.error);
            tracing::debug!(code = refused.error.facts().code, request_id = ?id, "request refused");
            let response = refused.response(api);
            if unasked { linger::until_uploaded(response, body) } else { response }
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
