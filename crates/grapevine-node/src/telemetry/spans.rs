//! The three spans of a request, as plain objects: hold them as long as what they measure, and drop
//! them to end them. With export off each is a null pointer and every method returns at once.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use grapevine_route::{Decision, Votes};
use grapevine_tree::Teacher;
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _};
use opentelemetry::{Array, Context, KeyValue, Value};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use super::batch::{Counts, ExportCounts};
use super::w3c;
use crate::bounded::cut;
use crate::metrics::kind::{Inference, method_name};
use crate::observe::decisions::Considered;

/// Longest path that is recorded, bytes.
const MAX_PATH: usize = 256;

/// Makes spans, or nothing when export is off.
#[derive(Clone)]
pub struct Tracer(Option<Arc<On>>);

struct On {
    tracer: SdkTracer,
    counts: Arc<Counts>,
}

/// What is known of a request when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct ServerRequest<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its URI.
    pub uri: &'a Uri,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Its protocol version.
    pub version: Version,
    /// The path when it is one of those that the router knows: a name of few values.
    pub route: Option<&'static str>,
    /// Its headers, with the client's trace context.
    pub headers: &'a HeaderMap,
}

/// One try to have a request answered by an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineCall<'a> {
    /// What is asked of a model, if anything is.
    pub inference: Option<Inference>,
    /// Method, for requests that ask nothing of a model.
    pub method: &'a Method,
    /// The model that was asked for.
    pub model: Option<&'a str>,
    /// It asks for a stream.
    pub stream: bool,
    /// Name of the replica.
    pub replica: &'a str,
    /// Base URL of the replica.
    pub url: &'a str,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Tracer(on)" } else { "Tracer(off)" })
    }
}

impl Tracer {
    /// Makes nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    pub(super) fn on(tracer: SdkTracer, counts: Arc<Counts>) -> Self {
        Self(Some(Arc::new(On { tracer, counts })))
    }

    /// What became of the spans; `None` when export is off.
    pub fn counts(&self) -> Option<ExportCounts> {
        self.0.as_ref().map(|on| on.counts.read())
    }

    /// Starts the span of a request: a child of the client's, when it sent one.
    pub fn server(&self, request: &ServerRequest<'_>) -> ServerSpan {
        let Some(on) = &self.0 else { return ServerSpan(None) };
        let method = method_name(request.method);
        let named = name_for(method);
        let name = match request.route {
            Some(route) => format!("{named} {route}").into(),
            None => Cow::Borrowed(named),
        };
        let parent = w3c::parent(request.headers);
        let mut span = Live::start(on, name, SpanKind::Server, &parent);
        span.record(|span| {
            span.set_attribute(KeyValue::new("http.request.method", method));
            span.set_attribute(KeyValue::new("url.scheme", request.scheme));
            span.set_attribute(KeyValue::new("url.path", shortened(request.uri.path())));
            span.set_attribute(KeyValue::new("network.protocol.version", version_name(request.version)));
            if let Some(route) = request.route {
                span.set_attribute(KeyValue::new("http.route", route));
            }
        });
        ServerSpan(Some(span))
    }
}

/// A request, from its arrival to the last byte of its answer.
pub struct ServerSpan(Option<Box<Live>>);

impl ServerSpan {
    /// Starts the span of choosing a replica.
    pub fn route(&self) -> RouteSpan {
        RouteSpan(self.0.as_ref().map(|parent| parent.child("route".into(), SpanKind::Internal)))
    }

    /// Starts the span of a try on an engine. Drop it before this one.
    pub fn engine(&self, call: &EngineCall<'_>) -> EngineSpan {
        let Some(parent) = &self.0 else { return EngineSpan(None) };
        let method = method_name(call.method);
        let name = match (call.inference.map(Inference::operation), call.model) {
            (Some(operation), Some(model)) => format!("{operation} {model}").into(),
            (operation, _) => Cow::Borrowed(operation.unwrap_or(name_for(method))),
        };
        let mut span = parent.child(name, SpanKind::Client);
        span.record(|span| describe(span, call, method));
        EngineSpan(Some(span))
    }

    /// The status that the client is sent.
    pub fn status(&mut self, status: StatusCode) {
        if let Some(span) = &mut self.0 {
            span.status = Some(status);
        }
    }

    /// It ended badly; `kind` is a name of few values. Of several names the first counts, before
    /// a status.
    pub fn fail(&mut self, kind: &'static str) {
        if let Some(span) = &mut self.0 {
            span.fail(kind);
        }
    }

