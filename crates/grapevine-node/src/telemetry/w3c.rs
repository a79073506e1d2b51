//! W3C trace context in HTTP headers. Baggage is not here: it passes to the engine as any other
//! header does.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry::Context;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::SpanContext;
use opentelemetry_sdk::propagation::TraceContextPropagator;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The client's two headers.
struct Carrier<'a> {
    parent: &'a str,
    state: Cow<'a, str>,
}

impl Extractor for Carrier<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => Some(self.parent),
            "tracestate" => Some(&self.state),
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// The client's span, as a context to start spans in. Without a valid `traceparent`, and with more
/// than one, a new trace starts.
pub(super) fn parent(headers: &HeaderMap) -> Context {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(Ok(parent)), None) = (parents.next().map(HeaderValue::to_str), parents.next()) else {
        return Context::new();
    };
    // The list may be spread over several headers.
    let mut states = headers.get_all(TRACESTATE).iter().filter_map(|value| value.to_str().ok());
    let mut state = Cow::Borrowed(states.next().unwrap_or_default());
    for more in states {
        state.to_mut().push(',');
        state.to_mut().push_str(more);
    }
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Carrier { parent, state })
}

/// Makes `span` the parent of what the receiver of `headers` does.
pub(super) fn inject(span: &SpanContext, headers: &mut HeaderMap) {
    if !span.is_valid() {
        return;
    }
    let sampled = u8::from(span.is_sampled());
    let parent = format!("00-{}-{}-{sampled:02x}", span.trace_id(), span.span_id());
    if let Ok(parent) = HeaderValue::try_from(parent) {
        headers.insert(TRACEPARENT, parent);
    }
    let state = span.trace_state().header();
    match HeaderValue::try_from(state) {
        Ok(state) if !state.is_empty() => {
            headers.insert(TRACESTATE, state);
        }
        // What is there belongs to a trace that does not go on.
        _ => {
            headers.remove(TRACESTATE);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TraceContextExt;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_context_goes_through_unchanged() {
        let parent =
            parent(&headers(&[("traceparent", PARENT), ("tracestate", "a=1,b=2"), ("tracestate", "c=3")]));
        let mut out = headers(&[("baggage", "x=y")]);
        inject(parent.span().span_context(), &mut out);
        let expected = headers(&[("baggage", "x=y"), ("traceparent", PARENT), ("tracestate", "a=1,b=2,c=3")]);
        assert_eq!(out, expected);
    }

    #[test]
    fn bad_parents_are_none() {
        for bad in [
            &[][..],
            &[("traceparent", "")],
            &[("traceparent", "00-0-0-0")],
            &[("traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01")],
            &[("traceparent", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")],
            &[("traceparent", PARENT), ("traceparent", PARENT)],
            &[("tracestate", "a=1")],
        ] {
            assert!(!parent(&headers(bad)).has_active_span(), "{bad:?}");
        }
    }

    #[test]
    fn a_state_of_another_trace_goes() {
        let parent = parent(&headers(&[("traceparent", PARENT)]));
        let mut out = headers(&[("traceparent", "x"), ("tracestate", "old=1"), ("tracestate", "old=2")]);
        inject(parent.span().span_context(), &mut out);
        assert_eq!(out, headers(&[("traceparent", PARENT)]));
    }
}
