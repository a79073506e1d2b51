//! A request may end at any moment: its future is dropped after each number of polls, and nothing may be
//! left of it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use grapevine_node::config::Config;
use grapevine_node::proxy::{self, Proxy, keying};
use grapevine_tree::{Api, Extractor, Matches, ReplicaId};
use http::{Method, Request};
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

/// A request.
#[derive(Clone, Debug)]
struct Ask {
    method: Method,
    path: &'static str,
    body: Bytes,
}

/// A prompt that no other has, not even in part.
fn prompt(number: usize, bytes: usize, stream: bool) -> Ask {
    let prompt = format!("{number} lorem ipsum").repeat(bytes / 12);
    let body = serde_json::json!({ "model": "m", "stream": stream, "prompt": prompt });
    Ask { method: Method::POST, path: "/v1/completions", body: body.to_string().into() }
}

/// A whole exchange, as a connection would drive it.
async fn exchange(proxy: Arc<Proxy>, ask: Ask) -> (u16, Bytes) {
    let middle = ask.body.len() / 2;
    let pieces = vec![ask.body.slice(..middle), ask.body.slice(middle..)];
    let request = Request::builder().method(ask.method).uri(ask.path).header("host", "r");
    let request = request.body(hesitant(pieces)).unwrap();
    let response: Response = proxy::handle(State(proxy), request).await;
    let status = response.status().as_u16();
    (status, response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default())
}

/// A router, its engines, and what there was before the first request.
struct Bench<'a> {
    router: TestRouter,
    engines: &'a [&'a RawEngine],
    tasks: usize,
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

impl<'a> Bench<'a> {
    async fn new(engines: &'a [&'a RawEngine], adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(&engines.iter().map(|engine| engine.addr).collect::<Vec<_>>());
        config.pool_idle_timeout = Duration::from_millis(100);
        adjust(&mut config);
        let router = TestRouter::start(config).await;
        until("gossip has begun", || router.status().gossip.running).await;
        until("engines were probed", || engines.iter().all(|engine| engine.connections() > 0)).await;
        let mut bench = Self { router, engines, tasks: usize::MAX };
        bench.clean().await;
        bench.tasks = tasks();
        bench
    }

    /// Waits until no request has a connection or a task.
    async fn clean(&self) {
        let closed = || self.engines.iter().all(|engine| engine.closed() == engine.connections());
        until("the pool is empty", closed).await;
        until("no task is left", || tasks() <= self.tasks).await;
    }

    /// Who is believed to hold the prompt of `ask`.
    async fn held(&self, ask: &Ask) -> Matches {
        let mut extractor = Extractor::new(keying::seed_of(None));
        let key = extractor.extract(Api::of_path(ask.path), &ask.body, b"").key;
        self.router.tree().ask(&Arc::new(key), PATIENCE).await.expect("the tree answers").matches
    }

    /// Cuts a request off at each await; `make` makes them. Afterwards nothing is in flight, every request was
    /// counted once, and the tree believes what it should. Gives the first answer.
    async fn at_every_await(&self, make: impl Fn(usize) -> Ask) -> (u16, Bytes) {
        let before = self.router.all_ended();
        for polls in 1..MOST_POLLS {
            let ask = make(polls);
            let done = soon(polled(exchange(self.router.proxy(), ask.clone()), polls)).await;
            self.router.quiet().await;
            let status = self.router.status();
            assert_eq!((status.waiting, status.inflight), (0, 0), "after {polls} polls");
            let ended = self.router.all_ended() - before;
            assert_eq!(ended, polls as u64, "each is counted once, after {polls} polls");
            self.check_credit(&ask, polls).await;
            if let Some(answer) = done {
                self.clean().await;
                return answer;
            }
        }
        panic!("not done after {MOST_POLLS} polls");
    }

    /// Only one replica is believed to hold the prompt, by one pick: the last that was asked.
    async fn check_credit(&self, ask: &Ask, polls: usize) {
        let held = self.held(ask).await;
        assert!(held.len() <= 1, "after {polls} polls: {held:?}");
        assert!(held.iter().all(|held| held.count <= 1.0), "after {polls} polls: {held:?}");
    }
}

