//! What is sent again, and what never.

use std::time::Duration;

use crate::support::*;

const BUSY: &str = r#"{"error":{"message":"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.","type":"ServiceUnavailable","param":null,"code":503}}"#;
const LEAVING: &str = r#"{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError","param":null,"code":500}}"#;

/// An address where nobody listens.
async fn nobody() -> std::net::SocketAddr {
    RawEngine::json("200 OK", "{}").await.kill().await
}

#[tokio::test]
async fn a16_a_request_that_was_read_is_never_sent_again() {
    let rude = || RawEngine::start(|mut conn| async move { drop(conn.request().await) });
    let (first, second) = (rude().await, rude().await);
    let router = TestRouter::before(&[&first, &second]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 502);
    assert_eq!(answer.headers()["x-grapevine-error"], "engine_closed");
    assert_eq!(first.seen().len() + second.seen().len(), 1, "one copy");
    router.ended("unanswered", 1).await;
}

#[tokio::test]
async fn a17_a_connection_that_the_engine_closes_when_idle_fails_no_request() {
    // Far apart, so that a busy machine does not blur them.
    let idle = Duration::from_millis(600);
    let engine = RawEngine::start(move |mut conn| async move {
        while let Ok(Some(_)) = tokio::time::timeout(idle, conn.request()).await {
            conn.write(&json_response("200 OK", "{}")).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.pool_idle_timeout = Duration::from_millis(100);
    let router = TestRouter::start(config).await;
    for spacing in (0..10).map(|i| 550 + 10 * i) {
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        tokio::time::sleep(Duration::from_millis(spacing)).await;
    }
}

#[tokio::test]
async fn a17_fifty_at_a_time_meet_no_connection_that_the_engine_is_closing() {
    let engine = RawEngine::start(|mut conn| async move {
        while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(1), conn.request()).await {
            conn.write(&json_response("200 OK", "{}")).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.pool_idle_timeout = Duration::from_millis(300);
    let router = TestRouter::start(config).await;
    let client = http();
    for pause in [900, 950, 1_000, 1_050, 1_100] {
        let asks = (0..50).map(|_| client.post(router.url("/v1/completions")).body("{}").send());
        for answer in futures_util::future::join_all(asks).await {
            assert_eq!(answer.unwrap().status(), 200);
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    router.ended("ok", 250).await;
}

#[tokio::test]
async fn a19_nothing_is_sent_again_after_the_first_byte() {
    let dying = || {
        RawEngine::start(|mut conn| async move {
            conn.request().await;
            conn.write(EVENT_STREAM).await;
            conn.chunk(b"data: {\"role\":\"assistant\"}\n\n").await;
        })
    };
    let (first, second) = (dying().await, dying().await);
    let router = TestRouter::before(&[&first, &second]).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    let text = client.read_to_end().await;
    assert_eq!(text.matches("assistant").count(), 1);
    assert!(text.contains("engine_cut"));
    assert_eq!(first.seen().len() + second.seen().len(), 1);
}

#[tokio::test]
async fn a22_a_dead_replica_costs_no_request_and_is_skipped() {
    let alive = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::start(config(&[nobody().await, alive.addr])).await;
    for _ in 0..30 {
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["x-grapevine-replica"], "r1");
    }
    let status = router.status();
    assert!(status.replicas[0].picks <= 3, "{} picks of a dead replica", status.replicas[0].picks);
    assert_eq!(alive.seen().len(), 30);
}

#[tokio::test]
async fn no_replica_is_an_error_of_its_own() {
    let router = TestRouter::start(config(&[nobody().await, nobody().await])).await;
    for path in ["/v1/chat/completions", "/v1/messages"] {
        let answer = http().post(router.url(path)).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["x-grapevine-error"], "no_replica");
        assert_eq!(answer.headers()["retry-after"], "1");
        let body: serde_json::Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(body["error"]["code"], "no_replica");
        assert_eq!(body["type"] == "error", path == "/v1/messages");
    }
}

#[tokio::test]
async fn an_engine_that_refuses_for_being_busy_is_passed_over_once() {
    for (status, body) in [("503 Service Unavailable", BUSY), ("500 Internal Server Error", LEAVING)] {
        let refusing = RawEngine::json(status, body).await;
        let free = RawEngine::json("200 OK", "{}").await;
        let mut config = config(&[refusing.addr, free.addr]);
        config.policy = grapevine_route::Policy::RoundRobin;
        let router = TestRouter::start(config).await;
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!((refusing.seen().len(), free.seen().len()), (1, 1));
    }
}

#[tokio::test]
async fn when_all_refuse_the_engines_own_words_reach_the_client() {
    let busy = || RawEngine::json("503 Service Unavailable", BUSY);
    let (one, two) = (busy().await, busy().await);
    let router = TestRouter::before(&[&one, &two]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(!answer.headers().contains_key("x-grapevine-error"));
    assert_eq!(answer.text().await.unwrap(), BUSY);
    assert_eq!(one.seen().len() + two.seen().len(), 2, "at most one other");
    let router = TestRouter::before(&[&one]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), BUSY, "also when there is no other");
}

#[tokio::test]
async fn a70_what_an_engine_refused_is_not_believed_to_be_cached() {
    let prompt = "lorem ipsum dolor ".repeat(200);
    let body = serde_json::json!({ "model": "m", "prompt": prompt }).to_string();
    let busy = RawEngine::json("503 Service Unavailable", BUSY).await;
    let mut config = config(&[busy.addr]);
    config.debug_headers = true;
    let router = TestRouter::start(config).await;
    for _ in 0..3 {
        let answer = http().post(router.url("/v1/completions")).body(body.clone()).send().await.unwrap();
        assert_eq!(answer.headers()["x-grapevine-matched-tokens"], "0");
        answer.bytes().await.unwrap();
    }
    let status = router.status();
    assert_eq!((status.lookups, status.hits), (3, 0));
}

#[tokio::test]
async fn a15_a_clients_errors_are_not_the_replicas() {
    let engine = RawEngine::json("400 Bad Request", r#"{"error":{"message":"too long"}}"#).await;
    let router = TestRouter::before(&[&engine]).await;
    for _ in 0..20 {
        let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.text().await.unwrap(), r#"{"error":{"message":"too long"}}"#);
    }
    assert_eq!(router.status().replicas[0].health, "up");
    router.ended("client_error", 20).await;
}

#[tokio::test]
async fn a_first_byte_that_does_not_come_ends_in_504() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.first_byte_timeout = Duration::from_millis(100);
    let router = TestRouter::start(config).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 504);
    assert_eq!(answer.headers()["x-grapevine-error"], "engine_timeout");
    until("the engine's connection is closed", || engine.closed() == 1).await;
}

#[tokio::test]
async fn a40_streams_have_a_first_byte_limit_of_their_own() {
    let engine = RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            if String::from_utf8_lossy(&seen.body).contains("\"stream\":true") {
                return conn.closed().await;
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            conn.write(&json_response("200 OK", "{}")).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.stream_first_byte_timeout = Duration::from_millis(100);
    let router = TestRouter::start(config).await;
    let ask = |stream: bool| {
        let body = format!("{{\"model\":\"m\",\"stream\":{stream},\"prompt\":\"hi\"}}");
        http().post(router.url("/v1/completions")).body(body).send()
    };
    assert_eq!(ask(true).await.unwrap().status(), 504);
    assert_eq!(ask(false).await.unwrap().status(), 200, "a whole answer may take longer");
}

#[tokio::test]
async fn a20_a_hung_replica_hurts_nobody_else() {
    let hung = RawEngine::start(|mut conn| async move {
        conn.head().await;
        conn.closed().await;
    })
    .await;
    let (one, two) = (RawEngine::json("200 OK", "{}").await, RawEngine::json("200 OK", "{}").await);
    let mut config = config(&[hung.addr, one.addr, two.addr]);
    config.policy = grapevine_route::Policy::RoundRobin;
    config.first_byte_timeout = Duration::from_secs(4);
    let router = TestRouter::start(config).await;
    let client = http();
    let ask = || client.post(router.url("/v1/completions")).body("{}").send();
    let asks = (0..60).map(|_| ask());
    let answers = futures_util::future::join_all(asks).await;
    let statuses: Vec<u16> = answers.iter().map(|a| a.as_ref().unwrap().status().as_u16()).collect();
    let (good, late) = (statuses.iter().filter(|s| **s == 200), statuses.iter().filter(|s| **s == 504));
    assert_eq!((good.count(), late.count()), (40, 20), "only those that hang there wait: {statuses:?}");
    for _ in 0..3 {
        assert_eq!(ask().await.unwrap().status(), 200, "ejected for a while");
    }
    router.quiet().await;
}

#[tokio::test]
async fn a_retry_that_nobody_could_take_costs_none_of_the_budget() {
    let busy = RawEngine::json("503 Service Unavailable", r#"{"error":{"message":"currently busy"}}"#).await;
    let free = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[busy.addr, free.addr]);
    (config.policy, config.retry_ratio) = (grapevine_route::Policy::RoundRobin, 0.0);
    let router = TestRouter::start(config).await;
    let drain = format!("http://{}/api/v1/replicas/r1/drain", router.admin);
    assert!(http().post(&drain).send().await.unwrap().status().is_success());
    let ask = async || http().post(router.url("/v1/x")).body("{}").send().await.unwrap().status();
    for _ in 0..150 {
        assert_eq!(ask().await, 503, "there is no other");
    }
    assert!(http().delete(&drain).send().await.unwrap().status().is_success());
    for _ in 0..2 {
        assert_eq!(ask().await, 200, "it is passed over");
    }
}
