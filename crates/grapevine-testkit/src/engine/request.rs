//! Reading a generation request, and refusing it as vLLM does.

use std::borrow::Cow;

use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

use super::config::EngineConfig;
use super::error::ApiError;
use super::prompt::{Message, render_chat, render_prompts};
use super::text::tokens_of;

/// Sequences (prompts times `n`) in one request.
const MAX_SEQUENCES: usize = 1024;

/// The two generation endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completions,
}

/// A request that the engine accepts.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) api: Api,
    pub(crate) model: String,
    /// Rendered prompts, at least one, none empty.
    pub(crate) prompts: Vec<Vec<u8>>,
    /// Choices for each prompt.
    pub(crate) n: u32,
    /// Output tokens of each choice.
    pub(crate) tokens: u32,
    /// `length` when the client set the limit, else `stop`.
    pub(crate) finish: &'static str,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) echo: bool,
    /// Separates caches of equal prompts; empty for none.
    pub(crate) salt: String,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(default)]
    prompt: Value,
    #[serde(default)]
    tools: Value,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    max_tokens: Option<i64>,
    #[serde(default)]
    max_completion_tokens: Option<i64>,
    #[serde(default)]
    n: Option<i64>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    echo: Option<bool>,
    #[serde(borrow, default)]
    cache_salt: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    #[serde(default)]
    continuous_usage_stats: Option<bool>,
}

impl Generation {
    /// Reads a request to `api`; one for any model, if so wished.
    pub(crate) fn parse(
        config: &EngineConfig,
        api: Api,
        headers: &HeaderMap,
        body: &[u8],
        any_model: bool,
    ) -> Result<Self, ApiError> {
        check_content_type(headers)?;
        let body = read_body(body)?;
        body.check()?;
        let model = body.model(config, any_model)?;
        let (tokens, finish) = body.output(config)?;
        let prompts = body.prompts(api)?;
        let n = body.choices(prompts.len())?;
        check_length(config, &prompts)?;
        let stream = body.stream.unwrap_or(false);
        let options = body.stream_options.as_ref();
        Ok(Self {
            api,
            model,
            prompts,
            n,
            tokens,
            finish,
            stream,
            include_usage: options.and_then(|o| o.include_usage).unwrap_or(false),
            continuous_usage: options.and_then(|o| o.continuous_usage_stats).unwrap_or(false),
            echo: body.echo.unwrap_or(false) && api == Api::Completions,
            salt: body.cache_salt.map(Cow::into_owned).unwrap_or_default(),
        })
    }

    /// Sequences that it becomes.
    pub(crate) fn sequences(&self) -> usize {
        self.prompts.len() * self.n as usize
    }

    /// Tokens of all prompts, each counted once.
    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.prompts.iter().map(|prompt| tokens_of(prompt.len())).sum()
    }
}

impl Body<'_> {
    fn check(&self) -> Result<(), ApiError> {
        if self.stream_options.is_some() && self.stream != Some(true) {
            let text = "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
            return Err(ApiError::bad_request(text, Some("stream_options")));
        }
        if let Some(t) = self.temperature.filter(|t| *t < 0.0) {
            let text = format!("temperature must be non-negative, got {t}. (parameter=temperature)");
            return Err(ApiError::bad_request(&text, Some("temperature")));
        }
        Ok(())
    }

    fn model(&self, config: &EngineConfig, any: bool) -> Result<String, ApiError> {
        match &self.model {
            None => Ok(config.models.first().cloned().unwrap_or_default()),
            Some(name) if any || config.models.iter().any(|known| known == name) => Ok(name.to_string()),
            Some(name) => Err(ApiError::unknown_model(name, &config.models)),
        }
    }

    fn output(&self, config: &EngineConfig) -> Result<(u32, &'static str), ApiError> {
        let Some(limit) = self.max_completion_tokens.or(self.max_tokens) else {
            return Ok((config.default_max_tokens, "stop"));
        };
        let refuse = |text: String| Err(ApiError::bad_request(&text, Some("max_tokens")));
        if limit < 1 {
            return refuse(format!(
                "max_tokens must be at least 1, got {limit}. (parameter=max_tokens, value={limit})"
            ));
        }
        match u32::try_from(limit) {
            Ok(tokens) if u64::from(tokens) <= config.max_model_tokens => Ok((tokens, "length")),
            _ => refuse(format!(
                "max_tokens={limit} cannot be greater than max_model_len={}. Please request fewer output \
                 tokens. (parameter=max_tokens, value={limit})",
                config.max_model_tokens
            )),
        }
    }

    fn prompts(&self, api: Api) -> Result<Vec<Vec<u8>>, ApiError> {
        match api {
            Api::Chat => match &self.messages {
                None => Err(ApiError::invalid("missing", "body.messages", "Field required")),
                Some(list) if list.is_empty() => Err(ApiError::bad_request(
                    "Cannot apply chat template to an empty conversation. Provide at least one message.",
                    None,
                )),
                Some(list) => Ok(vec![render_chat(list, &self.tools)]),
            },
            Api::Completions => match render_prompts(&self.prompt) {
                Some(list) if !list.is_empty() && list.iter().all(|p| !p.is_empty()) => Ok(list),
                _ => {
                    let text =
                        "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
                    Err(ApiError::bad_request(text, Some("prompt")))
                }
            },
        }
    }

    fn choices(&self, prompts: usize) -> Result<u32, ApiError> {
        let n = self.n.unwrap_or(1);
        if n < 1 {
            return Err(ApiError::bad_request(&format!("n must be at least 1, got {n}."), None));
        }
        match u32::try_from(n) {
            Ok(n) if prompts.saturating_mul(n as usize) <= MAX_SEQUENCES => Ok(n),
            _ => {
                let text = format!("prompts times n must be at most {MAX_SEQUENCES}.");
                Err(ApiError::bad_request(&text, None))
            }
        }
    }
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(ApiError::unsupported_media_type())
    }
}

