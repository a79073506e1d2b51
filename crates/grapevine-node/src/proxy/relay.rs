//! The body of a relayed answer.
//!
//! It owns everything that must live exactly as long as the answer: the connection to the engine,
//! the load counted on the replica, the request's place in this router. Frames pass unchanged and
//! at once; the client's pace is the engine's pace, nothing is buffered. Dropping it, because the
//! client went away, closes the engine's connection.
//!
//! ```text
//! Relaying --- end ----------------------------------------> Ended
//!     |------- cut, idle, drain --- error event, delay ---> (error to the client, never an end)
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use grapevine_tree::Api;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::exchange::Exchange;
use super::finish::Finish;
use super::owner::IdWatch;
use super::parcel::Parcel;
use super::pick::Pick;
use super::sse::Watcher;
use super::stop::Stopped;
use super::usage::{Tail, Usage};
use crate::actors::replica::AnswerReport;
use crate::error::error_body;
use crate::metrics::outcome::Outcome;
use crate::telemetry::EngineSpan;

/// Between an error event and the broken connection. An abort throws away what is not yet on the
/// wire: this is time for the event to get there.
const ABORT_DELAY: Duration = Duration::from_millis(50);

/// What the side reader makes of the body.
#[derive(Debug)]
pub(super) enum Side {
    /// Nothing.
    Blind,
    /// The end of a JSON answer.
    Json(Tail),
    /// An event stream.
    Events(Watcher),
}

/// Why an answer could not be relayed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RelayError {
    /// The engine's connection broke.
    #[error("the engine closed the connection within its answer")]
    EngineCut,
    /// The engine fell silent.
    #[error("the engine fell silent within its answer")]
    EngineIdle,
    /// The router's drain ended.
    #[error("this router is shutting down")]
    Drained,
}

/// Limits of a relay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The first event of a stream must be here by then. Engines send headers before they prefill.
    pub(super) first_event_by: Instant,
    /// Between two chunks after that.
    pub(super) idle: Duration,
    /// Silence in an event stream until the client gets a comment; none: never.
    pub(super) comment_after: Option<Duration>,
}

/// What keeps a connection awake on which an engine is silent. A client of event streams passes over it.
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// See the module.
pub(super) struct Relay {
    upstream: reqwest::Body,
    /// What was read of the body before it was decided to relay it.
    head: Option<Bytes>,
    side: Side,
    stage: Stage,
    waits: Option<Waits>,
    limits: Limits,
    api: Api,
    status: StatusCode,
    first_byte_seen: bool,
    /// Of a stream that may succeed.
    first_token_at: Option<Instant>,
    /// Present where the answer is a stored response.
    id_watch: Option<IdWatch>,
    held: Held,
}

/// What lives exactly as long as the answer. Dropped in this order.
pub(super) struct Held {
    pub(super) pick: Pick,
    pub(super) span: EngineSpan,
    pub(super) _parcel: Option<Parcel>,
    pub(super) exchange: Exchange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Relaying,
    Aborting(RelayError),
    Ended,
}

/// What a relay waits for besides the engine. Made when the engine first keeps it waiting.
struct Waits {
    timer: Pin<Box<Sleep>>,
    /// The timer stands for the chunk that is awaited.
    armed: bool,
    /// By when that chunk must be here.
    deadline: Instant,
    stopped: Stopped,
}

/// What came while the engine was silent.
enum Waited {
    Failed(RelayError),
    CommentDue,
}

impl Relay {
    pub(super) fn new(
        upstream: reqwest::Body,
        head: Option<Bytes>,
        side: Side,
        limits: Limits,
        api: Api,
        status: StatusCode,
        held: Held,
    ) -> Self {
        let mut relay = Self {
            upstream,
            head,
            side,
            stage: Stage::Relaying,
            waits: None,
            limits,
            api,
            status,
            first_byte_seen: false,
            first_token_at: None,
            id_watch: (api == Api::Responses && status.is_success()).then(IdWatch::default),
            held,
        };
        if relay.head.is_none() && relay.upstream.is_end_stream() {
            relay.end();
        }
        relay
    }

    fn on_data(&mut self, data: &Bytes) {
        if let Some(id) = self.id_watch.as_mut().and_then(|watch| watch.push(data)) {
            self.held.exchange.proxy.remember_owner(&id, self.held.pick.replica.id);
        }
        match &mut self.side {
            Side::Blind => self.on_first_byte(),
            Side::Json(tail) => {
                tail.push(data);
                self.on_first_byte();
            }
            Side::Events(watcher) => {
                watcher.push(data);
                let (started, generates) = (watcher.started, watcher.generates);
                if started {
                    self.on_first_byte();
                }
                if generates && self.first_token_at.is_none() && self.status.is_success() {
                    self.first_token_at = Some(Instant::now());
                    self.held.exchange.first_token();
                }
            }
        }
        if let Some(waits) = &mut self.waits {
            waits.armed = false;
        }
    }