    /// The trace's id, to find it from a log line.
    pub fn trace_id(&self) -> Option<String> {
        self.0.as_ref().map(|span| span.span.span_context().trace_id().to_string())
    }
}

/// Choosing a replica.
pub struct RouteSpan(Option<Box<Live>>);

impl RouteSpan {
    /// Records what the tree said and how far its news from peers is behind, how many candidates there were,
    /// and the votes of the best of them, where they are known.
    pub fn considered(
        &mut self,
        lookup: &'static str,
        lag: Duration,
        total: usize,
        candidates: &[Considered],
    ) {
        let Some(span) = &mut self.0 else { return };
        span.record(|span| {
            span.set_attribute(KeyValue::new("grapevine.lookup", lookup));
            span.set_attribute(KeyValue::new("grapevine.tree_lag_seconds", lag.as_secs_f64()));
            span.set_attribute(KeyValue::new("grapevine.candidates", total as i64));
            if !candidates.is_empty() {
                let votes = candidates.iter().map(|candidate| votes(candidate).into()).collect();
                span.set_attribute(KeyValue::new("grapevine.votes", Value::Array(Array::String(votes))));
            }
        });
    }

    /// Records what was decided, for the replica called `replica`, and ends the span.
    pub fn decided(mut self, decision: &Decision, replica: &str) {
        let Some(span) = &mut self.0 else { return };
        span.record(|span| {
            span.set_attribute(KeyValue::new("grapevine.replica", replica.to_owned()));
            span.set_attribute(KeyValue::new("grapevine.reason", decision.reason.name()));
            let mut number =
                |name: &'static str, n: u32| span.set_attribute(KeyValue::new(name, i64::from(n)));
            number("grapevine.prompt_tokens", decision.prompt_tokens);
            number("grapevine.matched_tokens", decision.matched_tokens);
            number("grapevine.best_matched_tokens", decision.best_matched_tokens);
            number("grapevine.tied", decision.tied);
            if let Some(teacher) = decision.teacher {
                let teacher: Value = match teacher {
                    Teacher::Own => "own".into(),
                    Teacher::Peer(router) => format!("{router:?}").into(),
                };
                span.set_attribute(KeyValue::new("grapevine.teacher", teacher));
            }
            if let Some(guarded) = decision.guarded {
                span.set_attribute(KeyValue::new("grapevine.guarded", format!("{guarded:?}")));
            }
        });
    }

    /// Nothing could be decided; `kind` is a name of few values. Ends the span.
    pub fn fail(mut self, kind: &'static str) {
        if let Some(span) = &mut self.0 {
            span.fail(kind);
        }
    }
}

/// One try on an engine, from the call to the end of its body.
pub struct EngineSpan(Option<Box<Live>>);

impl EngineSpan {
    /// Makes this span the parent of what the engine does. With export off the client's headers,
    /// which `headers` has by now, stay as they are.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some(span) = &self.0 {
            w3c::inject(span.span.span_context(), headers);
        }
    }

    /// The engine's status.
    pub fn status(&mut self, status: StatusCode) {
        if let Some(span) = &mut self.0 {
            span.status = Some(status);
        }
    }

    /// Whether what is recorded goes anywhere.
    pub fn is_recording(&self) -> bool {
        self.0.as_ref().is_some_and(|span| span.span.is_recording())
    }

    /// The first event of a stream is here.
    pub fn first_chunk(&mut self) {
        let Some(span) = &mut self.0 else { return };
        let seconds = span.started.elapsed().as_secs_f64();
        span.record(|span| {
            span.set_attribute(KeyValue::new("gen_ai.response.time_to_first_chunk", seconds));
        });
    }

    /// What the engine says it used, in tokens.
    pub fn usage(&mut self, input: Option<u64>, output: Option<u64>, cached: Option<u64>) {
        let Some(span) = &mut self.0 else { return };
        span.record(|span| {
            for (name, tokens) in [
                ("gen_ai.usage.input_tokens", input),
                ("gen_ai.usage.output_tokens", output),
                ("gen_ai.usage.cache_read.input_tokens", cached),
            ] {
                if let Some(tokens) = tokens {
                    let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
                    span.set_attribute(KeyValue::new(name, tokens));
                }
            }
        });
    }

    /// Why the engine stopped, for each choice; nothing where it did not say.
    pub fn finished(&mut self, reasons: &[&'static str]) {
        let Some(span) = self.0.as_mut().filter(|_| !reasons.is_empty()) else { return };
        span.record(|span| {
            let reasons = reasons.iter().map(|reason| (*reason).into()).collect();
            let reasons = Value::Array(Array::String(reasons));
            span.set_attribute(KeyValue::new("gen_ai.response.finish_reasons", reasons));
        });
    }

    /// It ended badly; `kind` is a name of few values. Of several names the first counts, before
    /// a status.
    pub fn fail(&mut self, kind: &'static str) {
        if let Some(span) = &mut self.0 {
            span.fail(kind);
        }
    }
}

