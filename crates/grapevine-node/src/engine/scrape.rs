//! One look at a replica's metrics over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;
use tokio::time::timeout;

use super::detect::{TELLS, Tell};
use super::kinds::Kind;
use super::reading::Reading;
use super::table::{METRICS_PATHS, Names};
use crate::bounded::{self, ReadError};
use crate::replica::Replica;

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
    #[error("it has no metrics, or does not show them")]
    Absent,
    /// What is there is longer than any engine's metrics.
    #[error("its metrics are longer than {MAX_BODY} bytes")]
    TooLong,
    /// It did not answer in time, or not at all.
    #[error("no answer")]
    Silent,
}

/// What a look showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// What it said of itself.
    pub reading: Reading,
    /// By metrics; else by other pages, which say little and always the same.
    pub measured: bool,
}

/// Looks at the metrics of `replica`.
pub async fn scrape(client: &reqwest::Client, replica: &Replica, names: &Names) -> Result<Look, ScrapeError> {
    timeout(LIMIT, look(client, replica, names)).await.unwrap_or(Err(ScrapeError::Silent))
}

async fn look(client: &reqwest::Client, replica: &Replica, names: &Names) -> Result<Look, ScrapeError> {
    let mut why = ScrapeError::Absent;
    for path in METRICS_PATHS {
        match get(client, replica, path).await.map(|page| page.reading(names)) {
            Ok(Some(mut reading)) => {
                reading.kind = replica.spec.kind.unwrap_or(reading.kind);
                if reading.cache_tokens.is_none() {
                    let said = tells(client, replica, |tell| tell.says_cache() && tell.kind == reading.kind);
                    reading.cache_tokens = said.await.and_then(|(_, tokens)| tokens);
                }
                return Ok(Look { reading, measured: true });
            }
            Ok(None) => {}
            Err(ScrapeError::TooLong) => why = ScrapeError::TooLong,
            Err(error) => return Err(error),
        }
    }
    let wanted = |tell: &Tell| replica.spec.kind.is_none_or(|kind| tell.kind == kind);
    match tells(client, replica, wanted).await {
        Some((kind, cache_tokens)) => {
            Ok(Look { reading: Reading { kind, cache_tokens, ..Reading::default() }, measured: false })
        }
        None => Err(why),
    }
}

/// What the first page that gives a kind away says: the kind, and how much its cache holds if any page of
/// that kind says so.
async fn tells(
    client: &reqwest::Client,
    replica: &Replica,
    wanted: impl Fn(&Tell) -> bool,
) -> Option<(Kind, Option<u64>)> {
    let mut known: Option<Kind> = None;
    let mut last: Option<(&str, Value)> = None;
    for tell in TELLS.iter().filter(|tell| wanted(tell)) {
        if known.is_some_and(|kind| tell.kind != kind || !tell.says_cache()) {
            continue;
        }
        if last.as_ref().is_none_or(|(path, _)| *path != tell.path) {
            let page = get(client, replica, tell.path).await.ok().filter(|page| page.status.is_success());
            let page = page.and_then(|page| serde_json::from_slice(&page.body).ok());
            last = Some((tell.path, page.unwrap_or_default()));
        }
        let Some((_, page)) = &last else { continue };
        if tell.fits(page) {
            known = Some(tell.kind);
            if tell.says_cache() {
                return Some((tell.kind, tell.cache_tokens(page)));
            }
        }
    }
    known.map(|kind| (kind, None))
}

struct Page {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn get(client: &reqwest::Client, replica: &Replica, path: &str) -> Result<Page, ScrapeError> {
    let asked = replica.get(client, path).header(header::ACCEPT, ACCEPT).send();
    let mut answer = asked.await.map_err(|_| ScrapeError::Silent)?;
    let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
    let body = bounded::read(&mut answer, MAX_BODY).await.map_err(|error| match error {
        ReadError::TooLong => ScrapeError::TooLong,
        ReadError::Broken(_) => ScrapeError::Silent,
    })?;
    Ok(Page { status, headers, body })
}

impl Page {
    fn reading(&self, names: &Names) -> Option<Reading> {
        if !self.status.is_success() {
            return None;
        }
        let mut reading = Reading::of_text(&self.body, names)?;
        let header = self.headers.get(LLAMA_STARTED).and_then(|at| at.to_str().ok()?.parse().ok());
        reading.started = reading.started.or(header);
        Some(reading)
    }
}
