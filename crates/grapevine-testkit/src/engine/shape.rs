//! The JSON of answers, field for field as vLLM 0.32 writes them.

use bytes::Bytes;
use serde_json::Value;

use super::request::{Api, Generation};
use super::sequence::Prefilled;
use super::state::Core;
use super::text::Token;

const FINGERPRINT: &str = r#""system_fingerprint":"vllm-0.32.0-grapevine""#;

/// Writes one request's answer or events.
pub(crate) struct Shape {
    api: Api,
    /// `"id":…,"object":…,"created":…,"model":…` of an event.
    event_head: String,
    /// The same of a whole answer.
    answer_head: String,
    prompt_tokens: u64,
    details: bool,
    include_usage: bool,
    continuous_usage: bool,
}

impl Shape {
    pub(crate) fn new(core: &Core, request: &Generation, request_id: Option<&str>) -> Self {
        let (prefix, event, answer) = match request.api {
            Api::Chat => ("chatcmpl", "chat.completion.chunk", "chat.completion"),
            Api::Completions => ("cmpl", "text_completion", "text_completion"),
        };
        let id = match request_id {
            Some(id) => format!("{prefix}-{id}"),
            None => format!("{prefix}-{:016x}", core.next_id()),
        };
        let head = |object: &str| {
            format!(
                r#""id":{},"object":"{object}","created":{},"model":{}"#,
                Value::from(id.as_str()),
                core.started_seconds(),
                Value::from(request.model.as_str()),
            )
        };
        Self {
            api: request.api,
            event_head: head(event),
            answer_head: head(answer),
            prompt_tokens: request.prompt_tokens(),
            details: core.config.prompt_tokens_details,
            include_usage: request.include_usage,
            continuous_usage: request.include_usage && request.continuous_usage,
        }
    }

    /// The first event of a choice: chat only.
    pub(crate) fn role(&self, index: u32) -> Option<Bytes> {
        let choice = format!(
            r#"{{"index":{index},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}}"#
        );
        let tail = r#","prompt_token_ids":null,"prompt_text":null"#;
        (self.api == Api::Chat).then(|| self.event(&choice, &self.running_usage(0), tail))
    }

    /// The prompt given back, for `echo`.
    pub(crate) fn echo(&self, index: u32, prompt: &str) -> Bytes {
        let choice = format!(
            r#"{{"index":{index},"text":{},"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#,
            Value::from(prompt)
        );
        self.event(&choice, &self.running_usage(0), "")
    }

    /// A token that is not the last; `done` tokens are out with it.
    pub(crate) fn token(&self, index: u32, token: Token, done: u32) -> Bytes {
        let choice = match self.api {
            Api::Chat => format!(
                r#"{{"index":{index},"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":null,"token_ids":null}}"#
            ),
            Api::Completions => format!(
                r#"{{"index":{index},"text":"{token}","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#
            ),
        };
        self.event(&choice, &self.running_usage(done), "")
    }

    /// The last token, with the reason.
    pub(crate) fn last_token(&self, index: u32, token: Token, done: u32, finish: &str) -> Bytes {
        let choice = match self.api {
            Api::Chat => format!(
                r#"{{"index":{index},"delta":{{"content":"{token}"}},"logprobs":null,"finish_reason":"{finish}","stop_reason":null,"token_ids":null}}"#
            ),
            Api::Completions => format!(
                r#"{{"index":{index},"text":"{token}","logprobs":null,"finish_reason":"{finish}","stop_reason":null,"prompt_token_ids":null,"token_ids":null}}"#
            ),
        };
        let tail = if self.include_usage { String::new() } else { format!(",{FINGERPRINT}") };
        self.event(&choice, &self.running_usage(done), &tail)
    }

    /// The event after the last token, when usage was asked for.
    pub(crate) fn usage_event(&self, completion_tokens: u64, prefilled: Prefilled) -> Option<Bytes> {
        let created = match self.api {
            Api::Chat => format!(r#","created_cache_tokens":{}"#, prefilled.created_tokens),
            Api::Completions => String::new(),
        };
        let details = match self.details {
            true => format!(
                r#","prompt_tokens_details":{{"cached_tokens":{}{created}}}"#,
                prefilled.cached_tokens
            ),
            false => String::new(),
        };
        let usage = format!(r#","usage":{{{}{details}}}"#, self.token_counts(completion_tokens));
        self.include_usage.then(|| self.event("", &usage, &format!(",{FINGERPRINT}")))
    }

    /// A whole answer with the choices' texts in order.
    pub(crate) fn answer(&self, texts: &[String], finish: &str, tokens: u64, prefilled: Prefilled) -> String {
        let choices: Vec<String> =
            (0u32..).zip(texts).map(|(index, text)| self.choice(index, text, finish)).collect();
        let created = match self.api {
            Api::Chat => prefilled.created_tokens.to_string(),
            Api::Completions => "null".to_owned(),
        };
        let details = match self.details {
            true => format!(
                r#"{{"cached_tokens":{},"created_cache_tokens":{created},"multimodal_tokens":null}}"#,
                prefilled.cached_tokens
            ),
            false => "null".to_owned(),
        };
        let tail = match self.api {
            Api::Chat => r#""prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"#,
            Api::Completions => "",
        };
        format!(
            r#"{{{},"choices":[{}],"service_tier":null,{FINGERPRINT},"usage":{{{},"prompt_tokens_details":{details},"completion_tokens_details":null}},{tail}"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}}"#,
            self.answer_head,
            choices.join(","),
            self.token_counts(tokens),
        )
    }

    fn choice(&self, index: u32, text: &str, finish: &str) -> String {
        let text = Value::from(text);
        match self.api {
            Api::Chat => format!(
                r#"{{"index":{index},"message":{{"role":"assistant","content":{text},"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null}},"logprobs":null,"finish_reason":"{finish}","stop_reason":null,"token_ids":null,"routed_experts":null}}"#
            ),
            Api::Completions => format!(
                r#"{{"index":{index},"text":{text},"logprobs":null,"finish_reason":"{finish}","stop_reason":null,"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}}"#
            ),
        }
    }

    fn event(&self, choice: &str, usage: &str, tail: &str) -> Bytes {
        Bytes::from(format!("data: {{{},\"choices\":[{choice}]{usage}{tail}}}\n\n", self.event_head))
    }

    fn running_usage(&self, done: u32) -> String {
        if !self.continuous_usage {
            return String::new();
        }
        format!(r#","usage":{{{},"completion_tokens_details":null}}"#, self.token_counts(u64::from(done)))
    }

    fn token_counts(&self, completion: u64) -> String {
        let prompt = self.prompt_tokens;
        format!(
            r#""prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{completion}"#,
            prompt + completion
        )
    }
}
