//! Errors in the shapes that vLLM 0.32 gives them.

use http::StatusCode;
use serde_json::json;

/// What a request was refused with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl ApiError {
    /// A request that is well-formed but makes no sense.
    pub(crate) fn bad_request(message: &str, param: Option<&str>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequestError", message, param)
    }

    /// A request that does not fit the schema.
    pub(crate) fn invalid(kind: &str, place: &str, message: &str) -> Self {
        let text =
            format!("1 validation error:\n  {{'type': '{kind}', 'loc': '{place}', 'msg': '{message}'}}");
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", &text, Some(place))
    }

    pub(crate) fn unsupported_media_type() -> Self {
        let text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed";
        Self::new(StatusCode::BAD_REQUEST, "Bad Request", text, None)
    }

    pub(crate) fn unknown_model(model: &str, known: &[String]) -> Self {
        let text = format!("The model `{model}` does not exist. Valid aliases: {}.", known.join(", "));
        Self::new(StatusCode::NOT_FOUND, "NotFoundError", &text, Some("model"))
    }

    pub(crate) fn prompt_too_long(limit: u64, tokens: u64) -> Self {
        let text = format!(
            "This model's maximum context length is {limit} tokens. However, your prompt contains at least \
             {tokens} input tokens, which exceeds this limit even without any output tokens. Please reduce \
             the length of the input prompt. (parameter=input_tokens, value={tokens})"
        );
        Self::bad_request(&text, Some("input_tokens"))
    }

    /// The queue is full.
    pub(crate) fn busy() -> Self {
        let text = "The engine is currently busy and cannot accept new requests. Please try again later or \
                    on a different instance.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Service Unavailable", text, None)
    }

    /// What a draining engine says to everything new.
    pub(crate) fn draining() -> Self {
        let text = "cannot schedule new futures after shutdown";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", text, None)
    }

    /// What requests in flight get when the engine dies under them.
    pub(crate) fn engine_died() -> Self {
        let text = "EngineCore encountered an issue. See stack trace (above) for the root cause.";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError", text, None)
    }

    /// A fault's status, with the message the real engine has for it.
    pub(crate) fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::SERVICE_UNAVAILABLE => Self::busy(),
            StatusCode::INTERNAL_SERVER_ERROR => Self::draining(),
            other => Self::new(other, other.canonical_reason().unwrap_or("Error"), "fault on demand", None),
        }
    }

    pub(crate) fn unauthorized() -> Self {
        Self { status: StatusCode::UNAUTHORIZED, body: r#"{"error":"Unauthorized"}"#.to_owned() }
    }

    /// The web framework's own errors.
    pub(crate) fn detail(status: StatusCode, detail: &str) -> Self {
        Self { status, body: json!({ "detail": detail }).to_string() }
    }

    fn new(status: StatusCode, kind: &str, message: &str, param: Option<&str>) -> Self {
        // Written by hand for the order of the fields, which clients may have seen.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let body = format!(
            r#"{{"error":{{"message":{},"type":{},"param":{},"code":{}}}}}"#,
            quoted(message),
            quoted(kind),
            param.map_or_else(|| "null".to_owned(), quoted),
            status.as_u16(),
        );
        Self { status, body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_says_what_vllm_says() {
        let error = ApiError::busy();
        assert_eq!(error.body.len(), 188, "the recorded answer's length");
        assert_eq!(error.status, 503);
    }

    #[test]
    fn an_unknown_model_says_what_vllm_says() {
        let error = ApiError::unknown_model("nope", &["tiny".to_owned()]);
        let recorded = r#"{"error":{"message":"The model `nope` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#;
        assert_eq!(error.body, recorded);
    }
}
