//! How long requests take, under the names that the OpenTelemetry conventions have for HTTP and GenAI servers:
//! to its clients a router is both. Series are made when first needed and found by their place in a table.

use std::sync::OnceLock;
use std::time::Duration;

use http::StatusCode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::kind::{Inference, Kind};
use super::outcome::Outcome;

/// Metrics and labels that have names of their own over OTLP: in Prometheus' form, and there.
pub const CONVENTIONS: [(&str, &str); 11] = [
    (HTTP_DURATION, "http.server.request.duration"),
    (DURATION, "gen_ai.server.request.duration"),
    (FIRST_TOKEN, "gen_ai.server.time_to_first_token"),
    (PER_TOKEN, "gen_ai.server.time_per_output_token"),
    (METHOD, "http.request.method"),
    (ROUTE, "http.route"),
    (STATUS, "http.response.status_code"),
    (SCHEME, "url.scheme"),
    (OPERATION, "gen_ai.operation.name"),
    (PROVIDER, "gen_ai.provider.name"),
    (ERROR, "error.type"),
];

const HTTP_DURATION: &str = "http_server_request_duration_seconds";
const DURATION: &str = "gen_ai_server_request_duration_seconds";
const FIRST_TOKEN: &str = "gen_ai_server_time_to_first_token_seconds";
const PER_TOKEN: &str = "gen_ai_server_time_per_output_token_seconds";

const METHOD: &str = "http_request_method";
const ROUTE: &str = "http_route";
/// A number over OTLP.
pub const STATUS: &str = "http_response_status_code";
const SCHEME: &str = "url_scheme";
const OPERATION: &str = "gen_ai_operation_name";
const PROVIDER: &str = "gen_ai_provider_name";
const ERROR: &str = "error_type";

/// Bounds of buckets in seconds, as the conventions want them.
const HTTP_BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const DURATION_BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
const FIRST_TOKEN_BOUNDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
const PER_TOKEN_BOUNDS: [f64; 13] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5];

/// Statuses that are told apart. Another one counts as the first of its hundred, which is what a client has to
/// take it for.
const STATUSES: [u16; 26] = [
    100, 101, 200, 201, 202, 204, 206, 300, 301, 302, 304, 307, 400, 401, 403, 404, 405, 408, 409, 413, 422,
    429, 500, 502, 503, 504,
];

/// See the module.
#[derive(Debug)]
pub struct Times {
    /// `http` or `https`: what clients speak.
    pub scheme: &'static str,
    http: Series,
    duration: Series,
    first_token: Series,
    per_token: Series,
}

impl Times {
    /// Registers all, without a prefix.
    pub fn new(registry: &mut Registry, scheme: &'static str) -> Self {
        let mut series = |name, help, places, make: fn() -> Histogram| {
            let family = Family::new_with_constructor(make);
            registry.register(name, help, Family::clone(&family));
            Series { family, resolved: std::iter::repeat_with(OnceLock::new).take(places).collect() }
        };
        let kinds = Inference::ALL.len();
        let times = Self {
            scheme,
            http: series(
                HTTP_DURATION,
                "Time from a request's head to the end of its answer",
                Kind::PLACES * (STATUSES.len() + 1),
                || Histogram::new(HTTP_BOUNDS),
            ),
            duration: series(
                DURATION,
                "Time of an inference from the request's head to the end of its answer",
                kinds * Outcome::ALL.len(),
                || Histogram::new(DURATION_BOUNDS),
            ),
            first_token: series(FIRST_TOKEN, "Time to the first token of a stream", kinds, || {
                Histogram::new(FIRST_TOKEN_BOUNDS)
            }),
            per_token: series(PER_TOKEN, "Time per token of a stream after the first", kinds, || {
                Histogram::new(PER_TOKEN_BOUNDS)
            }),
        };
        times.prepare(Inference::Chat);
        times
    }

    /// Makes the series of what almost everybody asks for, so that they exist before it happens.
    fn prepare(&self, asked: Inference) {
        self.of_outcome(asked, Outcome::Ok);
        self.first_token.get(asked as usize, || labels(asked));
        self.per_token.get(asked as usize, || labels(asked));
    }

    /// A request ended, with this status if it had an answer.
    pub fn ended(&self, kind: Kind, status: Option<StatusCode>, outcome: Outcome, took: Duration) {
        let status = status_place(status);
        let place = kind.place() * (STATUSES.len() + 1) + status;
        if let Some(http) = self.http.get(place, || http_labels(kind, self.scheme, status)) {
            http.observe(took.as_secs_f64());
        }
        if let Some(duration) = kind.inference.and_then(|asked| self.of_outcome(asked, outcome)) {
            duration.observe(took.as_secs_f64());
        }
    }

    /// The first token of a stream is here.
    pub fn first_token(&self, kind: Kind, after: Duration) {
        let Some(asked) = kind.inference else { return };
        if let Some(first_token) = self.first_token.get(asked as usize, || labels(asked)) {
            first_token.observe(after.as_secs_f64());
        }
    }

    /// A stream has ended, so long after its first token, and has `tokens` by its own account.
    pub fn generated(&self, kind: Kind, tokens: u64, after_first: Duration) {
        let Some(asked) = kind.inference.filter(|_| tokens > 1) else { return };
        if let Some(per_token) = self.per_token.get(asked as usize, || labels(asked)) {
            per_token.observe(after_first.as_secs_f64() / (tokens - 1) as f64);
        }
    }

