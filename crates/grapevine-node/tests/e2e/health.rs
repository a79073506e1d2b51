//! Who gets requests when somebody is not well.

use std::time::Duration;

use crate::support::*;

#[tokio::test]
async fn a41_a_get_is_answered_while_a_replica_is_down() {
    let dead = RawEngine::json("200 OK", "{}").await.kill().await;
    let models = r#"{"object":"list","data":[]}"#;
    let (one, two) = (RawEngine::json("200 OK", models).await, RawEngine::json("200 OK", models).await);
    let router = TestRouter::start(config(&[dead, one.addr, two.addr])).await;
    for _ in 0..10 {
        let answer = http().get(router.url("/v1/models")).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.text().await.unwrap(), models);
    }
}

#[tokio::test]
async fn a45_it_starts_at_once_and_is_ready_when_a_replica_may_be_alive() {
    let dead = RawEngine::json("200 OK", "{}").await.kill().await;
    let mut config = config(&[dead]);
    config.health_interval = Duration::from_millis(50);
    let router = TestRouter::start(config).await;
    assert_eq!(router.admin_get("/livez").await.0, 200);
    until("the replica counts as down", || router.status().replicas[0].health == "unreachable").await;
    assert_eq!(router.admin_get("/readyz").await.0, 503);
    assert_eq!(router.admin_get("/livez").await.0, 200, "it lives all the same");
    let engine =
        RawEngine::start_on(dead, |mut conn| async move { while conn.request().await.is_some() {} }).await;
    until("it is back", || router.status().replicas[0].health == "up").await;
    assert_eq!(router.admin_get("/readyz").await.0, 200);
    until("a87: its restart was noticed", || router.status().replicas[0].epoch == 1).await;
    drop(engine);
}

#[tokio::test]
async fn a50_an_engine_that_is_loading_gets_nothing() {
    let loading = RawEngine::start(|mut conn| async move {
        while let Some(head) = conn.head().await {
            let _ = head;
            conn.write(&json_response("503 Service Unavailable", r#"{"error":{"message":"Loading model"}}"#))
                .await;
        }
    })
    .await;
    let up = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[loading.addr, up.addr]);
    config.health_interval = Duration::from_millis(50);
    let router = TestRouter::start(config).await;
    until("it counts as not ready", || router.status().replicas[0].health == "not_ready").await;
    for _ in 0..10 {
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        assert_eq!(answer.headers()["x-grapevine-replica"], "r1");
    }
}

#[tokio::test]
async fn instant_500s_push_a_replica_out() {
    let draining = RawEngine::json("500 Internal Server Error", r#"{"error":{"message":"no"}}"#).await;
    let good = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[draining.addr, good.addr]);
    config.policy = grapevine_route::Policy::LeastLoaded;
    let router = TestRouter::start(config).await;
    for _ in 0..40 {
        http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    }
    assert!(draining.seen().len() <= 6, "{} of 40", draining.seen().len());
}

#[tokio::test]
async fn who_begins_every_answer_and_breaks_it_off_is_left_alone() {
    let breaking = RawEngine::start(|mut conn: Conn| async move {
        if conn.request().await.is_some() {
            let head =
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            conn.write(head).await;
            conn.write(b"a\r\ndata: {}\n\n\r\n").await;
        }
    })
    .await;
    let good = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[breaking.addr, good.addr]);
    config.policy = grapevine_route::Policy::LeastLoaded;
    let router = TestRouter::start(config).await;
    for _ in 0..40 {
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        // An answer that is broken off may end in an error here as well.
        let _ = answer.bytes().await;
    }
    assert!(breaking.seen().len() <= 6, "{} of 40", breaking.seen().len());
}

#[tokio::test]
async fn a87_a_restarted_engine_is_not_believed_to_hold_anything() {
    let ok = |mut conn: Conn| async move {
        while conn.request().await.is_some() {
            conn.write(&json_response("200 OK", "{}")).await;
        }
    };
    let engine = RawEngine::start(ok).await;
    let mut config = config(&[engine.addr]);
    config.health_interval = Duration::from_millis(50);
    config.debug_headers = true;
    let router = TestRouter::start(config).await;
    let body = serde_json::json!({ "prompt": "lorem ipsum ".repeat(300) }).to_string();
    let matched = async || {
        let answer = http().post(router.url("/v1/completions")).body(body.clone()).send().await.unwrap();
        answer.headers().get("x-grapevine-matched-tokens").map(|v| v.to_str().unwrap().to_owned())
    };
    assert_eq!(matched().await.as_deref(), Some("0"));
    assert_ne!(matched().await.as_deref(), Some("0"), "a66: the second is a hit");
    let addr = engine.kill().await;
    until("it is seen to be gone", || router.status().replicas[0].health == "unreachable").await;
    let _back = RawEngine::start_on(addr, ok).await;
    until("its restart was noticed", || router.status().replicas[0].epoch == 1).await;
    assert_eq!(matched().await.as_deref(), Some("0"));
}

#[tokio::test]
async fn a42_a_health_path_behind_a_key_does_not_make_a_replica_down() {
    let engine = RawEngine::start(|mut conn| async move {
        loop {
            let Some(head) = conn.head().await else { return };
            let status = if head.starts_with("GET /health") { "401 Unauthorized" } else { "200 OK" };
            conn.write(&json_response(status, "{}")).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.health_interval = Duration::from_millis(20);
    let router = TestRouter::start(config).await;
    until("it was probed a few times", || engine.connections() >= 1).await;
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(router.status().replicas[0].health, "up");
    }
}