fn read_body(body: &[u8]) -> Result<Body<'_>, ApiError> {
    if body.is_empty() {
        return Err(ApiError::invalid("missing", "body", "Field required"));
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::detail(StatusCode::BAD_REQUEST, "There was an error parsing the body"))?;
    serde_json::from_str(text).map_err(|error| {
        if error.is_data() {
            ApiError::invalid("value_error", "body", &error.to_string())
        } else {
            ApiError::invalid("json_invalid", &format!("body.{}", error.column()), "JSON decode error")
        }
    })
}

fn check_length(config: &EngineConfig, prompts: &[Vec<u8>]) -> Result<(), ApiError> {
    let longest = prompts.iter().map(|prompt| tokens_of(prompt.len())).max().unwrap_or(0);
    if longest > config.max_model_tokens {
        return Err(ApiError::prompt_too_long(config.max_model_tokens, config.max_model_tokens + 1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn parse(api: Api, body: &str) -> Result<Generation, ApiError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        let config = EngineConfig { max_model_tokens: 100, ..EngineConfig::default() };
        Generation::parse(&config, api, &headers, body.as_bytes(), false)
    }

    fn refusal(api: Api, body: &str) -> (u16, String) {
        let error = parse(api, body).unwrap_err();
        (error.status.as_u16(), error.body)
    }

    #[test]
    fn what_vllm_refuses_is_refused_the_same_way() {
        let chat = |extra: &str| format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{extra}}}"#);
        let cases = [
            (Api::Chat, r#"{"messages": ["#.to_owned(), 400, "json_invalid"),
            (Api::Chat, "[1,2]".to_owned(), 400, "validation error"),
            (Api::Chat, String::new(), 400, "Field required"),
            (Api::Chat, "{}".to_owned(), 400, r#""param":"body.messages""#),
            (Api::Chat, r#"{"messages":[]}"#.to_owned(), 400, "empty conversation"),
            (Api::Chat, chat(r#","model":"nope""#), 404, "NotFoundError"),
            (Api::Chat, chat(r#","max_tokens":0"#), 400, "at least 1, got 0"),
            (Api::Chat, chat(r#","max_tokens":10000000"#), 400, "cannot be greater than max_model_len=100"),
            (Api::Chat, chat(r#","n":0"#), 400, "n must be at least 1, got 0."),
            (Api::Chat, chat(r#","temperature":"hot""#), 400, "validation error"),
            (Api::Chat, chat(r#","stream_options":{"include_usage":true}"#), 400, "Stream options"),
            (Api::Completions, r#"{"prompt":""}"#.to_owned(), 400, "non-empty"),
            (Api::Completions, r#"{"max_tokens":2}"#.to_owned(), 400, "non-empty"),
            (Api::Completions, format!(r#"{{"prompt":"{}"}}"#, "x".repeat(404)), 400, "value=101"),
        ];
        for (api, body, status, says) in cases {
            let (got, text) = refusal(api, &body);
            assert_eq!(got, status, "{body}");
            assert!(text.contains(says), "{body}: {text}");
        }
    }

    #[test]
    fn what_vllm_accepts_is_accepted() {
        let accepted = [
            (Api::Chat, r#"{"messages":[{"role":"wizard","content":"hi"}],"unknown":1}"#),
            (Api::Chat, r#"{"messages":[{"role":"user"}]}"#),
            (Api::Completions, r#"{"prompt":[1,2,3]}"#),
            (Api::Completions, r#"{"prompt":[[1],[2]],"n":2}"#),
        ];
        for (api, body) in accepted {
            assert!(parse(api, body).is_ok(), "{body}");
        }
    }

    #[test]
    fn a_body_that_is_not_utf8_is_the_frameworks_error() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let broken = b"{\"a\":\"\xff\"}";
        let error =
            Generation::parse(&EngineConfig::default(), Api::Chat, &headers, broken, false).unwrap_err();
        assert_eq!(error.body, r#"{"detail":"There was an error parsing the body"}"#);
    }

    #[test]
    fn the_limit_decides_the_finish_reason() {
        let body = r#"{"messages":[{"role":"user","content":"hi"}]"#;
        let stops = parse(Api::Chat, &format!("{body}}}")).unwrap();
        assert_eq!((stops.tokens, stops.finish), (64, "stop"));
        let limited = parse(Api::Chat, &format!(r#"{body},"max_completion_tokens":7}}"#)).unwrap();
        assert_eq!((limited.tokens, limited.finish), (7, "length"));
    }
}
