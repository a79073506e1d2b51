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
        let streams = |seen: &Seen| String::from_utf8_lossy(&seen.body).contains("\"stream\":true");
        if conn.request().await.is_some_and(|seen| streams(&seen)) {
            conn.write(EVENT_STREAM).await;
            conn.chunk(b"data: 1\n\n").await;
        }
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    for round in 0..20 {
        let mut clients = Vec::new();
        for i in 0..50 {
            let request = if i % 2 == 0 { chat_stream() } else { chat() };
            clients.push(RawClient::send(router.addr, request).await);
        }
        if round % 2 == 0 {
            for client in clients.iter_mut().step_by(2) {
                client.read_until("data: 1").await;
            }
        }
    }
    router.quiet().await;
    until("every connection is closed", || engine.closed() == engine.connections()).await;
    assert_eq!(router.status().replicas[0].health, "up");
}

#[tokio::test]
async fn a13_only_the_clients_own_request_ends_whatever_ids_are_sent() {
    let engine = RawEngine::start(|mut conn| async move {
        let Some(seen) = conn.request().await else { return };
        conn.write(EVENT_STREAM).await;
        conn.chunk(b"data: 1\n\n").await;
        if seen.values("x-request-id") == ["ab"] && conn.head().await.is_none() {
            return;
        }
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let mut clients = Vec::new();
    for id in ["a", "ab", "a"] {
        let fields = format!("HTTP/1.1\r\nx-request-id: {id}\r\n");
        let mut client = RawClient::send(router.addr, chat_stream().replace("HTTP/1.1\r\n", &fields)).await;
        client.read_until("data: 1").await;
        clients.push(client);
    }
    drop(clients.remove(0));
    until("its connection is closed", || engine.closed() == 1).await;
    router.ended("client_closed", 1).await;
    assert_eq!(router.status().inflight, 2, "equal ids and longer ones go on");
    assert_eq!(engine.seen().len(), 3, "engines are asked to abort by closing, not by an id");
}

#[tokio::test]
async fn a14_readiness_does_not_wait_for_streams_that_are_dropped_at_once() {
    let engine = RawEngine::torrent().await;
    let router = TestRouter::before(&[&engine]).await;
    let mut clients = Vec::new();
    for _ in 0..30 {
        let mut client = RawClient::send(router.addr, chat_stream()).await;
        while client.received.len() < 5 << 20 {
            client.read_some().await;
        }
        clients.push(client);
    }
    drop(clients);
    let mut asked = 0;
    while router.status().inflight > 0 || asked < 20 {
        assert_eq!(router.admin_get("/readyz").await.0, 200);
        asked += 1;
    }
    router.ended("client_closed", 30).await;
}
