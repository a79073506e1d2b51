//! Queueing, clients that leave, restarts and ends.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::super::EngineConfig;
use super::client::*;

const CHAT: &str = "/v1/chat/completions";

/// So slow that nothing ends by itself during a test.
fn endless() -> EngineConfig {
    EngineConfig { decode_per_token: Duration::from_secs(1000), ..EngineConfig::instant() }
}

fn stream(content: &str) -> Value {
    with(chat(content), &json!({ "stream": true }))
}

#[tokio::test]
async fn never_more_run_than_there_are_slots() {
    let config =
        EngineConfig { slots: 3, decode_per_token: Duration::from_millis(2), ..EngineConfig::instant() };
    let engine = start(config).await;
    let asks = (0..20).map(|i| {
        let (engine, body) = (&engine, chat(&format!("question {i}")));
        async move { post(engine, CHAT, &body).await.status() }
    });
    let statuses = futures_util::future::join_all(asks).await;
    assert!(statuses.iter().all(|status| *status == 200));
    let stats = engine.stats();
    assert_eq!((stats.max_running, stats.completed), (3, 20));
    assert!(stats.max_waiting >= 1);
}

#[tokio::test]
async fn choices_and_prompts_of_one_request_each_take_a_slot() {
    let engine = start(EngineConfig { slots: 8, ..endless() }).await;
    let body = json!({ "prompt": ["a", "b", "c"], "n": 2, "max_tokens": 2, "stream": true });
    let _sent = post_open(&engine, "/v1/completions", &body).await;
    until(&engine, "six running", |s| s.running == 6).await;
}

