//! Streams pass as they come, and a broken one never looks whole.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::support::*;

const TEXT: &str = "你好🦀";

fn dechunk(response: &str) -> (String, bool) {
    let (_, mut rest) = response.split_once("\r\n\r\n").expect("a head");
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            return (body, true);
        }
        body.push_str(&tail[..size]);
        rest = &tail[size + 2..];
    }
    (body, false)
}

#[tokio::test]
async fn a1_bytes_out_are_bytes_in_when_every_byte_is_a_chunk() {
    let event = format!("data: {{\"text\":\"{TEXT}\"}}\n\ndata: [DONE]\n\n");
    let script = event.clone();
    let engine = RawEngine::start(move |mut conn| {
        let script = script.clone();
        async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            for byte in script.as_bytes() {
                conn.chunk(&[*byte]).await;
            }
            conn.chunk(b"").await;
            conn.closed().await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), event);
    router.ended("ok", 1).await;
}

#[tokio::test]
async fn a2_a9_each_event_arrives_before_the_next_is_made_long_after_the_headers() {
    let next = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&next);
    let engine = RawEngine::start(move |mut conn| {
        let gate = Arc::clone(&gate);
        async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            for i in 0..5 {
                gate.acquire().await.unwrap().forget();
                conn.chunk(format!("data: {i}\n\n").as_bytes()).await;
            }
            conn.chunk(b"").await;
            conn.closed().await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("\r\n\r\n").await;
    for i in 0..5 {
        next.add_permits(1);
        client.read_until(&format!("data: {i}\n\n")).await;
    }
    client.read_until("\r\n0\r\n\r\n").await;
}

#[tokio::test]
async fn a4_a_length_on_an_event_stream_is_not_forwarded_and_the_body_is_whole() {
    let body = "data: 1\n\ndata: [DONE]\n\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let engine = RawEngine::answering(head).await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    let headers = answer.headers().clone();
    assert!(!headers.contains_key("content-length"));
    assert_eq!(
        (&headers["x-accel-buffering"], &headers["cache-control"]),
        (&"no".parse().unwrap(), &"no-cache".parse().unwrap()),
        "a3"
    );
    assert_eq!(answer.text().await.unwrap(), body);
}

#[tokio::test]
async fn a5_a_slow_reader_slows_the_engine_and_fills_no_memory() {
    let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&written);
    let engine = RawEngine::start(move |mut conn| {
        let count = Arc::clone(&count);
        async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            let event = format!("data: {}\n\n", "x".repeat(16_000));
            for _ in 0..20_000 {
                conn.chunk(event.as_bytes()).await;
                count.fetch_add(event.len(), std::sync::atomic::Ordering::SeqCst);
            }
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("data: ").await;
    // The client reads no more: what the engine could write is what fits into buffers on the way.
    let stalled = || written.load(std::sync::atomic::Ordering::SeqCst);
    let mut last = 0;
    soon(async {
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let now = stalled();
            if now == last {
                break;
            }
            last = now;
        }
    })
    .await;
    assert!(last < 64 << 20, "the engine could write {last} of 320 MB");
    drop(client);
    router.quiet().await;
}

/// An engine that sends `before` as events and then dies with a reset.
async fn dying(before: &'static str) -> RawEngine {
    RawEngine::start(move |mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        conn.chunk(before.as_bytes()).await;
        // Time for the bytes to be read before the reset throws them away.
        tokio::time::sleep(Duration::from_millis(50)).await;
        conn.reset();
    })
    .await
}

#[tokio::test]
async fn a6_a_cut_stream_ends_with_an_error_event_and_never_cleanly() {
    let engine = dying("data: 1\n\ndata: 2\n\n").await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    let (body, clean) = dechunk(&client.read_to_end().await);
    let error = body.strip_prefix("data: 1\n\ndata: 2\n\ndata: ").expect("both events, then the error");
    let error: serde_json::Value = serde_json::from_str(error).unwrap();
    assert_eq!(error["error"]["type"], "router_error");
    assert_eq!(error["error"]["code"], "engine_cut");
    assert!(!clean, "no terminating chunk");
    assert!(!body.contains("[DONE]"), "a7");
    router.ended("engine_cut", 1).await;
    router.quiet().await;
}

#[tokio::test]
async fn a6_a_stream_cut_within_an_event_closes_that_event_first() {
    let engine = dying("data: {\"a\":").await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    let (body, clean) = dechunk(&client.read_to_end().await);
    assert!(body.starts_with("data: {\"a\":\n\ndata: {\"error\":"), "{body}");
    assert!(!clean);
}

