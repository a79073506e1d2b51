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