/// A span that was started. Dropping it ends it.
struct Live {
    span: Span,
    on: Arc<On>,
    started: Instant,
    /// Written at the end: the SDK would keep both of two values.
    status: Option<StatusCode>,
    /// The lowest status that is this span's error.
    bad_from: StatusCode,
    /// The first error's name, which says more than a status.
    error: Option<&'static str>,
}

impl Live {
    fn start(on: &Arc<On>, name: Cow<'static, str>, kind: SpanKind, parent: &Context) -> Box<Self> {
        let builder = SpanBuilder::from_name(name).with_kind(kind);
        // What a client did wrong is not its server's error.
        let bad_from = match builder.span_kind {
            Some(SpanKind::Server) => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        let span = on.tracer.build_with_context(builder, parent);
        let (on, started) = (Arc::clone(on), Instant::now());
        Box::new(Self { span, on, started, status: None, bad_from, error: None })
    }

    fn child(&self, name: Cow<'static, str>, kind: SpanKind) -> Box<Self> {
        let parent = Context::new().with_remote_span_context(self.span.span_context().clone());
        Self::start(&self.on, name, kind, &parent)
    }

    /// Not called for a span that was not sampled: no attribute is made in vain.
    fn record(&mut self, attributes: impl FnOnce(&mut Span)) {
        if self.span.is_recording() {
            attributes(&mut self.span);
        }
    }

    fn fail(&mut self, kind: &'static str) {
        self.error.get_or_insert(kind);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Self { span, status, bad_from, error, .. } = self;
        if !span.is_recording() {
            return;
        }
        if let Some(status) = *status {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        }
        let bad = status.filter(|status| status >= bad_from);
        let kind = error.map(Value::from).or_else(|| bad.map(|status| status.as_str().to_owned().into()));
        if let Some(kind) = kind {
            span.set_attribute(KeyValue::new("error.type", kind));
            let clients_fault = status.is_some_and(|s| s.is_client_error() && s < *bad_from);
            if !clients_fault {
                span.set_status(Status::error(""));
            }
        }
    }
}

/// A candidate in one line: name, what it holds, its votes and their sum, in tokens.
fn votes(candidate: &Considered) -> String {
    let Votes { prefix, queue, inflight, kv, home, spread } = candidate.votes;
    let (name, matched, total) = (&candidate.replica.name, candidate.matched_tokens, candidate.votes.total());
    format!(
        "{name} matched={matched} prefix={prefix:.0} queue={queue:.0} inflight={inflight:.0} kv={kv:.0} \
         home={home:.0} spread={spread:.0} total={total:.0}"
    )
}

fn describe(span: &mut Span, call: &EngineCall<'_>, method: &'static str) {
    span.set_attribute(KeyValue::new("http.request.method", method));
    span.set_attribute(KeyValue::new("grapevine.replica", call.replica.to_owned()));
    let base: Uri = call.url.parse().unwrap_or_default();
    if let Some(host) = base.host() {
        span.set_attribute(KeyValue::new("server.address", host.to_owned()));
    }
    let usual = if base.scheme_str() == Some("https") { 443 } else { 80 };
    span.set_attribute(KeyValue::new("server.port", i64::from(base.port_u16().unwrap_or(usual))));
    let Some(asked) = call.inference else { return };
    span.set_attribute(KeyValue::new("gen_ai.operation.name", asked.operation()));
    span.set_attribute(KeyValue::new("gen_ai.provider.name", asked.provider()));
    if call.stream {
        span.set_attribute(KeyValue::new("gen_ai.request.stream", true));
    }
    if let Some(model) = call.model {
        span.set_attribute(KeyValue::new("gen_ai.request.model", model.to_owned()));
    }
}

/// What a span with this method is called after.
fn name_for(method: &'static str) -> &'static str {
    if method == "_OTHER" { "HTTP" } else { method }
}

fn version_name(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}

fn shortened(path: &str) -> String {
    cut(path, MAX_PATH).to_owned()
}
