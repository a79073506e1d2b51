//! Requests that are made to cost much.

use std::collections::BTreeSet;

use crate::support::*;

/// Enough to see growth, few enough for a debug build.
const MANY: usize = 1_000;

#[tokio::test]
async fn a108_a109_no_label_of_a_metric_comes_from_a_request() {
    let engine = RawEngine::json("404 Not Found", r#"{"error":{"message":"no such model"}}"#).await;
    let router = TestRouter::before(&[&engine]).await;
    let client = http();
    let ask = async |i: usize| {
        let body = format!("{{\"model\":\"fake-{i}\",\"prompt\":\"{i}\"}}");
        let path = if i.is_multiple_of(2) { "/v1/completions".to_owned() } else { format!("/v1/fake/{i}") };
        let request = client.post(router.url(&path)).header("x-tenant", i.to_string());
        request
            .header("user-agent", format!("fake-{i}"))
            .body(body)
            .send()
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
    };
    // Names and labels without values.
    let series = async || -> BTreeSet<String> {
        let text = router.admin_get("/metrics").await.1;
        text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    };
    // A path that is known and one that is not.
    ask(0).await;
    ask(1).await;
    until("gossip has begun", || router.status().gossip.running).await;
    let before = series().await;
    for i in 2..MANY {
        ask(i).await;
    }
    router.ended("client_error", MANY as u64).await;
    let after = series().await;
    assert_eq!(after.difference(&before).collect::<Vec<_>>(), [""; 0]);
    let text = router.admin_get("/metrics").await.1;
    assert!(!text.contains("fake"), "{text}");
}

#[tokio::test]
async fn json_that_is_nested_deeply_is_forwarded_like_any_other() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let depth = 200_000;
    let deep = format!("{{\"messages\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let named = format!("{{\"previous_response_id\":{}", "{\"a\":".repeat(depth));
    for (path, body) in [("/v1/chat/completions", deep), ("/v1/responses", named)] {
        let answer = http().post(router.url(path)).body(body.clone()).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(engine.seen().last().unwrap().body == body.as_bytes());
    }
}

#[tokio::test]
async fn connections_that_say_nothing_keep_nobody_out() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let mut silent = Vec::new();
    for i in 0..MANY / 2 {
        let opening = ["", "G", "GET /v1/x HTTP/1.1\r\n", "GET /v1/x HTTP/1.1\r\nx: "][i % 4];
        silent.push(RawClient::send(router.addr, opening).await);
    }
    for _ in 0..20 {
        let answer = http().post(router.url("/v1/x")).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 200);
    }
    assert_eq!(router.status().inflight, 0, "a head that is not whole holds no place");
}