#[tokio::test]
async fn a6_each_api_gets_its_own_error_event() {
    for (path, expected) in [
        ("/v1/messages", "event: error\ndata: {"),
        ("/v1/responses", "event: response.failed\ndata: {"),
        ("/v1/completions", "data: {\"error\":"),
    ] {
        let engine = dying("event: x\ndata: 1\n\n").await;
        let router = TestRouter::before(&[&engine]).await;
        let mut client = RawClient::send(router.addr, post(path, r#"{"stream":true}"#)).await;
        let (body, clean) = dechunk(&client.read_to_end().await);
        assert!(body.starts_with(&format!("event: x\ndata: 1\n\n{expected}")), "{path}: {body}");
        assert!(!clean, "{path}");
    }
}

#[tokio::test]
async fn a7_an_engine_that_ended_in_its_own_words_is_not_corrected() {
    let said = "data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let engine = dying(said).await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    let (body, clean) = dechunk(&client.read_to_end().await);
    assert_eq!((body.as_str(), clean), (said, false));
}

#[tokio::test]
async fn an_error_event_within_a_clean_stream_counts_as_a_failure() {
    let said = "data: {\"error\":{\"message\":\"x\",\"code\":500}}\n\ndata: [DONE]\n\n";
    let engine = RawEngine::start(move |mut conn| async move {
        while conn.request().await.is_some() {
            conn.write(EVENT_STREAM).await;
            conn.chunk(said.as_bytes()).await;
            conn.chunk(b"").await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), said);
    router.ended("stream_failed", 1).await;
}

#[tokio::test]
async fn a44_an_engine_that_falls_silent_is_given_up_after_the_idle_limit() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        conn.chunk(b"data: 1\n\n").await;
        conn.closed().await;
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.idle_timeout = Duration::from_millis(100);
    let router = TestRouter::start(config).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    let (body, clean) = dechunk(&client.read_to_end().await);
    assert!(body.contains("engine_idle") && !clean, "{body}");
    until("the engine's connection is closed", || engine.closed() == 1).await;
    router.ended("engine_idle", 1).await;
}

#[tokio::test]
async fn a44_headers_and_comments_are_not_a_first_event() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        for _ in 0..10_000 {
            conn.chunk(b": keep-alive\n\n").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.stream_first_byte_timeout = Duration::from_millis(300);
    let router = TestRouter::start(config).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until(": keep-alive").await;
    assert!(router.status().replicas[0].queued_tokens > 0, "still queued there");
    let (body, _) = dechunk(&client.read_to_end().await);
    assert!(body.contains("engine_idle"), "{body}");
}

#[tokio::test]
async fn a38_a39_no_limit_is_a_total_limit() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        for _ in 0..20 {
            conn.chunk(b"data: 1\n\n").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        conn.chunk(b"").await;
        conn.closed().await;
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.idle_timeout = Duration::from_millis(500);
    config.first_byte_timeout = Duration::from_millis(500);
    let router = TestRouter::start(config).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "data: 1\n\n".repeat(20));
}

#[tokio::test]
async fn usage_is_read_from_streams_and_whole_answers() {
    let usage = r#""usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":64}}"#;
    let whole = RawEngine::json("200 OK", &format!("{{\"choices\":[],{usage}}}")).await;
    let event = format!("data: {{\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n");
    let stream = RawEngine::start(move |mut conn| {
        let event = event.clone();
        async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            conn.chunk(event.as_bytes()).await;
            conn.chunk(b"").await;
            conn.closed().await;
        }
    })
    .await;
    for engine in [whole, stream] {
        let router = TestRouter::before(&[&engine]).await;
        let sent = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        sent.bytes().await.unwrap();
        router.ended("ok", 1).await;
        let tokens = router.status().tokens;
        assert_eq!((tokens.reported_prompt, tokens.reported_cached), (100, 64));
        assert_eq!(router.status().replicas[0].tokens.reported_cached, 64, "a88");
    }
}

#[tokio::test]
async fn trailers_are_kept() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(b"HTTP/1.1 200 OK\r\ntrailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n").await;
        conn.write(b"2\r\nhi\r\n0\r\nx-sum: 42\r\n\r\n").await;
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let request = "GET /v1/x HTTP/1.1\r\nhost: r\r\nte: trailers\r\n\r\n";
    let mut client = RawClient::send(router.addr, request).await;
    client.read_until("x-sum: 42\r\n").await;
}

#[tokio::test]
async fn a8_a_silent_prefill_is_bridged_by_comments_and_never_inside_an_event() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        conn.chunk(b"data: half").await;
        tokio::time::sleep(Duration::from_millis(120)).await;
        conn.chunk(b" and half\n\ndata: [DONE]\n\n").await;
        conn.chunk(b"").await;
        conn.closed().await;
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.stream_keepalive = Duration::from_millis(20);
    let router = TestRouter::start(config).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    let text = answer.text().await.unwrap();
    assert!(text.starts_with(": keep-alive\n\n"), "{text}");
    let rest = text.replace(": keep-alive\n\n", "");
    assert_eq!(rest, "data: half and half\n\ndata: [DONE]\n\n", "the engine's own bytes: {text}");
}
