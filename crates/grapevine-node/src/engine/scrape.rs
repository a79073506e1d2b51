//! One look at a replica's metrics over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use tokio::time::timeout;

use super::reading::Reading;
use super::table::{Kind, PATHS};
use crate::bounded::{self, ReadError};

/// Limit of one look, all of its requests together. Longer is of no use: the next look is due.
const LIMIT: Duration = Duration::from_secs(2);

/// Largest body that is read. vLLM's has 66 KB, with eight data-parallel ranks 500 KB.
const MAX_BODY: usize = 2 << 20;

/// Says which format is understood: many exporters also speak OpenMetrics or protobuf.
const ACCEPT: &str = "text/plain;version=0.0.4;q=1,*/*;q=0.1";

/// llama.cpp's own header; its metrics have no start time.
const LLAMA_STARTED: &str = "process-start-time-unix";

/// Why a look showed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScrapeError {
    /// It has no metrics, or does not show them: asking again soon is of no use.
    #[error("no metrics there")]
    Absent,
    /// It did not answer in time, or not at all.
    #[error("no answer")]
    Silent,
}

/// Looks at the metrics of the replica at `url`.
pub async fn scrape(client: &reqwest::Client, url: &str) -> Result<Reading, ScrapeError> {
    timeout(LIMIT, look(client, url)).await.unwrap_or(Err(ScrapeError::Silent))
}

async fn look(client: &reqwest::Client, url: &str) -> Result<Reading, ScrapeError> {
    let mut llama = false;
    for path in PATHS {
        let page = get(client, &format!("{url}{path}")).await?;
        llama |= page.is_llama();
        if let Some(mut reading) = page.reading() {
            if reading.kind == Kind::LlamaCpp {
                reading.cache_tokens = props(client, url).await;
            }
            return Ok(reading);
        }
    }
    // llama.cpp has metrics only if told so, but its properties always.
    let cache_tokens = if llama { props(client, url).await } else { None };
    let reading = Reading { kind: Kind::LlamaCpp, cache_tokens, ..Reading::default() };
    cache_tokens.map(|_| reading).ok_or(ScrapeError::Absent)
}

/// llama.cpp: the context of every slot is a cache of its own.
async fn props(client: &reqwest::Client, url: &str) -> Option<u64> {
    #[derive(Deserialize)]
    struct Props {
        total_slots: u64,
        default_generation_settings: Settings,
    }
    #[derive(Deserialize)]
    struct Settings {
        n_ctx: u64,
    }
    let page = get(client, &format!("{url}/props")).await.ok()?;
    let props: Props = serde_json::from_slice(&page.body).ok()?;
    props.total_slots.checked_mul(props.default_generation_settings.n_ctx).filter(|tokens| *tokens > 0)
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn get(client: &reqwest::Client, url: &str) -> Result<Page, ScrapeError> {
    let asked = client.get(url).header(header::ACCEPT, ACCEPT).send();
    let mut answer = asked.await.map_err(|_| ScrapeError::Silent)?;
    let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
    let body = bounded::read(&mut answer, MAX_BODY).await.map_err(|error| match error {
        ReadError::TooLong => ScrapeError::Absent,
        ReadError::Broken(_) => ScrapeError::Silent,
    })?;
    Ok(Page { status, headers, body })
}

impl Page {
    fn is_llama(&self) -> bool {
        self.headers.get(header::SERVER).is_some_and(|server| server == "llama.cpp")
    }

    fn reading(&self) -> Option<Reading> {
        if !self.status.is_success() {
            return None;
        }
        let mut reading = Reading::of_text(&self.body)?;
        let header = self.headers.get(LLAMA_STARTED).and_then(|at| at.to_str().ok()?.parse().ok());
        reading.started = reading.started.or(header);
        Some(reading)
    }
}
