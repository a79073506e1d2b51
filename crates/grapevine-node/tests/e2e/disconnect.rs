//! When the client goes, the engine's connection goes at once.

use std::time::Duration;

use crate::support::*;

/// An engine that reads requests and never answers.
async fn silent() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await
}

#[tokio::test]
async fn a11_a_client_gone_during_prefill_ends_the_engines_work() {
    for request in [chat(), chat_stream()] {
        let engine = silent().await;
        let router = TestRouter::before(&[&engine]).await;
        let client = RawClient::send(router.addr, request).await;
        until("the engine has the request", || engine.seen().len() == 1).await;
        assert_eq!(router.status().replicas[0].inflight, 1);
        drop(client);
        until("the engine's connection is closed", || engine.closed() == 1).await;
        router.ended("client_closed", 1).await;
        router.quiet().await;
        assert_eq!(router.status().replicas[0].health, "up", "it is not the replica's fault");
    }
}

#[tokio::test]
async fn a12_a_client_gone_within_a_stream_ends_the_engines_work() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        for _ in 0..3 {
            conn.chunk(b"data: 1\n\n").await;
        }
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("data: 1\n\n").await;
    assert_eq!(router.status().replicas[0].inflight, 1, "a54: counted as long as the stream");
    drop(client);
    until("the engine's connection is closed", || engine.closed() == 1).await;
    router.ended("client_closed", 1).await;
    router.quiet().await;
}

#[tokio::test]
async fn a12_an_http2_client_that_resets_its_stream_ends_the_engines_work() {
    let engine = silent().await;
    let router = TestRouter::before(&[&engine]).await;
    let h2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let request = h2.post(router.url("/v1/chat/completions")).body("{}").send();
    let gave_up = tokio::time::timeout(Duration::from_millis(300), request).await;
    assert!(gave_up.is_err());
    until("the engine's connection is closed", || engine.closed() == 1).await;
    router.quiet().await;
}

#[tokio::test]
async fn a53_counts_return_to_zero_after_a_thousand_aborts() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        conn.chunk(b"data: 1\n\n").await;
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    for round in 0..20 {
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(RawClient::send(router.addr, chat_stream()).await);
        }
        if round % 2 == 0 {
            for client in &mut clients {
                client.read_until("data: 1").await;
            }
        }
    }
    router.quiet().await;
    until("every connection is closed", || engine.closed() == engine.connections()).await;
}
