//! A request may end at any moment: its future is dropped after each number of polls, and nothing may be
//! left of it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use grapevine_node::proxy::{self, Proxy};
use http::Request;
use http_body_util::BodyExt;

use crate::support::*;

/// More polls than any request here takes.
const MOST_POLLS: usize = 300;

/// Polls `future` until it is done, or drops it when `polls` times were not enough.
async fn polled<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
            Poll::Ready(done) => Poll::Ready(Some(done)),
        }
    })
    .await
}

/// A body that keeps its reader waiting before each piece.
fn hesitant(pieces: Vec<Bytes>) -> Body {
    let stream = futures_util::stream::unfold(pieces.into_iter(), |mut pieces| async move {
        tokio::task::yield_now().await;
        Some((Ok::<_, Infallible>(pieces.next()?), pieces))
    });
    Body::from_stream(stream)
}

/// A whole exchange, as a connection would drive it.
async fn exchange(proxy: Arc<Proxy>, path: &'static str, pieces: Vec<Bytes>) -> (u16, Bytes) {
    let request = Request::post(path).header("content-type", "application/json").body(hesitant(pieces));
    let response: Response = proxy::handle(State(proxy), request.unwrap()).await;
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default())
}

/// Cuts the exchange off at each await. Afterwards nothing is in flight and every request was counted once.
async fn at_every_await(router: &TestRouter, path: &'static str, pieces: Vec<Bytes>, expected: &[u8]) {
    let before = router.all_ended();
    for polls in 1..MOST_POLLS {
        let done = soon(polled(exchange(router.proxy(), path, pieces.clone()), polls)).await;
        router.quiet().await;
        let status = router.status();
        assert_eq!((status.waiting, status.inflight), (0, 0), "after {polls} polls");
        assert_eq!(router.all_ended() - before, polls as u64, "each is counted once, after {polls} polls");
        if let Some((status, body)) = done {
            assert_eq!((status, &body[..]), (200, expected), "after {polls} polls");
            assert!(polls > 4, "it was cut off before");
            return;
        }
    }
    panic!("not done after {MOST_POLLS} polls");
}

fn prompt(bytes: usize, stream: bool) -> Vec<Bytes> {
    let body =
        serde_json::json!({ "model": "m", "stream": stream, "prompt": "lorem ipsum ".repeat(bytes / 12) });
    let body = Bytes::from(body.to_string());
    let middle = body.len() / 2;
    vec![body.slice(..middle), body.slice(middle..)]
}

const ANSWER: &str = r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#;
const EVENTS: [&str; 3] = ["data: {\"choices\":[]}\n\n", "data: {\"choices\":[1]}\n\n", "data: [DONE]\n\n"];

/// Answers in pieces with pauses between them: a stream to whoever asks for one.
async fn engine() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            if !String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
                conn.write(&json_response("200 OK", ANSWER)).await;
                continue;
            }
            conn.write(EVENT_STREAM).await;
            for event in EVENTS {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                conn.chunk(event.as_bytes()).await;
            }
            conn.chunk(b"").await;
        }
    })
    .await
}

#[tokio::test]
async fn a53_a_request_that_is_cut_off_at_any_await_leaves_nothing_behind() {
    let engine = engine().await;
    let router = TestRouter::before(&[&engine]).await;
    at_every_await(&router, "/v1/completions", prompt(2_000, false), ANSWER.as_bytes()).await;
    at_every_await(&router, "/v1/completions", prompt(2_000, true), EVENTS.concat().as_bytes()).await;
    // Large enough to be read on another thread.
    at_every_await(&router, "/v1/completions", prompt(400_000, false), ANSWER.as_bytes()).await;
}

#[tokio::test]
async fn a53_a_retry_that_is_cut_off_at_any_await_leaves_nothing_behind() {
    let busy = RawEngine::json("503 Service Unavailable", r#"{"error":{"message":"currently busy"}}"#).await;
    let free = engine().await;
    let mut config = config(&[busy.addr, free.addr]);
    config.policy = grapevine_route::Policy::RoundRobin;
    let router = TestRouter::start(config).await;
    at_every_await(&router, "/v1/completions", prompt(2_000, false), ANSWER.as_bytes()).await;
    assert!(!busy.seen().is_empty() && !free.seen().is_empty());
}

#[tokio::test]
async fn a53_a_request_that_leaves_the_queue_leaves_nothing_behind() {
    let engine = engine().await;
    let mut config = config(&[engine.addr]);
    (config.max_inflight, config.queue_limit) = (1, 8);
    let router = TestRouter::start(config).await;
    let first = || exchange(router.proxy(), "/v1/completions", prompt(2_000, true));
    for polls in 1..20 {
        let mut holder = Box::pin(first());
        let _ = polled(&mut holder, 3).await;
        assert_eq!(router.status().inflight, 1);
        let waited = polled(first(), 1).await;
        assert!(waited.is_none(), "there is one place");
        let mut waits = Box::pin(first());
        let _ = polled(&mut waits, 1).await;
        assert_eq!(router.status().waiting, 1);
        drop(holder);
        let _ = soon(polled(waits, polls)).await;
        router.quiet().await;
        assert_eq!((router.status().waiting, router.all_ended()), (0, 3 * polls as u64));
    }
}