    fn on_first_byte(&mut self) {
        if std::mem::replace(&mut self.first_byte_seen, true) {
            return;
        }
        let pick = &mut self.held.pick;
        pick.load.first_byte();
        if let Some(expectation) = &mut pick.expectation {
            expectation.answered_at = Some(self.held.exchange.proxy.clock.now());
        }
        if matches!(self.side, Side::Events(_)) {
            self.held.span.first_chunk();
        }
    }

    /// The engine has answered in full.
    fn end(&mut self) {
        if self.stage != Stage::Relaying {
            return;
        }
        self.stage = Stage::Ended;
        let (usage, failed) = match &self.side {
            Side::Blind => (Usage::default(), false),
            Side::Json(tail) => (tail.usage(), false),
            Side::Events(watcher) => (watcher.usage, watcher.failed),
        };
        if failed {
            self.held.pick.expectation = None;
        } else if let (Some(first), Some(tokens)) = (self.first_token_at, usage.output_tokens) {
            self.held.exchange.generated(tokens, first.elapsed());
        }
        self.report(usage);
        self.report_finish();
        let health = &self.held.pick.replica.health;
        if failed {
            health.server_error(self.held.exchange.proxy.clock.now(), rand::random());
            self.held.span.fail(Outcome::StreamFailed.name());
            self.held.exchange.span.fail(Outcome::StreamFailed.name());
        } else if !self.status.is_server_error() {
            health.completed();
        }
        let outcome = if failed { Outcome::StreamFailed } else { Outcome::of_status(self.status) };
        self.held.exchange.conclude(outcome);
    }

    /// Says in the span why the answer ended.
    fn report_finish(&mut self) {
        match &self.side {
            Side::Json(tail) if self.held.span.is_recording() => {
                let mut finish = Finish::default();
                finish.read(tail.bytes());
                self.held.span.finished(finish.reasons());
            }
            Side::Events(Watcher { finish: Some(finish), .. }) => self.held.span.finished(finish.reasons()),
            _ => {}
        }
    }

    fn report(&mut self, usage: Usage) {
        self.held.span.usage(usage.prompt_tokens, usage.output_tokens, usage.cached_tokens);
        let Some(cached) = usage.cached_tokens else { return };
        let prompt = usage.prompt_tokens.unwrap_or(0);
        self.held.exchange.reported(cached);
        self.held.pick.replica.counters.reported(prompt, cached);
        self.held.exchange.proxy.metrics.reported_prompt_tokens.inc_by(prompt);
        self.held.exchange.proxy.metrics.reported_cached_tokens.inc_by(cached);
        self.compare(&usage);
    }

    /// Holds the answer against what was expected. Of an answer that is no success nothing was expected.
    fn compare(&mut self, usage: &Usage) {
        let pick = &mut self.held.pick;
        let expected = pick.expectation.take().filter(|_| self.status.is_success());
        let Some(expected) = expected else { return };
        let (epoch, proxy) = (expected.epoch, &self.held.exchange.proxy);
        if let Some(answer) = expected.against(&pick.decision, usage, proxy.clock.now()) {
            proxy.replicas.answered(AnswerReport { replica: pick.replica.id, epoch, answer });
        }
    }

    /// The answer cannot be completed: closes the engine's connection, and says so to the client in
    /// the way its API knows, if there is one.
    fn fail(
        &mut self,
        error: RelayError,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        self.upstream = reqwest::Body::default();
        self.head = None;
        self.stage = Stage::Aborting(error);
        let complete = matches!(&self.side, Side::Events(watcher) if watcher.complete);
        self.held.exchange.conclude(match error {
            _ if complete => Outcome::of_status(self.status),
            RelayError::EngineCut => Outcome::EngineCut,
            RelayError::EngineIdle => Outcome::EngineIdle,
            RelayError::Drained => Outcome::Drained,
        });
        if !complete {
            self.held.span.fail(error.code());
            self.held.exchange.span.fail(error.code());
        }
        let replica = &self.held.pick.replica;
        if error != RelayError::Drained && !complete {
            replica.health.server_error(self.held.exchange.proxy.clock.now(), rand::random());
            tracing::info!(replica = replica.name, reason = %error, "answer broken off");
        }
        let Some(event) = self.last_words(error) else {
            return Poll::Ready(Some(Err(error)));
        };
        let waits = self.waits.get_or_insert_with(|| Waits::new(&self.held.exchange, Instant::now()));
        waits.timer.as_mut().reset(Instant::now() + ABORT_DELAY);
        // The timer must know whom to wake even if the next poll never comes by itself.
        let _ = waits.timer.as_mut().poll(cx);
        Poll::Ready(Some(Ok(Frame::data(event))))
    }

