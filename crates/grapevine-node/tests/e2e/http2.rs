//! HTTP/2 without TLS, on both sides.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// An engine that speaks HTTP/2 only.
struct H2Engine {
    addr: SocketAddr,
    requests: Arc<AtomicUsize>,
    resets: Arc<AtomicUsize>,
}

/// What it does with its `n`th request.
type Script = fn(usize, Request<RecvStream>, SendResponse<Bytes>, Arc<AtomicUsize>);

impl H2Engine {
    async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (requests, resets) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let engine = Self { addr, requests: Arc::clone(&requests), resets: Arc::clone(&resets) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (requests, resets) = (Arc::clone(&requests), Arc::clone(&resets));
                tokio::spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok((request, mut respond))) = connection.accept().await {
                        if request.uri().path() == "/health" {
                            let _ = respond.send_response(Response::new(()), true);
                            continue;
                        }
                        script(requests.fetch_add(1, SeqCst), request, respond, Arc::clone(&resets));
                    }
                });
            }
        });
        engine
    }

    async fn router(&self) -> TestRouter {
        let mut config = config(&[self.addr]);
        config.engine_http2 = true;
        TestRouter::start(config).await
    }
}

fn one_field(name: &'static str, value: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static(name), value)])
}

/// Sends back the body and, as trailers, the request's trailers.
fn echo(_: usize, request: Request<RecvStream>, mut respond: SendResponse<Bytes>, _: Arc<AtomicUsize>) {
    tokio::spawn(async move {
        let mut body = request.into_body();
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        while let Some(Ok(data)) = body.data().await {
            let _ = body.flow_control().release_capacity(data.len());
            send.send_data(data, false).unwrap();
        }
        let sent = body.trailers().await.unwrap().and_then(|trailers| trailers.get("x-sum").cloned());
        let sum = sent.unwrap_or(HeaderValue::from_static("none"));
        send.send_trailers(one_field("x-sum", sum)).unwrap();
    });
}

/// A client's connection.
async fn h2_client(addr: SocketAddr) -> h2::client::SendRequest<Bytes> {
    let (send, connection) = h2::client::handshake(TcpStream::connect(addr).await.unwrap()).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

fn post(router: &TestRouter) -> Request<()> {
    Request::post(router.url("/v1/x?a=b")).body(()).unwrap()
}

#[tokio::test]
async fn h2c_on_both_sides_carries_bodies_and_trailers() {
    let engine = H2Engine::start(echo).await;
    let router = engine.router().await;
    let mut client = h2_client(router.addr).await;
    let (answer, mut send) = client.send_request(post(&router), false).unwrap();
    send.send_data(Bytes::from_static(b"over two hops"), false).unwrap();
    send.send_trailers(one_field("x-sum", HeaderValue::from_static("42"))).unwrap();
    let answer = soon(answer).await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(answer.headers().contains_key("x-request-id"));
    let mut body = answer.into_body();
    let mut received = Vec::new();
    while let Some(data) = soon(body.data()).await {
        received.extend_from_slice(&data.unwrap());
    }
    assert_eq!(received, b"over two hops");
    assert_eq!(soon(body.trailers()).await.unwrap().unwrap()["x-sum"], "42");
    router.ended("ok", 1).await;
}

#[tokio::test]
async fn a32_a_client_that_is_refused_while_it_uploads_gets_a_whole_answer_at_once() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.body_limit = 100_000;
    let router = TestRouter::start(config).await;
    let mut client = h2_client(router.addr).await;
    let announced = Request::post(router.url("/v1/x")).header("content-length", "5000000").body(()).unwrap();
    for request in [announced, post(&router)] {
        let (answer, mut send) = client.send_request(request, false).unwrap();
        send.reserve_capacity(200_000);
        send.send_data(vec![b'x'; 200_000].into(), false).unwrap();
        let answer = soon(answer).await.unwrap();
        assert_eq!(answer.status(), 413);
        let length: usize = answer.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let mut body = answer.into_body();
        let mut received = 0;
        while let Some(data) = soon(body.data()).await {
            received += data.unwrap().len();
        }
        assert_eq!(received, length, "the answer ends before the upload does");
        let reset = soon(std::future::poll_fn(|cx| send.poll_reset(cx))).await.unwrap();
        assert_eq!(reset, Reason::NO_ERROR, "the rest is not wanted");
    }
}

/// Says of the first request that it was not taken up, as an engine does that winds a connection down.
fn refuse_first(
    n: usize,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    resets: Arc<AtomicUsize>,
) {
    if n == 0 { respond.send_reset(Reason::REFUSED_STREAM) } else { echo(n, request, respond, resets) }
}

#[tokio::test]
async fn a16_what_an_http2_engine_has_not_taken_up_is_sent_again() {
    let engine = H2Engine::start(refuse_first).await;
    let router = engine.router().await;
    let answer = http().post(router.url("/v1/x")).body("once").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.text().await.unwrap(), "once");
    assert_eq!(engine.requests.load(SeqCst), 2);
    assert_eq!(router.status().replicas[0].health, "up");
}

/// Waits until the other side gives a request up.
fn wait_for_reset(
    _: usize,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    resets: Arc<AtomicUsize>,
) {
    tokio::spawn(async move {
        let _request = request;
        if std::future::poll_fn(|cx| respond.poll_reset(cx)).await.is_ok() {
            resets.fetch_add(1, SeqCst);
        }
    });
}

#[tokio::test]
async fn a12_a_client_gone_resets_its_stream_at_an_http2_engine() {
    let engine = H2Engine::start(wait_for_reset).await;
    let router = engine.router().await;
    let clients = [RawClient::send(router.addr, chat()).await, RawClient::send(router.addr, chat()).await];
    until("the engine has both", || engine.requests.load(SeqCst) == 2).await;
    let [first, second] = clients;
    drop(first);
    until("one stream is reset", || engine.resets.load(SeqCst) == 1).await;
    assert_eq!(router.status().replicas[0].inflight, 1, "the other goes on");
    drop(second);
    router.quiet().await;
}

#[tokio::test]
async fn a_client_that_resets_rapidly_is_cut_off_and_costs_nobody_else() {
    let engine = RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            if seen.head.contains("/v1/good") {
                conn.write(&json_response("200 OK", "{}")).await;
            }
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let client = h2_client(router.addr).await;
    let mut opened = 0;
    for _ in 0..20_000 {
        let Ok(mut ready) = client.clone().ready().await else { break };
        let Ok((_, mut stream)) = ready.send_request(post(&router), false) else { break };
        stream.send_reset(Reason::CANCEL);
        opened += 1;
        tokio::task::yield_now().await;
    }
    let answer = http().get(router.url("/v1/good")).send().await.unwrap();
    assert_eq!(answer.status(), 200, "after {opened} resets");
    router.quiet().await;
}
