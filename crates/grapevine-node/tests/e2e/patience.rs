//! Clients that are slow, and clients that do nothing.

use std::time::Duration;

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
