//! Clients that are slow, and clients that do nothing.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use tokio::net::TcpStream;

use crate::support::*;

async fn impatient(engine: &RawEngine) -> TestRouter {
    let mut config = config(&[engine.addr]);
    config.client_timeout = Duration::from_millis(200);
    TestRouter::start(config).await
}

#[tokio::test]
async fn a_body_that_stops_coming_ends_in_408_and_gives_its_place_back() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = impatient(&engine).await;
    let half = "POST /v1/x HTTP/1.1\r\nhost: r\r\ncontent-length: 1000\r\n\r\nhalf";
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(RawClient::send(router.addr, half).await);
    }
    for client in &mut clients {
        client.read_until("body_timeout").await;
        assert!(client.text().starts_with("HTTP/1.1 408 "), "{}", client.text());
    }
    router.quiet().await;
    router.ended("refused", 50).await;
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_waited_for() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = impatient(&engine).await;
    let mut client =
        RawClient::send(router.addr, "POST /v1/x HTTP/1.1\r\nhost: r\r\ncontent-length: 10\r\n\r\n").await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        client.write("x").await;
    }
    client.read_until("HTTP/1.1 200 OK").await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_lets_the_engine_go() {
    let engine = RawEngine::torrent().await;
    let router = impatient(&engine).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("data: ").await;
    until("the engine is let go", || engine.closed() >= 1).await;
    router.ended("client_closed", 1).await;
    router.quiet().await;
    assert_eq!(router.status().replicas[0].health, "up");
}

/// A client of HTTP/2 with room for `window` bytes of each answer, and for more of all of them.
async fn h2_client(router: &TestRouter, window: u32) -> h2::client::SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window).initial_connection_window_size(1 << 20);
    let stream = TcpStream::connect(router.addr).await.unwrap();
    let (send, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    send.ready().await.unwrap()
}

fn ask(router: &TestRouter) -> Request<()> {
    Request::get(router.url("/v1/x")).body(()).unwrap()
}

#[tokio::test]
async fn an_http2_client_that_opens_no_window_lets_the_engine_go() {
    let (torrent, json) = (RawEngine::torrent().await, RawEngine::json("200 OK", "{}").await);
    for (engine, window) in [(&torrent, 0), (&torrent, 20_000), (&json, 0)] {
        let router = impatient(engine).await;
        let mut client = h2_client(&router, window).await;
        let (answer, _) = client.send_request(ask(&router), true).unwrap();
        let mut body = soon(answer).await.unwrap().into_body();
        router.ended(if engine.addr == json.addr { "ok" } else { "client_closed" }, 1).await;
        router.quiet().await;
        let reset = loop {
            match soon(body.data()).await {
                Some(Ok(_)) => {}
                end => break end.and_then(|error| error.err()?.reason()),
            }
        };
        assert_eq!(reset, Some(h2::Reason::CANCEL), "the stream ends, and not as if it were whole");
        assert_eq!(router.status().replicas[0].health, "up");
        let (head, _) = client.send_request(ask(&router), true).unwrap();
        assert_eq!(soon(head).await.unwrap().status(), 200, "the connection goes on");
    }
    until("the engine is let go", || torrent.closed() >= 2).await;
}

#[tokio::test]
async fn a_connection_that_never_says_all_that_it_wants_is_closed() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = impatient(&engine).await;
    // Of HTTP/1, of HTTP/2, and what may yet become either.
    for opening in ["GET /v1/x HTTP/1.1\r\nhost: r\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "P"] {
        let mut client = RawClient::send(router.addr, opening).await;
        client.read_to_end().await;
    }
    let mut client = RawClient::send(router.addr, "GET /v1/x HTTP/1.1\r\nhost: r\r\n\r\nGET /v1").await;
    client.read_until("{}").await;
    client.write("/y HTTP/1.1\r\n").await;
    client.read_to_end().await;
    assert_eq!(engine.seen().len(), 1);
}

#[tokio::test]
async fn a_head_that_drips_has_no_longer_for_it() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = impatient(&engine).await;
    let mut client = RawClient::send(router.addr, "GET /v1/x HTTP/1.1\r\n").await;
    let closed = async {
        while client.try_write("x: y\r\n").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(closed).await;
    assert!(engine.seen().is_empty());
}
