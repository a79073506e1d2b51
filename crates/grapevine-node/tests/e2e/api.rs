//! Paths: every engine path is open, but for those that administer engines.

use crate::support::*;

#[tokio::test]
async fn a117_a118_every_path_method_and_query_reaches_the_engine() {
    let engine = RawEngine::answering(
        "HTTP/1.1 404 Not Found\r\ncontent-length: 22\r\n\r\n{\"detail\":\"Not Found\"}",
    )
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let targets = [
        "POST /v1/rerank",
        "POST /score",
        "POST /tokenize",
        "POST /v2/embed",
        "POST /v1/embeddings?x=1",
        "DELETE /v1/files/a%2Fb?q=%20+&&z",
        "PUT /v1//x",
        "PATCH /x/",
        "OPTIONS /v1/models",
        "GET /",
    ];
    for target in targets {
        let (method, path) = target.split_once(' ').unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n");
        let text = RawClient::send(router.addr, request).await.read_to_end().await;
        assert!(text.ends_with("{\"detail\":\"Not Found\"}"), "the engine's own 404: {text}");
        assert_eq!(engine.seen().last().unwrap().request_line(), format!("{target} HTTP/1.1"));
    }
}

#[tokio::test]
async fn a120_engine_admin_paths_are_refused() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let paths = [
        "/flush_cache",
        "//flush_cache",
        "/v1/../flush_cache",
        "/a%2fb/../flush_cache",
        "/%66lush_cache/",
        "/flush_cache%0a",
        "/v2/models/../../flush_cache/generate",
        "http://elsewhere/flush_cache",
        "/sleep?level=1",
    ];
    for path in paths {
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: r\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let text = RawClient::send(router.addr, request).await.read_to_end().await;
        assert!(text.starts_with("HTTP/1.1 403 "), "{path}: {text}");
        assert!(text.contains("\"code\":\"admin_path\""), "{path}: {text}");
    }
    assert!(engine.seen().is_empty());
    assert_eq!(router.outcome("refused"), paths.len() as u64);
}

#[tokio::test]
async fn a121_ipv6_replicas_work() {
    let engine = RawEngine::start_on("[::1]:0".parse().unwrap(), |mut conn| async move {
        while conn.request().await.is_some() {
            conn.write(&json_response("200 OK", "{}")).await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(engine.seen()[0].values("host"), [engine.addr.to_string()]);
}

#[tokio::test]
async fn head_requests_and_empty_answers_end_as_they_should() {
    let engine = RawEngine::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().head(router.url("/v1/models")).send().await.unwrap();
    assert_eq!(answer.headers()["content-length"], "5");
    let nothing = RawEngine::answering("HTTP/1.1 204 No Content\r\n\r\n").await;
    let second = TestRouter::before(&[&nothing]).await;
    assert_eq!(http().post(second.url("/v1/x")).send().await.unwrap().status(), 204);
    router.ended("ok", 1).await;
    second.ended("ok", 1).await;
}

#[tokio::test]
async fn a41_models_are_those_of_all_replicas_whichever_is_down() {
    let model = |id: &str| format!("{{\"object\":\"list\",\"data\":[{{\"id\":\"{id}\"}}]}}");
    let (a, b) = (RawEngine::json("200 OK", &model("a")).await, RawEngine::json("200 OK", &model("b")).await);
    let dead = RawEngine::json("200 OK", "{}").await.kill().await;
    let router = TestRouter::start(config(&[dead, a.addr, b.addr])).await;
    let answer = http().get(router.url("/v1/models")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(text.contains("\"id\":\"a\"") && text.contains("\"id\":\"b\""), "{text}");
    http().get(router.url("/v1/models")).send().await.unwrap();
    assert_eq!(a.seen().len(), 1, "a fresh list is not asked for again");
    router.quiet().await;
}

#[tokio::test]
async fn without_any_replica_there_is_no_list() {
    let dead = RawEngine::json("200 OK", "{}").await.kill().await;
    let router = TestRouter::start(config(&[dead])).await;
    let answer = http().get(router.url("/v1/models")).send().await.unwrap();
    assert_eq!(answer.headers()["x-grapevine-error"], "no_replica");
    assert_eq!(router.outcome("unanswered"), 1);
}

/// An engine that stores responses under its own ids, as vLLM does.
async fn storing(name: &'static str) -> RawEngine {
    RawEngine::start(move |mut conn| async move {
        while let Some(seen) = conn.request().await {
            let body = String::from_utf8_lossy(&seen.body).into_owned();
            let asked = body.contains("previous_response_id") || seen.request_line().starts_with("GET");
            let mine = format!("{body}{}", seen.request_line()).contains(&format!("resp_{name}"));
            let answer = match asked && !mine {
                true => json_response("404 Not Found", "{\"error\":{\"message\":\"Response not found\"}}"),
                false => {
                    json_response("200 OK", &format!("{{\"id\": \"resp_{name}\",\"status\":\"completed\"}}"))
                }
            };
            conn.write(&answer).await;
        }
    })
    .await
}

#[tokio::test]
async fn a119_a_stored_response_is_found_at_its_owner_remembered_or_not() {
    let engines = [storing("a").await, storing("b").await, storing("c").await];
    let addrs: Vec<_> = engines.iter().map(|engine| engine.addr).collect();
    let router = TestRouter::start(config(&addrs)).await;
    let post = |body: String| http().post(router.url("/v1/responses")).body(body).send();
    let first = post("{\"model\":\"m\",\"input\":\"hi\"}".to_owned()).await.unwrap().text().await.unwrap();
    let id = first.split('"').nth(3).unwrap().to_owned();
    let before: usize = engines.iter().map(|engine| engine.seen().len()).sum();
    let next = || format!("{{\"model\":\"m\",\"input\":\"more\",\"previous_response_id\":\"{id}\"}}");
    for _ in 0..6 {
        assert_eq!(post(next()).await.unwrap().status(), 200);
    }
    let after: usize = engines.iter().map(|engine| engine.seen().len()).sum();
    assert_eq!(after - before, 6, "the owner is known: nobody else is asked");

    let stranger = TestRouter::start(named_config("router-b", &addrs)).await;
    for name in ["a", "b", "c"] {
        let answer = http().get(stranger.url(&format!("/v1/responses/resp_{name}"))).send().await.unwrap();
        assert_eq!(answer.status(), 200, "asked until one knows {name}");
    }
    let unknown = http().get(stranger.url("/v1/responses/resp_x")).send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    assert!(unknown.text().await.unwrap().contains("Response not found"), "an engine's own answer");
    stranger.quiet().await;
}
