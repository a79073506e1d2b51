//! What the router itself answers when a request cannot be relayed.

use grapevine_tree::Api;
use http::{HeaderValue, StatusCode, header};

/// Header that tells a router's error from an engine's.
pub const ERROR_HEADER: &str = "x-grapevine-error";

/// Seconds a client is told to wait: ejections and probes work at this scale, and rates are per second.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The request.
    Client,
    /// This router.
    Router,
    /// The engine or the way to it.
    Engine,
}

/// Whether another replica may be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would not help, or might run the request twice.
    Never,
    /// The engine accepted nothing, so another may.
    OtherReplica,
}

/// Why the router answers instead of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RouterError {
    /// A path that administers engines, or hides where it leads.
    #[error(
        "this path administers an engine, shows the metrics of one alone, or hides where it leads: it is closed on \
         the public port (the router's metrics are on GRAPEVINE_ADMIN_LISTEN)"
    )]
    AdminPath,
    /// A request target that is no path.
    #[error("the request target is not a path")]
    BadTarget,
    /// An HTTP/1.1 request without `Host`, or several of them: who is meant is unclear (RFC 9112, 3.2).
    #[error("the request needs one Host header")]
    BadHost,
    /// The body is longer than `GRAPEVINE_BODY_LIMIT`.
    #[error("the request body is larger than the limit set by GRAPEVINE_BODY_LIMIT")]
    BodyTooLarge,
    /// The client went away or broke the framing while it sent the body.
    #[error("the request body ended early")]
    BodyBroken,
    /// The client stopped sending its body.
    #[error("nothing of the request body came within GRAPEVINE_CLIENT_TIMEOUT")]
    BodyTimeout,
    /// Clients need a key here, and this one has none or a wrong one.
    #[error("a valid API key is needed: send it as `Authorization: Bearer` or `x-api-key`")]
    Unauthorized,
    /// The client has sent more requests than its key allows.
    #[error("the rate limit of this API key is reached; try again later")]
    RateLimited,
    /// Limits of this router or of every replica are reached, and nobody may wait.
    #[error("every slot is taken; try again later")]
    Overloaded,
    /// It waited for a slot as long as `GRAPEVINE_QUEUE_TIMEOUT` says.
    #[error("no slot became free within GRAPEVINE_QUEUE_TIMEOUT; try again later")]
    QueueTimeout,
    /// The operating system gives this router no more sockets.
    #[error("this router has no sockets left; try again later")]
    NoSockets,
    /// No replica can be reached.
    #[error("no replica can be reached")]
    NoReplica,
    /// No replica serves the model that the request names.
    #[error("the model does not exist")]
    ModelNotFound,
    /// There is no replica, or all of them drain.
    #[error("no replica is known yet; try again later")]
    EmptyFleet,
    /// The engine took the request and closed the connection without an answer.
    #[error("the engine closed the connection without an answer")]
    EngineClosed,
    /// The engine took the request and did not begin to answer in time.
    #[error(
        "the engine did not begin to answer within GRAPEVINE_FIRST_BYTE_TIMEOUT or its limit for streams"
    )]
    EngineTimeout,
    /// The router's drain ended before the engine answered.
    #[error("this router is shutting down")]
    ShuttingDown,
}

/// Everything that follows from an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable machine-readable code.
    pub code: &'static str,
    /// Whose fault.
    pub origin: Origin,
    /// Whether another replica may be tried.
    pub retry: Retry,
}

impl RouterError {
    /// All errors, for metrics that must exist before they happen.
    pub const ALL: [Self; 17] = [
        Self::AdminPath,
        Self::BadTarget,
        Self::BadHost,
        Self::BodyTooLarge,
        Self::BodyBroken,
        Self::BodyTimeout,
        Self::Unauthorized,
        Self::RateLimited,
        Self::Overloaded,
        Self::QueueTimeout,
        Self::NoSockets,
        Self::NoReplica,
        Self::ModelNotFound,
        Self::EmptyFleet,
        Self::EngineClosed,
        Self::EngineTimeout,
        Self::ShuttingDown,
    ];

    /// The one place that maps errors to statuses and codes.
    pub const fn facts(self) -> Facts {
        use Origin::{Client, Engine, Router};
        let (status, code, origin, retry) = match self {
            Self::AdminPath => (StatusCode::FORBIDDEN, "admin_path", Client, Retry::Never),
            Self::BadTarget => (StatusCode::BAD_REQUEST, "bad_target", Client, Retry::Never),
            Self::BadHost => (StatusCode::BAD_REQUEST, "bad_host", Client, Retry::Never),
            Self::BodyTooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", Client, Retry::Never),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_broken", Client, Retry::Never),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout", Client, Retry::Never),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "invalid_api_key", Client, Retry::Never),
            Self::RateLimited => (StatusCode::TOO_MANY_REQUESTS, "rate_limited", Client, Retry::Never),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, "overloaded", Router, Retry::Never),
            Self::QueueTimeout => (StatusCode::SERVICE_UNAVAILABLE, "queue_timeout", Router, Retry::Never),
            Self::NoSockets => (StatusCode::SERVICE_UNAVAILABLE, "no_sockets", Router, Retry::Never),
            Self::NoReplica => (StatusCode::SERVICE_UNAVAILABLE, "no_replica", Engine, Retry::OtherReplica),
            Self::ModelNotFound => (StatusCode::NOT_FOUND, "model_not_found", Client, Retry::Never),
            Self::EmptyFleet => (StatusCode::SERVICE_UNAVAILABLE, "empty_fleet", Router, Retry::Never),
            Self::EngineClosed => (StatusCode::BAD_GATEWAY, "engine_closed", Engine, Retry::Never),
            Self::EngineTimeout => (StatusCode::GATEWAY_TIMEOUT, "engine_timeout", Engine, Retry::Never),
            Self::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down", Router, Retry::Never),
        };
        Facts { status, code, origin, retry }
    }

    /// The answer, in the shape that clients of `api` expect.
    pub fn response(self, api: Api) -> axum::response::Response {
        let facts = self.facts();
        let mut response = axum::response::Response::new(axum::body::Body::from(self.body(api)));
        *response.status_mut() = facts.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ERROR_HEADER, HeaderValue::from_static(facts.code));
        if matches!(facts.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if facts.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    fn body(self, api: Api) -> String {
        error_body(self.facts().status, self.facts().code, &self.to_string(), api)
    }
}

