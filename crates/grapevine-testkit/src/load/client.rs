//! One request to a router, and what is read from its answer.

use std::sync::Once;
use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{Client, Response, header};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::report::Outcome;
use super::sse::Events;

/// Bytes of an error's body that are kept for the report.
const ERROR_TEXT_BYTES: usize = 200;

/// Largest whole answer that is read for its usage.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Below the 5 s after which engines and routers close idle connections.
const POOL_IDLE: Duration = Duration::from_secs(4);

/// The header in which a router names the replica it chose.
const REPLICA_HEADER: &str = "x-grapevine-replica";

/// The HTTP client could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up the HTTP client")]
pub struct ClientError(#[from] reqwest::Error);

/// What [`http_client`] makes, for those that must name it.
pub type HttpClient = Client;

/// A client that goes straight to loopback and keeps up to `connections` idle ones for each host.
pub fn http_client(connections: usize, timeout: Duration) -> Result<Client, ClientError> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that the process has chosen its provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let client = Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .pool_max_idle_per_host(connections)
        .pool_idle_timeout(POOL_IDLE)
        .tcp_nodelay(true)
        .timeout(timeout)
        .build()?;
    Ok(client)
}

/// Token counts of an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct Usage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u64>,
}

/// Why there is no whole answer, in words.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nobody took the connection: somebody else can be asked.
    Unreached(String),
    /// Anything after that.
    Broken(String),
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Broken(text)
    }
}

impl Failure {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Unreached(text) | Self::Broken(text) => text,
        }
    }
}

/// Sends `body` and reads the answer to its end into `outcome`.
pub(crate) async fn exchange(
    request: reqwest::RequestBuilder,
    stream: bool,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let sent = Instant::now();
    let result = read_answer(request, stream, sent, outcome).await;
    outcome.latency = sent.elapsed();
    result
}

async fn read_answer(
    request: reqwest::RequestBuilder,
    stream: bool,
    sent: Instant,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let response = request.send().await.map_err(|error| match error.is_connect() {
        true => Failure::Unreached(describe(&error)),
        false => Failure::Broken(describe(&error)),
    })?;
    outcome.status = Some(response.status().as_u16());
    outcome.replica = text_header(&response, REPLICA_HEADER);
    if !response.status().is_success() {
        return Err(refusal(response).await.into());
    }
    match stream {
        true => read_stream(response, sent, outcome).await?,
        false => read_whole(response, sent, outcome).await?,
    }
    Ok(())
}

async fn refusal(response: Response) -> String {
    let status = response.status();
    let text = response.text().await.unwrap_or_default();
    let text: String = text.chars().take(ERROR_TEXT_BYTES).collect();
    format!("{status}: {text}")
}

async fn read_whole(response: Response, sent: Instant, outcome: &mut Outcome) -> Result<(), String> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        outcome.first.get_or_insert_with(|| sent.elapsed());
        body.extend_from_slice(&chunk.map_err(|error| describe(&error))?);
        if body.len() > MAX_ANSWER_BYTES {
            return Err("answer too large".to_owned());
        }
    }
    #[derive(Deserialize)]
    struct Answer {
        usage: Option<Usage>,
    }
    let answer: Answer = serde_json::from_slice(&body).map_err(|error| format!("not an answer: {error}"))?;
    note_usage(outcome, answer.usage);
    Ok(())
}

async fn read_stream(response: Response, sent: Instant, outcome: &mut Outcome) -> Result<(), String> {
    let mut events = Events::default();
    let mut chunks = response.bytes_stream();
    let mut done = false;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| describe(&error))?;
        for data in events.push(&chunk).map_err(str::to_owned)? {
            outcome.first.get_or_insert_with(|| sent.elapsed());
            outcome.events += 1;
            done |= data == "[DONE]";
            note_event(&data, outcome)?;
        }
    }
    if done { Ok(()) } else { Err("stream ended without [DONE]".to_owned()) }
}

/// Looks into an event only when it has something to say: most are tokens.
fn note_event(data: &str, outcome: &mut Outcome) -> Result<(), String> {
    if data.starts_with("{\"error\"") {
        return Err(format!("error event: {}", data.chars().take(ERROR_TEXT_BYTES).collect::<String>()));
    }
    if data.contains("\"usage\":{") {
        let event: Value = serde_json::from_str(data).map_err(|error| format!("bad event: {error}"))?;
        let usage = event.get("usage").cloned().and_then(|usage| serde_json::from_value(usage).ok());
        note_usage(outcome, usage);
    }
    Ok(())
}

fn note_usage(outcome: &mut Outcome, usage: Option<Usage>) {
    let Some(usage) = usage else { return };
    outcome.prompt_tokens = usage.prompt_tokens;
    outcome.completion_tokens = usage.completion_tokens;
    outcome.cached_tokens = usage.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or(0);
}

fn text_header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// An error with its causes.
pub fn describe(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The request that carries `body` to `url`.
pub(crate) fn post(client: &Client, url: &str, key: Option<&str>, body: Vec<u8>) -> reqwest::RequestBuilder {
    let request = client.post(url).header(header::CONTENT_TYPE, "application/json").body(body);
    match key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}