    fn of_outcome(&self, asked: Inference, outcome: Outcome) -> Option<&Histogram> {
        self.duration.get(asked as usize * Outcome::ALL.len() + outcome as usize, || {
            let error = (outcome != Outcome::Ok).then(|| (ERROR, outcome.name().to_owned()));
            labels(asked).into_iter().chain(error).collect()
        })
    }
}

type Labels = Vec<(&'static str, String)>;

/// One metric and its series, each of which has a place.
#[derive(Debug)]
struct Series {
    family: Family<Labels, Histogram>,
    resolved: Box<[OnceLock<Histogram>]>,
}

impl Series {
    /// The series at `place`.
    fn get(&self, place: usize, labels: impl FnOnce() -> Labels) -> Option<&Histogram> {
        let made = || self.family.get_or_create_owned(&labels());
        self.resolved.get(place).map(|series| series.get_or_init(made))
    }
}

fn labels(asked: Inference) -> Labels {
    vec![(OPERATION, asked.operation().to_owned()), (PROVIDER, asked.provider().to_owned())]
}

fn http_labels(kind: Kind, scheme: &str, status: usize) -> Labels {
    let mut labels = vec![(METHOD, kind.method().to_owned()), (SCHEME, scheme.to_owned())];
    labels.extend(kind.route().map(|route| (ROUTE, route.to_owned())));
    labels.extend(STATUSES.get(status).map(|status| (STATUS, status.to_string())));
    labels
}

/// Where a status is in [`STATUSES`]; past its end without one.
fn status_place(status: Option<StatusCode>) -> usize {
    let Some(status) = status.map(|status| status.as_u16()) else { return STATUSES.len() };
    let place = |status: u16| STATUSES.binary_search(&status).ok();
    place(status).or_else(|| place(status / 100 * 100)).unwrap_or(STATUSES.len())
}

#[cfg(test)]
mod tests {
    use grapevine_tree::Api;
    use http::Method;

    use super::*;
    use crate::metrics::text;

    fn kind(method: &Method, path: &str) -> Kind {
        Kind::of(method, path, Api::of_path(path))
    }

    #[test]
    fn inference_is_counted_under_both_conventions_and_the_rest_under_that_of_http() {
        let mut registry = Registry::default();
        let times = Times::new(&mut registry, "http");
        let (chat, models) = (kind(&Method::POST, "/v1/chat/completions"), kind(&Method::GET, "/v1/models"));
        times.ended(chat, Some(StatusCode::OK), Outcome::Ok, Duration::from_millis(30));
        times.ended(chat, Some(StatusCode::OK), Outcome::EngineCut, Duration::from_millis(30));
        times.ended(models, Some(StatusCode::OK), Outcome::Ok, Duration::from_millis(3));
        times.first_token(chat, Duration::from_millis(7));
        times.generated(chat, 11, Duration::from_millis(200));
        let text = text(&registry);
        for line in [
            r#"gen_ai_server_request_duration_seconds_bucket{gen_ai_operation_name="chat",gen_ai_provider_name="openai",le="0.02"} 0"#,
            r#"gen_ai_server_request_duration_seconds_bucket{gen_ai_operation_name="chat",gen_ai_provider_name="openai",le="0.04"} 1"#,
            r#"gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="openai",error_type="engine_cut"} 1"#,
            r#"gen_ai_server_time_to_first_token_seconds_bucket{gen_ai_operation_name="chat",gen_ai_provider_name="openai",le="0.01"} 1"#,
            r#"gen_ai_server_time_per_output_token_seconds_sum{gen_ai_operation_name="chat",gen_ai_provider_name="openai"} 0.02"#,
            r#"http_server_request_duration_seconds_count{http_request_method="POST",url_scheme="http",http_route="/v1/chat/completions",http_response_status_code="200"} 2"#,
            r#"http_server_request_duration_seconds_count{http_request_method="GET",url_scheme="http",http_route="/v1/models",http_response_status_code="200"} 1"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        assert_eq!(text.matches("gen_ai_server_request_duration_seconds_count").count(), 2, "{text}");
    }

    #[test]
    fn one_token_has_no_time_between_tokens() {
        let mut registry = Registry::default();
        let times = Times::new(&mut registry, "http");
        let chat = kind(&Method::POST, "/v1/chat/completions");
        (0..2).for_each(|tokens| times.generated(chat, tokens, Duration::from_secs(1)));
        let none = r#"time_per_output_token_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="openai"} 0"#;
        assert!(text(&registry).contains(none));
    }

    #[test]
    fn whatever_engines_and_clients_say_there_are_few_series() {
        let mut registry = Registry::default();
        let times = Times::new(&mut registry, "http");
        let made_up = Method::from_bytes(b"BREW").unwrap();
        for status in (100..1_000).map(|status| StatusCode::from_u16(status).ok()).chain([None]) {
            for path in ["/v1/completions", "/a", "/b"] {
                times.ended(kind(&made_up, path), status, Outcome::Ok, Duration::ZERO);
            }
        }
        let text = text(&registry);
        let series = text.matches("http_server_request_duration_seconds_count").count();
        assert_eq!(series, 2 * (STATUSES.len() + 1), "{text}");
        assert!(text.contains(r#"http_response_status_code="500"} 97"#), "501, 505 and so on: {text}");
        assert!(STATUSES.is_sorted());
    }
}
