//! `GET /v1/models`: what all replicas serve together.
//!
//! Every replica that can be reached is asked; those that do not answer in time are left out, so one that is
//! down never takes the list away. Where all say the same, the client gets one replica's own bytes; where
//! nobody tells this client, it gets why, in an engine's own words.

use std::collections::HashSet;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::Proxy;
use crate::bounded::{self, ReadError};
use crate::engine::models::{LIMIT, MAX_BYTES, PATH};
use crate::error::RouterError;
use crate::replica::Replica;

/// Age at which a list is asked for again: clients poll it.
const FRESH: Duration = Duration::from_secs(2);

/// Replicas asked at the same time.
const AT_ONCE: usize = 64;

/// The list as it was last made.
#[derive(Debug, Default)]
pub(super) struct ModelList {
    made: Mutex<Option<Made>>,
}

#[derive(Debug)]
struct Made {
    at: Instant,
    /// What engines were shown for it, where clients' credentials are theirs to judge: the list is for
    /// nobody else.
    credentials: Option<HeaderValue>,
    list: Bytes,
}

/// What a replica said to a client's question.
enum Said {
    List(Bytes),
    /// The client may not ask, or not so: the engine's answer.
    Refused(Refusal),
    Nothing,
}

struct Refusal {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    body: Bytes,
}

/// What all replicas said together.
enum Heard {
    Union(Bytes),
    /// None showed a list, and one said why.
    Refusal(Refusal),
}

/// Whether a request is answered here.
pub(super) fn concerns(method: &Method, path: &str, query: Option<&str>) -> bool {
    *method == Method::GET && path == PATH && query.is_none()
}

impl Proxy {
    /// The union of what replicas serve.
    pub(super) async fn list_models(&self, headers: &HeaderMap) -> Result<Response, RouterError> {
        let credentials =
            headers.get(header::AUTHORIZATION).filter(|_| self.settings.keep_credentials).cloned();
        // Whoever comes while a list is being made waits for that one.
        let mut made = self.models.made.lock().await;
        let fresh = made.as_ref().filter(|made| made.at.elapsed() < FRESH && made.credentials == credentials);
        let list = match fresh {
            Some(made) => made.list.clone(),
            None => match heard(self.ask_all(credentials.as_ref()).await)? {
                Heard::Union(list) => {
                    *made = Some(Made { at: Instant::now(), credentials, list: list.clone() });
                    list
                }
                Heard::Refusal(refusal) => return Ok(refusal.into_response()),
            },
        };
        let mut response = Response::new(Body::from(list));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    async fn ask_all(&self, credentials: Option<&HeaderValue>) -> Vec<Said> {
        let set = self.picker.replicas.load_full();
        let now = self.clock.now();
        let some = set.open().any(|r| r.is_reachable(now));
        let asked: Vec<_> = set.open().filter(|r| !some || r.is_reachable(now)).cloned().collect();
        let asks =
            asked.into_iter().map(|replica| async move { self.ask_models(&replica, credentials).await });
        stream::iter(asks).buffered(AT_ONCE).collect().await
    }

    async fn ask_models(&self, replica: &Replica, credentials: Option<&HeaderValue>) -> Said {
        let mut headers: HeaderMap =
            credentials.map(|key| (header::AUTHORIZATION, key.clone())).into_iter().collect();
        replica.authorize(&mut headers);
        let request = self.client.get(format!("{}{PATH}", replica.url)).headers(headers);
        let ask = async {
            let mut response = request.send().await.ok()?;
            let body = bounded::read(&mut response, MAX_BYTES).await;
            if let Err(ReadError::TooLong) = body {
                tracing::warn!(replica = replica.name, "its list of models is too long to read");
            }
            Some((response.status(), response.headers().get(header::CONTENT_TYPE).cloned(), body.ok()?))
        };
        match timeout(LIMIT, ask).await.ok().flatten() {
            Some((status, _, list)) if status.is_success() => match &replica.spec.models {
                Some(listed) => only(&list, listed).map_or(Said::Nothing, Said::List),
                None => Said::List(list),
            },
            Some((status, content_type, body)) if status.is_client_error() => {
                Said::Refused(Refusal { status, content_type, body })
            }
            _ => Said::Nothing,
        }
    }
}

impl Refusal {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        response.headers_mut().extend(self.content_type.map(|form| (header::CONTENT_TYPE, form)));
        response
    }
}

/// The list without what an operator has not listed.
fn only(list: &[u8], listed: &[String]) -> Option<Bytes> {
    let mut list = serde_json::from_slice::<Value>(list).ok()?;
    let models = list.get_mut("data")?.as_array_mut()?;
    models.retain(|model| model.get("id").is_some_and(|id| listed.iter().any(|name| id == name)));
    serde_json::to_vec(&list).ok().map(Bytes::from)
}

fn heard(answers: Vec<Said>) -> Result<Heard, RouterError> {
    let (mut lists, mut refusals) = (Vec::new(), Vec::new());
    for said in answers {
        match said {
            Said::List(list) => lists.push(list),
            Said::Refused(refusal) => refusals.push(refusal),
            Said::Nothing => {}
        }
    }
    let refusal = refusals.into_iter().next().map(Heard::Refusal);
    union(&lists).map(Heard::Union).or(refusal).ok_or(RouterError::NoReplica)
}

/// All lists as one, each model once, in the order in which it was met. `None` when there is none to read.
fn union(lists: &[Bytes]) -> Option<Bytes> {
    let first = lists.first()?;
    if lists.iter().all(|list| list == first) {
        return serde_json::from_slice::<Value>(first).is_ok().then(|| first.clone());
    }
    let mut ids: HashSet<String> = HashSet::new();
    let mut models: Vec<Value> = Vec::new();
    let mut whole: Option<Value> = None;
    for list in lists {
        let Ok(mut list) = serde_json::from_slice::<Value>(list) else { continue };
        let Some(Value::Array(data)) = list.get_mut("data").map(Value::take) else { continue };
        for model in data {
            let Some(id) = model.get("id").and_then(Value::as_str) else { continue };
            if ids.insert(id.to_owned()) {
                models.push(model);
            }
        }
        whole.get_or_insert(list);
    }
    let mut whole = whole?;
    *whole.get_mut("data")? = Value::Array(models);
    serde_json::to_vec(&whole).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: &[&str]) -> Bytes {
        let models: Vec<Value> =
            ids.iter().map(|id| serde_json::json!({ "id": id, "object": "model" })).collect();
        Bytes::from(serde_json::json!({ "object": "list", "data": models }).to_string())
    }

    fn ids(list: &Bytes) -> Vec<String> {
        let list: Value = serde_json::from_slice(list).unwrap();
        let data = list["data"].as_array().unwrap();
        data.iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a41_lists_become_one_and_equal_ones_stay_bytes() {
        let odd = Bytes::from_static(b"{ \"object\":\"list\" , \"data\":[{\"id\":\"m\"}] }");
        assert_eq!(union(&[odd.clone(), odd.clone()]).unwrap(), odd);
        let merged = union(&[list(&["a", "b"]), Bytes::from_static(b"<html>"), list(&["b", "c"])]).unwrap();
        assert_eq!(ids(&merged), ["a", "b", "c"]);
        assert_eq!(union(&[]), None);
        assert_eq!(union(&[Bytes::from_static(b"no")]), None);
        assert_eq!(union(&[Bytes::from_static(b"no"), Bytes::from_static(b"[]")]), None);
    }
}