#[tokio::test]
async fn a_full_queue_refuses_but_takes_nothing_from_those_in_it() {
    let engine = start(EngineConfig { slots: 1, max_queue: 1, ..endless() }).await;
    let mut first = post_open(&engine, CHAT, &stream("one")).await;
    until(&engine, "running", |s| s.running == 1).await;
    let mut second = post_open(&engine, CHAT, &stream("two")).await;
    until(&engine, "waiting", |s| s.waiting == 1).await;
    let third = post(&engine, CHAT, &stream("three")).await;
    assert_eq!((third.status(), engine.stats().rejected), (503, 1));
    assert!(third.head().contains("content-type: application/json"));
    // The head of a stream comes before its turn does.
    assert!(second.read_until("\r\n\r\n").await.contains("200 OK"));
    first.read_until("data: ").await;
    drop(first);
    second.read_until("data: ").await;
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_slot_at_once() {
    let engine = start(EngineConfig { slots: 1, ..endless() }).await;
    for body in [stream("one"), chat("two")] {
        let before = engine.stats().aborted;
        let sent = post_open(&engine, CHAT, &body).await;
        until(&engine, "running", |s| s.running == 1).await;
        drop(sent);
        until(&engine, "aborted", |s| s.running == 0 && s.aborted == before + 1).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_forgotten() {
    let engine = start(EngineConfig { slots: 1, ..endless() }).await;
    let _first = post_open(&engine, CHAT, &stream("one")).await;
    until(&engine, "running", |s| s.running == 1).await;
    for body in [stream("two"), chat("three")] {
        let sent = post_open(&engine, CHAT, &body).await;
        until(&engine, "waiting", |s| s.waiting == 1).await;
        drop(sent);
        until(&engine, "gone", |s| s.waiting == 0).await;
    }
    assert_eq!(engine.stats().running, 1);
}

#[tokio::test]
async fn prefills_run_one_after_the_other() {
    let config = EngineConfig { base: Duration::from_secs(1000), ..EngineConfig::instant() };
    let engine = start(config.clone()).await;
    let _first = post_open(&engine, CHAT, &stream("one")).await;
    let _second = post_open(&engine, CHAT, &stream("two")).await;
    until(&engine, "one each", |s| s.running == 1 && s.waiting == 1).await;
    let engine = start(EngineConfig { serial_prefill: false, ..config }).await;
    let _first = post_open(&engine, CHAT, &stream("one")).await;
    let _second = post_open(&engine, CHAT, &stream("two")).await;
    until(&engine, "both", |s| s.running == 2).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let idle = Duration::from_millis(50);
    let engine = start(EngineConfig { keep_alive_idle: idle, ..EngineConfig::instant() }).await;
    let sent = Sent(TcpStream::connect(engine.addr()).await.unwrap());
    let raw = sent.finish().await;
    assert_eq!((raw.bytes.len(), raw.error), (0, None));
}

#[tokio::test]
async fn a_restart_forgets_everything_but_its_faults_and_its_address() {
    let engine = start(endless()).await;
    let started = |text: &str| {
        let line = text.lines().find(|l| l.starts_with("process_start_time_seconds")).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let before = started(&get(&engine, "/metrics").await.text());
    let sent = post_open(&engine, CHAT, &stream("one")).await;
    until(&engine, "running", |s| s.running == 1).await;
    let (addr, faults) = (engine.addr(), engine.faults().clone());
    engine.restart_empty().await;
    assert_eq!(sent.finish().await.body(), None, "the stream was cut");
    assert_eq!((engine.addr(), engine.stats().requests, engine.stats().blocks_held), (addr, 0, 0));
    assert_ne!(started(&get(&engine, "/metrics").await.text()), before);
    faults.add(super::super::FaultRule::always(super::super::Fault::Status { code: 500 }));
    assert_eq!(post(&engine, CHAT, &chat("two")).await.status(), 500);
}

#[tokio::test]
async fn a_restart_over_http() {
    let engine = instant().await;
    post(&engine, CHAT, &chat(&"x".repeat(100))).await;
    assert_eq!(post(&engine, "/restart", &json!({ "down_ms": 1 })).await.status(), 200);
    until(&engine, "restarted", |s| s.requests == 0).await;
}

#[tokio::test]
async fn a_reset_empties_the_cache() {
    let engine = instant().await;
    post(&engine, CHAT, &chat(&"x".repeat(100))).await;
    assert!(engine.stats().blocks_held > 0);
    assert_eq!(get(&engine, "/reset").await.json(), json!({}));
    let stats = engine.stats();
    assert_eq!((stats.requests, stats.blocks_held, stats.blocks_capacity), (0, 0, 4096));
}

#[tokio::test]
async fn a_stopped_engine_refuses() {
    let engine = instant().await;
    engine.stop().await;
    assert!(TcpStream::connect(engine.addr()).await.is_err());
}

#[tokio::test]
async fn a_dropped_engine_refuses() {
    let engine = instant().await;
    let addr = engine.addr();
    drop(engine);
    let gone = async {
        while TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the listener is closed");
}

#[tokio::test]
async fn sigterm_without_grace_ends_streams_with_an_error_event() {
    let engine = start(endless()).await;
    let mut sent = post_open(&engine, CHAT, &stream("one")).await;
    sent.read_until("data: ").await;
    engine.shut_down(Duration::ZERO).await;
    let rest = sent.finish().await;
    assert_eq!(rest.events().last().unwrap(), "[DONE]");
    assert!(rest.text().contains("EngineCore encountered an issue"));
}

#[tokio::test]
async fn a_draining_engine_is_healthy_and_answers_500() {
    let engine = start(endless()).await;
    let mut sent = post_open(&engine, CHAT, &stream("one")).await;
    sent.read_until("data: ").await;
    let drain = engine.shut_down(Duration::from_secs(1000));
    let during = async {
        loop {
            let raw = post(&engine, CHAT, &chat("two")).await;
            if raw.status() == 500 {
                assert!(raw.text().contains("cannot schedule new futures after shutdown"));
                break;
            }
        }
        assert_eq!(get(&engine, "/health").await.status(), 200);
        drop(sent);
    };
    tokio::join!(drain, during);
    assert!(TcpStream::connect(engine.addr()).await.is_err());
}
