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
    for path in ["/flush_cache", "//flush_cache", "/v1/../flush_cache", "/%66lush_cache/", "/sleep?level=1"] {
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: r\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let text = RawClient::send(router.addr, request).await.read_to_end().await;
        assert!(text.starts_with("HTTP/1.1 403 "), "{path}: {text}");
        assert!(text.contains("\"code\":\"admin_path\""), "{path}: {text}");
    }
    assert!(engine.seen().is_empty());
    assert_eq!(router.outcome("refused"), 5);
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
