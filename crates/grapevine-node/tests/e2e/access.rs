//! Who may send, and whose credentials go where.

use std::path::PathBuf;

use grapevine_node::auth::keys::line_for;
use grapevine_node::config::Secret;

use crate::support::*;

/// A file of keys that goes with the test.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("grapevine-e2e-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn with_client_keys_only_their_holders_get_in_and_their_keys_stay_here() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let file = KeyFile::new("keys", &line_for("a", b"key-of-a"));
    let mut config = config(&[engine.addr]);
    config.client_keys = Some(file.0.clone());
    let router = TestRouter::start(config).await;
    let ask = |path: &str| http().post(router.url(path)).body("{}");
    let without = ask("/v1/chat/completions").send().await.unwrap();
    assert_eq!(without.status(), 401);
    assert_eq!(without.headers()["www-authenticate"], "Bearer");
    assert!(without.text().await.unwrap().contains("\"code\":\"invalid_api_key\""));
    let anthropic = ask("/v1/messages").header("x-api-key", "wrong").send().await.unwrap();
    assert!(anthropic.text().await.unwrap().contains("authentication_error"));
    assert!(engine.seen().is_empty());
    for (name, value) in [("authorization", "Bearer key-of-a"), ("x-api-key", "key-of-a")] {
        assert_eq!(ask("/v1/messages").header(name, value).send().await.unwrap().status(), 200);
    }
    for seen in engine.seen() {
        assert!(!seen.head.contains("key-of-a"), "{}", seen.head);
    }
    assert_eq!(router.outcome("refused"), 2);
}

#[tokio::test]
async fn a_client_over_its_rate_is_told_when_to_come_back() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let lines = format!("{} rate=1 burst=2\n{}", line_for("slow", b"slow"), line_for("free", b"free"));
    let file = KeyFile::new("rates", &lines);
    let mut config = config(&[engine.addr]);
    config.client_keys = Some(file.0.clone());
    let router = TestRouter::start(config).await;
    let ask = |key: &'static str| {
        let request = http().post(router.url("/v1/completions")).bearer_auth(key).body("{}");
        async move { request.send().await.unwrap() }
    };
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(ask("slow").await.status().as_u16());
    }
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    let refused = ask("slow").await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(ask("free").await.status(), 200, "others are not concerned");
}

#[tokio::test]
async fn a23_the_engines_key_replaces_what_clients_send_on_requests_and_probes() {
    let engine = RawEngine::start(|mut conn| async move {
        loop {
            let Some(head) = conn.head().await else { return };
            let right = head.to_lowercase().matches("authorization: bearer engine-key\r\n").count() == 1
                && head.to_lowercase().matches("authorization").count() == 1
                && !head.contains("x-api-key");
            let status = if right { "200 OK" } else { "401 Unauthorized" };
            conn.write(&json_response(status, "{}")).await;
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.engine_key = Some(Secret::new("engine-key".to_owned()));
    let router = TestRouter::start(config).await;
    for (name, value) in [("authorization", "Bearer mine"), ("x-api-key", "mine"), ("x-other", "mine")] {
        let answer = http().get(router.url("/v1/x")).header(name, value).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{name}");
    }
}

#[tokio::test]
async fn the_admin_token_opens_metrics_and_status_and_probes_need_none() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.admin_token = Some(Secret::new("a long enough token".to_owned()));
    let router = TestRouter::start(config).await;
    for (path, expected) in [("/livez", 200), ("/readyz", 200), ("/metrics", 401), ("/api/v1/status", 401)] {
        assert_eq!(router.admin_get(path).await.0, expected, "{path}");
    }
    let with = http().get(format!("http://{}/metrics", router.admin)).bearer_auth("a long enough token");
    assert_eq!(with.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_list_of_models_is_for_whoever_asked_with_these_credentials() {
    const LIST: &str = r#"{"object":"list","data":[{"id":"m"}]}"#;
    const REFUSAL: &str = r#"{"error":"not with this key"}"#;
    let engine = RawEngine::start(|mut conn| async move {
        while let Some(head) = conn.head().await {
            let right = head.to_lowercase().contains("authorization: bearer right\r\n");
            let (status, body) = if right { ("200 OK", LIST) } else { ("401 Unauthorized", REFUSAL) };
            conn.write(&json_response(status, body)).await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let list = || http().get(router.url("/v1/models"));
    let answer = list().bearer_auth("right").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (200, LIST));
    for refused in [list().bearer_auth("wrong"), list()] {
        let answer = refused.send().await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.text().await.unwrap().as_str()), (401, REFUSAL));
    }
}

/// What the admin listener says to a request as a browser would send it.
async fn browser(router: &TestRouter, request_line: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "{request_line} HTTP/1.1\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    RawClient::send(router.admin, request).await.read_to_end().await
}

#[tokio::test]
async fn a_name_that_was_made_to_lead_here_opens_nothing() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let fields = "host: evil.example:9090\r\norigin: http://evil.example:9090\r\n";
    for (line, body) in [
        ("POST /api/v1/replicas", r#"{"url":"http://evil.example"}"#),
        ("GET /api/v1/status", ""),
        ("GET /metrics", ""),
        ("POST /internal/v1/mesh", "?"),
    ] {
        let text = browser(&router, line, fields, body).await;
        assert!(text.starts_with("HTTP/1.1 403 "), "{line}: {text}");
    }
    assert_eq!(router.status().replicas.len(), 1);
    for host in [router.admin.to_string(), format!("localhost:{}", router.admin.port())] {
        let text = browser(&router, "GET /api/v1/status", &format!("host: {host}\r\n"), "").await;
        assert!(text.starts_with("HTTP/1.1 200 "), "{host}: {text}");
    }
}

#[tokio::test]
async fn with_a_token_any_name_does() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.admin_token = Some(Secret::new("a long enough token".to_owned()));
    let router = TestRouter::start(config).await;
    let fields = "host: routers.example\r\nauthorization: Bearer a long enough token\r\n";
    let text = browser(&router, "GET /api/v1/status", fields, "").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[tokio::test]
async fn another_sites_page_neither_looks_nor_asks() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let of_another = format!("host: {}\r\norigin: http://evil.example\r\n", router.admin);
    for line in ["POST /api/v1/explain", "GET /api/v1/events", "DELETE /api/v1/replicas/r0"] {
        let text = browser(&router, line, &of_another, "{}").await;
        assert!(text.starts_with("HTTP/1.1 403 "), "{line}: {text}");
    }
    let own = format!("host: {0}\r\norigin: http://{0}\r\n", router.admin);
    let text = browser(&router, "POST /api/v1/explain", &own, "{}").await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
}

#[tokio::test]
async fn bodies_to_explain_that_never_come_are_few() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let head =
        format!("POST /api/v1/explain HTTP/1.1\r\nhost: {}\r\ncontent-length: 9\r\n\r\n", router.admin);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(RawClient::send(router.admin, head.clone()).await);
    }
    let own = format!("host: {}\r\n", router.admin);
    let refused = async {
        while browser(&router, "POST /api/v1/explain", &own, "{}").await.starts_with("HTTP/1.1 200 ") {}
    };
    soon(refused).await;
    drop(held);
    let again = async {
        while !browser(&router, "POST /api/v1/explain", &own, "{}").await.starts_with("HTTP/1.1 200 ") {}
    };
    soon(again).await;
}