/// An error, and what its answer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The error.
    pub error: RouterError,
    /// The model that the request names.
    pub model: Option<String>,
}

impl From<RouterError> for Refused {
    fn from(error: RouterError) -> Self {
        Self { error, model: None }
    }
}

impl Refused {
    /// The answer, in the shape that clients of `api` expect. An unknown model gets what OpenAI's or
    /// Anthropic's API says.
    pub fn response(self, api: Api) -> axum::response::Response {
        let mut response = self.error.response(api);
        if let Some(body) = self.body_with_model(api) {
            *response.body_mut() = axum::body::Body::from(body);
        }
        response
    }

    /// A body that names the model, for the errors that are about it.
    fn body_with_model(&self, api: Api) -> Option<String> {
        let (facts, model) = (self.error.facts(), self.model.as_ref()?);
        match self.error {
            RouterError::ModelNotFound => Some(unknown_model(model, api)),
            RouterError::NoReplica => {
                Some(error_body(facts.status, facts.code, &unreached_model(model), api))
            }
            _ => None,
        }
    }

    /// Its code, and the same in words that name the model.
    pub fn text(&self) -> String {
        let code = self.error.facts().code;
        match (self.error, &self.model) {
            (RouterError::ModelNotFound, Some(model)) => format!("{code}: no replica serves `{model}`"),
            (RouterError::NoReplica, Some(model)) => format!("{code}: {}", unreached_model(model)),
            (error, _) => format!("{code}: {error}"),
        }
    }
}

fn unreached_model(model: &str) -> String {
    format!("no replica that may serve `{model}` can be reached")
}

fn unknown_model(model: &str, api: Api) -> String {
    let body = match api {
        Api::Messages => serde_json::json!({
            "type": "error",
            "error": { "type": "not_found_error", "message": format!("model: {model}") },
        }),
        _ => serde_json::json!({
            "error": {
                "message": format!("The model `{model}` does not exist or you do not have access to it."),
                "type": "invalid_request_error",
                "param": null,
                "code": RouterError::ModelNotFound.facts().code,
            },
        }),
    };
    body.to_string()
}

/// An error object as clients of `api` expect it.
pub fn error_body(status: StatusCode, code: &str, message: &str, api: Api) -> String {
    let body = match api {
        Api::Messages => serde_json::json!({
            "type": "error",
            "error": { "type": anthropic_type(status), "message": message, "code": code },
        }),
        _ => serde_json::json!({
            "error": { "message": message, "type": "router_error", "param": null, "code": code },
        }),
    };
    body.to_string()
}

/// Anthropic's error types, which its SDKs map by.
fn anthropic_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        StatusCode::PAYLOAD_TOO_LARGE => "request_too_large",
        StatusCode::SERVICE_UNAVAILABLE => "overloaded_error",
        s if s.is_client_error() => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_429_and_503_say_when_to_come_back() {
        let mut codes: Vec<_> = RouterError::ALL.iter().map(|e| e.facts().code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), RouterError::ALL.len());
        for error in RouterError::ALL {
            let response = error.response(Api::Chat);
            assert_eq!(response.headers()[ERROR_HEADER], error.facts().code);
            let later = matches!(error.facts().status.as_u16(), 429 | 503);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), later);
        }
    }

    #[test]
    fn operators_find_every_code_in_their_table() {
        let table = include_str!("../../../docs/operations.md");
        for error in RouterError::ALL {
            let facts = error.facts();
            let row = format!("| {} | `{}` |", facts.status.as_u16(), facts.code);
            assert!(table.contains(&row), "no row {row}");
        }
    }

    #[test]
    fn bodies_have_the_shape_of_their_api() {
        let openai: serde_json::Value =
            serde_json::from_str(&RouterError::NoReplica.body(Api::Chat)).unwrap();
        assert_eq!(openai["error"]["type"], "router_error");
        assert_eq!(openai["error"]["code"], "no_replica");
        let anthropic: serde_json::Value =
            serde_json::from_str(&RouterError::NoReplica.body(Api::Messages)).unwrap();
        assert_eq!(anthropic["type"], "error");
        assert_eq!(anthropic["error"]["type"], "overloaded_error");
    }

    #[test]
    fn errors_about_a_model_name_it() {
        let refused = |error| Refused { error, model: Some("m-1".to_owned()) };
        for (error, said) in [
            (RouterError::NoReplica, "no replica that may serve `m-1` can be reached"),
            (RouterError::ModelNotFound, "The model `m-1` does not exist"),
        ] {
            let body = refused(error).body_with_model(Api::Chat).unwrap();
            assert!(body.contains(said) && body.contains(error.facts().code), "{body}");
            assert!(refused(error).text().contains("`m-1`"));
        }
        assert_eq!(refused(RouterError::Overloaded).body_with_model(Api::Chat), None);
        assert_eq!(Refused::from(RouterError::NoReplica).body_with_model(Api::Chat), None);
    }
}