    /// The error event for a stream that did not already end or fail in its own words.
    fn last_words(&self, error: RelayError) -> Option<Bytes> {
        let Side::Events(watcher) = &self.side else { return None };
        if watcher.complete || watcher.failed {
            return None;
        }
        let opening = if watcher.between_events() { "" } else { "\n\n" };
        Some(Bytes::from(format!("{opening}{}", error.event(self.api))))
    }

    fn poll_waits(&mut self, cx: &mut Context<'_>) -> Poll<Waited> {
        let started = !matches!(&self.side, Side::Events(watcher) if !watcher.started);
        let limits = self.limits;
        let now = Instant::now;
        let deadline = || if started { now() + limits.idle } else { limits.first_event_by };
        let in_events = matches!(self.side, Side::Events(_));
        let comment_at = || limits.comment_after.filter(|_| in_events).map(|after| now() + after);
        let waits = self.waits.get_or_insert_with(|| Waits::new(&self.held.exchange, deadline()));
        if !waits.armed {
            waits.arm(deadline(), comment_at());
        }
        while waits.timer.as_mut().poll(cx).is_ready() {
            if now() >= waits.deadline {
                return Poll::Ready(Waited::Failed(RelayError::EngineIdle));
            }
            waits.arm(waits.deadline, comment_at());
            // Within an event a comment would break it.
            if matches!(&self.side, Side::Events(watcher) if watcher.between_events() && !watcher.complete) {
                return Poll::Ready(Waited::CommentDue);
            }
        }
        waits.stopped.as_mut().poll(cx).map(|()| Waited::Failed(RelayError::Drained))
    }
}

impl Waits {
    fn new(exchange: &Exchange, deadline: Instant) -> Self {
        Self {
            timer: Box::pin(sleep_until(deadline)),
            armed: false,
            deadline,
            stopped: exchange.proxy.stop.stopped(),
        }
    }

    fn arm(&mut self, deadline: Instant, comment_at: Option<Instant>) {
        self.armed = true;
        self.deadline = deadline;
        self.timer.as_mut().reset(comment_at.map_or(deadline, |at| at.min(deadline)));
    }
}

impl RelayError {
    /// Stable machine-readable code.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::EngineCut => "engine_cut",
            Self::EngineIdle => "engine_idle",
            Self::Drained => "shutting_down",
        }
    }

    /// The event by which a stream of `api` says that it failed.
    fn event(self, api: Api) -> String {
        let message = self.to_string();
        let object = || error_body(StatusCode::BAD_GATEWAY, self.code(), &message, api);
        match api {
            Api::Messages => format!("event: error\ndata: {}\n\n", object()),
            Api::Responses => {
                let error = serde_json::json!({ "code": "server_error", "message": message });
                let response =
                    serde_json::json!({ "object": "response", "status": "failed", "error": error });
                let event = serde_json::json!({ "type": "response.failed", "response": response });
                format!("event: response.failed\ndata: {event}\n\n")
            }
            Api::Chat | Api::Completions | Api::Generate | Api::Other => {
                format!("data: {}\n\n", object())
            }
        }
    }
}

impl Body for Relay {
    type Data = Bytes;
    type Error = RelayError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RelayError>>> {
        let this = &mut *self;
        match this.stage {
            Stage::Relaying => {}
            Stage::Ended => return Poll::Ready(None),
            Stage::Aborting(error) => {
                if let Some(waits) = &mut this.waits {
                    ready!(waits.timer.as_mut().poll(cx));
                }
                return Poll::Ready(Some(Err(error)));
            }
        }
        if let Some(head) = this.head.take() {
            this.on_data(&head);
            if this.upstream.is_end_stream() {
                this.end();
            }
            return Poll::Ready(Some(Ok(Frame::data(head))));
        }
        match Pin::new(&mut this.upstream).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    this.on_data(data);
                }
                if this.upstream.is_end_stream() {
                    this.end();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.end();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => this.fail(RelayError::EngineCut, cx),
            Poll::Pending => match ready!(this.poll_waits(cx)) {
                Waited::Failed(error) => this.fail(error, cx),
                Waited::CommentDue => Poll::Ready(Some(Ok(Frame::data(COMMENT)))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.stage == Stage::Ended
    }

    fn size_hint(&self) -> SizeHint {
        // An event stream may get one event more than the engine announced.
        if matches!(self.side, Side::Events(_)) || self.stage != Stage::Relaying {
            return SizeHint::default();
        }
        let head = self.head.as_ref().map_or(0, Bytes::len) as u64;
        match self.upstream.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(head + rest),
            None => SizeHint::default(),
        }
    }
}
