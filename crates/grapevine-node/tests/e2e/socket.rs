//! WebSocket sessions.

use std::time::Duration;

use crate::support::*;

const HANDSHAKE: &str = "GET /v1/realtime?model=m HTTP/1.1\r\nhost: r\r\nconnection: keep-alive, Upgrade\r\n\
    upgrade: WebSocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n";

/// Accepts the handshake, then sends back what it gets until the other side closes.
async fn echoing() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        let Some(seen) = conn.request().await else { return };
        assert_eq!(seen.values("upgrade"), ["websocket"]);
        assert_eq!(seen.values("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
        conn.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
              sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        )
        .await;
        conn.echo().await;
    })
    .await
}

#[tokio::test]
async fn a_session_is_bytes_both_ways_and_counts_until_it_ends() {
    let engine = echoing().await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, HANDSHAKE).await;
    client.read_until("\r\n\r\n").await;
    let head = client.text().to_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
    client.write("\u{1}ping").await;
    client.read_until("\u{1}ping").await;
    assert_eq!((router.status().inflight, router.status().replicas[0].inflight), (1, 1));
    drop(client);
    router.ended("ok", 1).await;
    router.quiet().await;
    until("the engine sees the end", || engine.closed() == 1).await;
}

#[tokio::test]
async fn a_refused_handshake_is_the_engines_own_answer() {
    let engine = RawEngine::json("403 Forbidden", "{\"detail\":\"no\"}").await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, HANDSHAKE).await;
    client.read_until("{\"detail\":\"no\"}").await;
    assert!(client.text().starts_with("HTTP/1.1 403 "));
    router.quiet().await;
}

#[tokio::test]
async fn a_drain_waits_for_sessions_and_ends_them_when_its_time_is_over() {
    let engine = echoing().await;
    let mut config = config(&[engine.addr]);
    config.drain_timeout = Duration::from_millis(200);
    let mut router = TestRouter::start(config).await;
    let mut client = RawClient::send(router.addr, HANDSHAKE).await;
    client.read_until("\r\n\r\n").await;
    router.tell_to_stop();
    until("it drains", || router.status().router.phase == "draining").await;
    client.write("still").await;
    client.read_until("still").await;
    client.read_to_end().await;
    router.stopped().await.unwrap();
}
