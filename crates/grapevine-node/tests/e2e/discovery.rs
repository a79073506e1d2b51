//! Replicas that come and go while the router runs.

use std::path::PathBuf;

use grapevine_node::admin::status::ReplicaStatus;
use serde_json::{Value, json};

use crate::support::*;

/// A file of replicas in a directory of its own, replaced as editors and mounts do it.
struct ListFile {
    path: PathBuf,
}

impl ListFile {
    fn new(name: &str, text: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("grapevine-replicas-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = Self { path: dir.join("replicas.yaml") };
        file.write(text);
        file
    }

    fn write(&self, text: &str) {
        let new = self.path.with_extension("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, &self.path).unwrap();
    }
}

impl Drop for ListFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.path.parent().unwrap());
    }
}

fn with_file(file: &ListFile) -> grapevine_node::config::Config {
    let mut config = config(&[]);
    config.replicas_file = Some(file.path.clone());
    config
}

fn listing(engines: &[&RawEngine]) -> String {
    let urls: Vec<_> = engines.iter().map(|engine| format!("http://{}", engine.addr)).collect();
    json!({ "replicas": urls }).to_string()
}

fn urls(router: &TestRouter) -> Vec<String> {
    router.status().replicas.into_iter().map(|replica| replica.url).collect()
}

fn replica(router: &TestRouter, engine: &RawEngine) -> Option<ReplicaStatus> {
    let url = format!("http://{}", engine.addr);
    router.status().replicas.into_iter().find(|replica| replica.url == url)
}

async fn ask(router: &TestRouter) -> reqwest::Response {
    http().post(router.url("/v1/chat/completions")).body("{}").send().await.unwrap()
}