fn id_of(engine: &RawEngine) -> ReplicaId {
    ReplicaId::of_url(&format!("http://{}", engine.addr))
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
    let engines = [&engine];
    let bench = Bench::new(&engines, |_| {}).await;
    // The last is large enough to be read on another thread.
    for (round, bytes, stream) in [(1, 2_000, false), (2, 2_000, true), (3, 400_000, false)] {
        let make = |polls| prompt(round * 1_000 + polls, bytes, stream);
        let answer = bench.at_every_await(make).await;
        let expected = if stream { EVENTS.concat() } else { ANSWER.to_owned() };
        assert_eq!(answer, (200, Bytes::from(expected)));
    }
    for seen in engine.seen() {
        let body = Bytes::from(seen.body);
        let held = bench.held(&Ask { method: Method::POST, path: "/v1/completions", body }).await;
        assert_eq!(held.first().map(|held| held.replica), Some(id_of(&engine)), "what it read it holds");
    }
}

#[tokio::test]
async fn a53_what_has_no_prompt_leaves_nothing_behind_either() {
    let engine = engine().await;
    let engines = [&engine];
    let bench = Bench::new(&engines, |_| {}).await;
    for (method, path) in
        [(Method::GET, "/v1/models"), (Method::POST, "/v1/other"), (Method::GET, "/v1/responses/resp_nobody")]
    {
        let ask = Ask { method, path, body: Bytes::new() };
        assert_eq!(bench.at_every_await(|_| ask.clone()).await.0, 200, "{path}");
    }
    let follow = |polls| {
        let body = format!("{{\"previous_response_id\":\"resp_nobody\",\"input\":\"{polls} and then?\"}}");
        Ask { method: Method::POST, path: "/v1/responses", body: body.into() }
    };
    assert_eq!(bench.at_every_await(follow).await.0, 200);
}

/// Two engines. Who is asked first refuses, and is noted.
async fn one_refuses(first: &Arc<Mutex<HashMap<Vec<u8>, usize>>>) -> [RawEngine; 2] {
    let start = async |index: usize| {
        let first = Arc::clone(first);
        RawEngine::start(move |mut conn| {
            let first = Arc::clone(&first);
            async move {
                while let Some(seen) = conn.request().await {
                    if *first.lock().unwrap().entry(seen.body).or_insert(index) != index {
                        conn.write(&json_response("200 OK", ANSWER)).await;
                        continue;
                    }
                    let busy = r#"{"error":{"message":"currently busy"}}"#;
                    let refusal = json_response("503 Service Unavailable", busy);
                    let (head, body) = refusal.split_at(refusal.len() - busy.len());
                    conn.write(head).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    conn.write(body).await;
                }
            }
        })
        .await
    };
    [start(0).await, start(1).await]
}

#[tokio::test]
async fn a53_a_retry_that_is_cut_off_at_any_await_leaves_nothing_behind() {
    let first = Arc::default();
    let both = one_refuses(&first).await;
    let engines = both.each_ref();
    let bench = Bench::new(&engines, |_| {}).await;
    let answer = bench.at_every_await(|polls| prompt(polls, 2_000, false)).await;
    assert_eq!(answer, (200, Bytes::from(ANSWER)));
    let (mut retried, refusals) = (0, first.lock().unwrap().clone());
    for (body, refused) in refusals {
        let taker = &both[1 - refused];
        if taker.seen().iter().any(|seen| seen.body == body) {
            let ask = Ask { method: Method::POST, path: "/v1/completions", body: body.into() };
            let holders: Vec<_> = bench.held(&ask).await.iter().map(|held| held.replica).collect();
            assert_eq!(holders, [id_of(taker)], "who refused it does not hold it");
            retried += 1;
        }
    }
    assert!(retried > 0);
    let metrics = bench.router.admin_get("/metrics").await.1;
    let counted = metrics.lines().find_map(|line| line.strip_prefix("grapevine_retries_total ")).unwrap();
    assert!(counted.parse::<usize>().unwrap() >= retried, "{counted} counted of {retried}");
}

#[tokio::test]
async fn a53_a_request_that_leaves_the_queue_leaves_nothing_behind() {
    let engine = engine().await;
    let engines = [&engine];
    let bench = Bench::new(&engines, |config| (config.max_inflight, config.queue_limit) = (1, 8)).await;
    let router = &bench.router;
    let first = || exchange(router.proxy(), prompt(0, 2_000, true));
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
    bench.clean().await;
}
