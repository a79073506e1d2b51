//! What the router learns from engines' metrics.

use std::time::Duration;

use grapevine_node::config::Config;
use grapevine_testkit::engine::{Engine, EngineConfig};

use crate::support::*;

fn looking(engines: &[std::net::SocketAddr]) -> Config {
    let mut config = config(engines);
    config.metrics_interval = Duration::from_millis(50);
    config
}

/// An engine that answers `GET /metrics` with these bytes and knows nothing else.
async fn with_metrics(answer: Vec<u8>) -> RawEngine {
    let answer = std::sync::Arc::new(answer);
    RawEngine::start(move |mut conn| {
        let answer = std::sync::Arc::clone(&answer);
        async move {
            while let Some(seen) = conn.request().await {
                if seen.request_line().starts_with("GET /metrics ") {
                    conn.write(&answer).await;
                } else {
                    conn.write(&json_response("404 Not Found", r#"{"detail":"Not Found"}"#)).await;
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn the_engine_says_how_large_its_cache_is() {
    let engine =
        Engine::start(EngineConfig { cache_blocks: 1_340, ..EngineConfig::instant() }).await.unwrap();
    let router = TestRouter::start(looking(&[engine.addr()])).await;
    until("its metrics are read", || router.status().replicas[0].engine.cache_tokens == Some(21_440)).await;
    let engine = router.status().replicas[0].engine.clone();
    assert_eq!(engine.kind, "vllm");
    assert_eq!((engine.waiting, engine.running, engine.kv_use), (Some(0.0), Some(0.0), Some(0.0)));
    let (status, metrics) = router.admin_get("/metrics").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("grapevine_engine_cache_tokens{replica=\"r0\"} 21440"), "{metrics}");
}

#[tokio::test]
async fn a87_another_process_at_the_same_address_has_an_empty_cache() {
    let process =
        |started: f64| format!("process_start_time_seconds {started}\nvllm:num_requests_waiting 0\n");
    let started = std::sync::Arc::new(std::sync::Mutex::new(1.7e9));
    let now = std::sync::Arc::clone(&started);
    let engine = RawEngine::start(move |mut conn| {
        let now = std::sync::Arc::clone(&now);
        async move {
            while conn.request().await.is_some() {
                let body = process(*now.lock().unwrap());
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                conn.write(format!("{head}{body}").as_bytes()).await;
            }
        }
    })
    .await;
    let router = TestRouter::start(looking(&[engine.addr])).await;
    until("its metrics are read", || router.status().replicas[0].engine.age_ms.is_some()).await;
    assert_eq!(router.status().replicas[0].epoch, 0);
    *started.lock().unwrap() += 100.0;
    until("the other process is noticed", || router.status().replicas[0].epoch == 1).await;
    assert_eq!(router.status().replicas[0].health, "up", "nobody met a closed port");
}

#[tokio::test]
async fn what_is_no_metrics_is_asked_once_and_harms_nothing() {
    let html = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>";
    let junk = format!("HTTP/1.1 200 OK\r\ncontent-length: 4000000\r\n\r\n{}", "x".repeat(4_000_000));
    for answer in [html.to_owned(), junk] {
        let engine = with_metrics(answer.into_bytes()).await;
        let other = Engine::start(EngineConfig::instant()).await.unwrap();
        let router = TestRouter::start(looking(&[engine.addr, other.addr()])).await;
        let looked = |n: usize| router.status().replicas[n].engine.age_ms;
        until("its neighbour was looked at", || looked(1).is_some()).await;
        until("it was looked at", || !engine.seen().is_empty()).await;
        for _ in 0..2 {
            until("its neighbour is looked at again", || looked(1).is_some_and(|age| age > 5)).await;
            until("its neighbour is looked at again", || looked(1).is_some_and(|age| age < 5)).await;
        }
        assert_eq!(looked(0), None);
        let mut asked: Vec<_> = engine.seen().iter().map(|seen| seen.request_line().to_owned()).collect();
        let all = asked.len();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len(), all, "each page once");
        assert_eq!(router.status().replicas[0].health, "up");
    }
}

#[tokio::test]
async fn llama_cpp_says_in_its_properties_how_large_its_cache_is() {
    let engine = RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            let props = r#"{"default_generation_settings":{"n_ctx":4096},"total_slots":2}"#;
            let answer = match seen.request_line().split(' ').nth(1) {
                Some("/props") => json_response("200 OK", props),
                _ => json_response("501 Not Implemented", r#"{"error":{}}"#),
            };
            let answer =
                String::from_utf8_lossy(&answer).replace("\r\n\r\n", "\r\nserver: llama.cpp\r\n\r\n");
            conn.write(answer.as_bytes()).await;
        }
    })
    .await;
    let router = TestRouter::start(looking(&[engine.addr])).await;
    until("its properties are read", || router.status().replicas[0].engine.cache_tokens == Some(8_192)).await;
    assert_eq!(router.status().replicas[0].engine.kind, "llama.cpp");
}
