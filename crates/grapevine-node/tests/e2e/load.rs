//! Limits and counts.

use crate::support::*;

/// An engine that holds every request until it is dropped.
async fn holding() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await
}

#[tokio::test]
async fn a18_over_the_routers_limit_it_says_so_before_the_body_is_read() {
    let engine = holding().await;
    let mut config = config(&[engine.addr]);
    config.max_inflight = 1;
    let router = TestRouter::start(config).await;
    let held = RawClient::send(router.addr, chat()).await;
    until("the slot is taken", || engine.seen().len() == 1).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 10000000\r\n\r\n";
    let mut client = RawClient::send(router.addr, head).await;
    client.read_until("\r\n\r\n").await;
    let text = client.text().to_lowercase();
    assert!(text.starts_with("http/1.1 503 "), "{text}");
    assert!(text.contains("x-grapevine-error: overloaded") && text.contains("retry-after: 1"), "{text}");
    drop(held);
    router.quiet().await;
}

#[tokio::test]
async fn a_full_replica_is_overloaded_too() {
    let engine = holding().await;
    let mut config = config(&[engine.addr]);
    config.max_inflight_per_replica = 1;
    let router = TestRouter::start(config).await;
    let held = RawClient::send(router.addr, chat()).await;
    until("the slot is taken", || engine.seen().len() == 1).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["x-grapevine-error"]),
        (503, &"overloaded".parse().unwrap())
    );
    drop(held);
    router.quiet().await;
}

#[tokio::test]
async fn a54_a_request_counts_until_its_last_byte() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n").await;
        conn.head().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::send(router.addr, chat()).await;
    client.read_until("\r\n\r\n").await;
    let status = router.status();
    assert_eq!((status.inflight, status.replicas[0].inflight), (1, 1));
    drop(client);
    router.quiet().await;
}

#[tokio::test]
async fn status_and_metrics_show_what_happened() {
    let usage = r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#;
    let engine = RawEngine::json("200 OK", usage).await;
    let router = TestRouter::before(&[&engine]).await;
    let body = serde_json::json!({ "prompt": "lorem ipsum ".repeat(300) }).to_string();
    for _ in 0..2 {
        let sent = http().post(router.url("/v1/completions")).body(body.clone()).send().await.unwrap();
        sent.bytes().await.unwrap();
    }
    router.ended("ok", 2).await;
    until("gossip has begun", || router.status().gossip.running).await;
    let (code, json) = router.admin_get("/api/v1/status").await;
    let status: grapevine_node::admin::status::Status = serde_json::from_str(&json).unwrap();
    assert_eq!((code, status.lookups, status.hits), (200, 2, 1));
    assert_eq!(status.decisions["only"], 2);
    assert_eq!((status.replicas[0].picks, status.tokens.reported_cached), (2, 8));
    assert!(status.tokens.predicted_cached > 0 && status.tokens.prompt > status.tokens.predicted_cached);
    let (code, text) = router.admin_get("/metrics").await;
    assert_eq!(code, 200);
    for line in [
        "grapevine_requests_total{outcome=\"ok\"} 2",
        "grapevine_decisions_total{reason=\"only\"} 2",
        "grapevine_lookups_total 2",
        "grapevine_hits_total 1",
        "grapevine_reported_cached_tokens_total 8",
        "grapevine_decision_seconds_count 2",
        r#"gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="text_completion",gen_ai_provider_name="openai"} 2"#,
        r#"http_server_request_duration_seconds_count{http_request_method="POST",url_scheme="http",http_route="/v1/completions",http_response_status_code="200"} 2"#,
        "grapevine_replica_picks_total{replica=\"r0\"} 2",
        "grapevine_replica_up{replica=\"r0\"} 1",
        "grapevine_inflight_requests 0",
        "grapevine_mailbox_messages{actor=\"tree\"} 0",
        "grapevine_gossip_up 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    assert_eq!(router.admin_get("/nowhere").await.0, 404);
}

#[tokio::test]
async fn a_streams_time_is_parted_at_its_first_token() {
    let events = "event: message_start\ndata: {}\n\nevent: content_block_delta\ndata: {}\n\n\
        event: message_delta\ndata: {\"usage\":{\"input_tokens\":9,\"output_tokens\":5}}\n\n\
        event: message_stop\ndata: {}\n\n";
    let engine = RawEngine::start(move |mut conn| async move {
        conn.request().await;
        conn.write(EVENT_STREAM).await;
        conn.chunk(events.as_bytes()).await;
        conn.chunk(b"").await;
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let sent = http().post(router.url("/v1/messages")).body(r#"{"stream":true}"#).send().await.unwrap();
    assert_eq!(sent.text().await.unwrap(), events);
    router.ended("ok", 1).await;
    // Refused by its head: no inference, and never at an engine.
    assert_eq!(http().post(router.url("/sleep")).send().await.unwrap().status(), 403);
    router.ended("refused", 1).await;
    let text = router.admin_get("/metrics").await.1;
    let labels = r#"{gen_ai_operation_name="chat",gen_ai_provider_name="anthropic"}"#;
    for line in [
        format!("gen_ai_server_request_duration_seconds_count{labels} 1"),
        format!("gen_ai_server_time_to_first_token_seconds_count{labels} 1"),
        format!("gen_ai_server_time_per_output_token_seconds_count{labels} 1"),
        r#"http_server_request_duration_seconds_count{http_request_method="POST",url_scheme="http",http_response_status_code="403"} 1"#.to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a18_who_waits_is_served_when_a_place_is_free_and_its_body_is_read_only_then() {
    let engine = holding().await;
    let mut config = config(&[engine.addr]);
    (config.max_inflight, config.queue_limit) = (1, 1);
    let router = TestRouter::start(config).await;
    let held = RawClient::send(router.addr, chat()).await;
    until("the place is taken", || engine.seen().len() == 1).await;
    let head =
        "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n";
    let mut waits = RawClient::send(router.addr, head).await;
    until("it waits", || router.status().waiting == 1).await;
    let refused = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(refused.headers()["x-grapevine-error"], "overloaded", "the queue is full");
    assert_eq!(waits.text(), "", "not asked for its body");
    drop(held);
    waits.read_until("100 Continue").await;
    waits.write("{}").await;
    until("it reached the engine", || engine.seen().len() == 2).await;
    drop(waits);
    router.quiet().await;
}

#[tokio::test]
async fn who_waits_too_long_is_told_so() {
    let engine = holding().await;
    let mut config = config(&[engine.addr]);
    (config.max_inflight, config.queue_limit) = (1, 4);
    config.queue_timeout = std::time::Duration::from_millis(20);
    let router = TestRouter::start(config).await;
    let held = RawClient::send(router.addr, chat()).await;
    until("the place is taken", || engine.seen().len() == 1).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["x-grapevine-error"], "queue_timeout");
    assert_eq!(answer.headers()["retry-after"], "1");
    drop(held);
    router.quiet().await;
}

#[tokio::test]
async fn a89_the_first_request_is_served_by_load_alone() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let body = serde_json::json!({ "prompt": "lorem ipsum ".repeat(300) }).to_string();
    let answer = http().post(router.url("/v1/completions")).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!((router.status().lookups, router.status().hits), (1, 0));
}