/// Sends an order to the admin API.
async fn order(router: &TestRouter, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = http().request(method, format!("http://{}/api/v1/replicas{path}", router.admin));
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// An engine that answers with a stream of one event and ends it when the connection is told to.
async fn held_stream(release: tokio::sync::watch::Receiver<bool>) -> RawEngine {
    RawEngine::start(move |mut conn| {
        let mut release = release.clone();
        async move {
            while conn.request().await.is_some() {
                conn.write(EVENT_STREAM).await;
                conn.chunk(b"data: {\"one\":1}\n\n").await;
                let _ = release.wait_for(|released| *released).await;
                conn.chunk(b"data: [DONE]\n\n").await;
                conn.chunk(b"").await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_empty_fleet_says_so_until_replicas_come() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let file = ListFile::new("empty", "[]");
    let router = TestRouter::start(with_file(&file)).await;
    let refused = ask(&router).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"1".parse().unwrap()));
    assert_eq!(refused.headers()["x-grapevine-error"], "empty_fleet");
    assert_eq!(router.admin_get("/readyz").await.0, 503);
    file.write(&listing(&[&engine]));
    until("the replica is there", || urls(&router).len() == 1).await;
    assert_eq!(ask(&router).await.status(), 200);
    // What it serves may still be asked.
    while router.admin_get("/readyz").await.0 != 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_file_of_garbage_keeps_the_old_replicas_and_a_good_one_counts() {
    let (one, two) = (RawEngine::json("200 OK", "{}").await, RawEngine::json("200 OK", "{}").await);
    let file = ListFile::new("garbage", &listing(&[&one, &two]));
    let router = TestRouter::start(with_file(&file)).await;
    until("both are there", || urls(&router).len() == 2).await;
    assert_eq!(ask(&router).await.status(), 200);
    let picks = |router: &TestRouter| router.status().replicas.iter().map(|r| r.picks).sum::<u64>();
    file.write("replicas:\n  - http://a:1\n  - ]\n");
    let problem = |router: &TestRouter| router.status().discovery[0].problem.clone();
    until("the mistake is seen", || problem(&router).is_some()).await;
    assert!(problem(&router).unwrap().contains("line 3"), "{:?}", problem(&router));
    assert_eq!((urls(&router).len(), picks(&router)), (2, 1));
    std::fs::remove_file(&file.path).unwrap();
    until("it is away", || problem(&router).is_some_and(|p| p.contains("cannot be read"))).await;
    assert_eq!(urls(&router).len(), 2);
    file.write(&listing(&[&two]));
    until("one has left", || urls(&router).len() == 1).await;
    assert_eq!(problem(&router), None);
}

#[tokio::test]
async fn a_replica_that_is_taken_away_finishes_its_stream_and_leaves_no_trace() {
    let (release, released) = tokio::sync::watch::channel(false);
    let old = held_stream(released).await;
    let new = RawEngine::json("200 OK", "{}").await;
    let file = ListFile::new("drain", &listing(&[&old]));
    let router = TestRouter::start(with_file(&file)).await;
    until("it is there", || urls(&router).len() == 1).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("\"one\":1").await;
    file.write(&listing(&[&new]));
    until("the old one drains", || replica(&router, &old).is_some_and(|r| r.drain)).await;
    for _ in 0..20 {
        assert_eq!(ask(&router).await.headers()["x-grapevine-replica"], new.addr.to_string().as_str());
    }
    assert!(router.admin_get("/metrics").await.1.contains(&old.addr.to_string()));
    release.send_replace(true);
    client.read_until("[DONE]").await;
    until("the old one has left", || replica(&router, &old).is_none()).await;
    assert!(!router.admin_get("/metrics").await.1.contains(&old.addr.to_string()));
    router.ended("ok", 21).await;
}

#[tokio::test]
async fn a_replica_that_is_listed_again_while_it_drains_goes_on_as_the_same() {
    let (release, released) = tokio::sync::watch::channel(false);
    let engine = held_stream(released).await;
    let file = ListFile::new("again", &listing(&[&engine]));
    let router = TestRouter::start(with_file(&file)).await;
    until("it is there", || urls(&router).len() == 1).await;
    let mut client = RawClient::send(router.addr, chat_stream()).await;
    client.read_until("\"one\":1").await;
    file.write("[]");
    until("it drains", || replica(&router, &engine).is_some_and(|r| r.drain)).await;
    file.write(&listing(&[&engine]));
    until("it is back", || replica(&router, &engine).is_some_and(|r| !r.drain)).await;
    let status = replica(&router, &engine).unwrap();
    assert_eq!((status.picks, status.inflight), (1, 1));
    release.send_replace(true);
    client.read_until("[DONE]").await;
    router.quiet().await;
}

#[tokio::test]
async fn operators_add_drain_and_remove() {
    let (listed, added) = (RawEngine::json("200 OK", "{}").await, RawEngine::json("200 OK", "{}").await);
    let router = TestRouter::before(&[&listed]).await;
    let url = format!("http://{}", added.addr);
    let new = json!({ "url": url, "name": "mine", "weight": 2.5, "key": "sk-own" });
    let (status, shown) = order(&router, "POST", "", Some(new)).await;
    assert_eq!((status, &shown["name"], &shown["source"]), (201, &json!("mine"), &json!("admin")));
    assert!(!shown.to_string().contains("sk-own"));
    assert_eq!(order(&router, "POST", "/r0/drain", None).await.0, 200);
    for _ in 0..5 {
        assert_eq!(ask(&router).await.headers()["x-grapevine-replica"], "mine");
    }
    assert_eq!(added.seen()[0].values("authorization"), ["Bearer sk-own"]);
    let (_, all) = order(&router, "GET", "", None).await;
    assert_eq!((&all[0]["drain"], &all[1]["weight"]), (&json!(true), &json!(2.5)));
    assert_eq!(order(&router, "DELETE", "/r0/drain", None).await.0, 200);
    let id = all[1]["id"].as_str().unwrap();
    assert_eq!(order(&router, "DELETE", &format!("/{id}"), None).await.0, 204);
    assert_eq!(urls(&router).len(), 1);
    assert_eq!(ask(&router).await.headers()["x-grapevine-replica"], "r0");
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let (status, said) = order(&router, "DELETE", "/r0", None).await;
    assert_eq!((status, said["error"].as_str().unwrap().contains("listed by static")), (409, true));
    assert_eq!(order(&router, "POST", "/nobody/drain", None).await.0, 404);
    assert_eq!(order(&router, "POST", "", Some(json!({ "url": "ftp://x" }))).await.0, 400);
    assert_eq!(order(&router, "POST", "", Some(json!({ "url": "http://x", "wieght": 1 }))).await.0, 422);
    let foreign = http()
        .post(format!("http://{}/api/v1/replicas/r0/drain", router.admin))
        .header("origin", "http://evil.example");
    assert_eq!(foreign.send().await.unwrap().status(), 403);
    assert_eq!((urls(&router).len(), router.status().replicas[0].drain), (1, false));
}

#[tokio::test]
async fn orders_need_the_admin_token() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.admin_token = Some(grapevine_node::config::Secret::new("correct horse battery".into()));
    let router = TestRouter::start(config).await;
    let new = json!({ "url": "http://127.0.0.1:1" });
    assert_eq!(order(&router, "POST", "", Some(new)).await.0, 401);
    assert_eq!(order(&router, "POST", "/r0/drain", None).await.0, 401);
    assert_eq!(order(&router, "GET", "", None).await.0, 401);
    assert!(!router.status().replicas[0].drain);
}
