//! Ending in good order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::support::*;

#[tokio::test]
async fn a114_a_drain_finishes_what_runs_and_is_not_ready_meanwhile() {
    let gate = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&gate);
    let engine = RawEngine::start(move |mut conn| {
        let open = Arc::clone(&open);
        async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            conn.chunk(b"data: 1\n\n").await;
            open.acquire().await.unwrap().forget();
            conn.chunk(b"data: [DONE]\n\n").await;
            conn.chunk(b"").await;
            conn.closed().await;
        }
    })
    .await;
    let mut router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("data: 1").await;
    router.tell_to_stop();
    until("it drains", || router.status().router.phase == "draining").await;
    assert_eq!(router.admin_get("/readyz").await.0, 503);
    assert_eq!(router.admin_get("/livez").await.0, 200);
    gate.add_permits(1);
    let text = client.read_to_end().await;
    assert!(text.ends_with("\r\n0\r\n\r\n"), "whole: {text}");
    router.stopped().await.unwrap();
}

#[tokio::test]
async fn a116_new_requests_are_served_while_others_still_learn_of_the_drain() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.drain_delay = Duration::from_secs(1);
    let mut router = TestRouter::start(config).await;
    router.tell_to_stop();
    until("it drains", || router.status().router.phase == "draining").await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["connection"], "close", "the next one goes to another router");
    router.stopped().await.unwrap();
}

#[tokio::test]
async fn a114_what_does_not_end_in_time_is_ended_with_an_error() {
    let engine = RawEngine::start(|mut conn| async move {
        let Some(seen) = conn.request().await else { return };
        if seen.head.contains("/v1/chat") {
            conn.write(EVENT_STREAM).await;
            conn.chunk(b"data: 1\n\n").await;
        }
        conn.closed().await;
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.drain_timeout = Duration::from_millis(100);
    let mut router = TestRouter::start(config).await;
    let mut stream = RawClient::send(router.addr, chat_stream()).await;
    let mut whole = RawClient::send(router.addr, post("/v1/completions", "{}")).await;
    stream.read_until("data: 1").await;
    until("both are in flight", || engine.seen().len() == 2).await;
    router.tell_to_stop();
    let text = stream.read_to_end().await;
    assert!(text.contains("\"code\":\"shutting_down\"") && !text.ends_with("0\r\n\r\n"), "{text}");
    let text = whole.read_to_end().await;
    assert!(text.starts_with("HTTP/1.1 503 ") && text.contains("shutting_down"), "{text}");
    router.stopped().await.unwrap();
}

#[tokio::test]
async fn a115_idle_connections_do_not_hold_the_drain() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut router = TestRouter::before(&[&engine]).await;
    let mut idle = RawClient::send(router.addr, chat()).await;
    idle.read_until("{}").await;
    let mut fresh = RawClient::connect(router.addr).await;
    router.tell_to_stop();
    idle.read_to_end().await;
    fresh.read_to_end().await;
    router.stopped().await.unwrap();
}

#[tokio::test]
async fn a_client_that_asks_again_while_the_router_closes_is_answered_and_sent_elsewhere() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat()).await;
    client.read_until("{}").await;
    router.tell_to_stop();
    // Its port is closed after the delay, which is none here.
    until("it takes no more connections", || std::net::TcpStream::connect(router.addr).is_err()).await;
    client.write(chat()).await;
    let text = client.read_to_end().await;
    assert_eq!(text.matches("HTTP/1.1 200 ").count(), 2, "{text}");
    assert!(text.contains("connection: close\r\n"), "{text}");
    router.stopped().await.unwrap();
}
