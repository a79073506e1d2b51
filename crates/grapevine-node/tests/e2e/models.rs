//! Several models behind one fleet.

use std::time::Duration;

use grapevine_node::config::ReplicaSpec;
use grapevine_testkit::engine::{Engine, EngineConfig, EngineHandle};
use serde_json::{Value, json};

use crate::support::*;

async fn engine(models: &[&str]) -> EngineHandle {
    let models = models.iter().map(|model| (*model).to_owned()).collect();
    Engine::start(EngineConfig { models, ..EngineConfig::instant() }).await.unwrap()
}

fn fleet_config(name: &str, engines: &[&EngineHandle]) -> grapevine_node::config::Config {
    let addrs: Vec<_> = engines.iter().map(|engine| engine.addr()).collect();
    let mut config = named_config(name, &addrs);
    config.models_interval = Duration::from_secs(60);
    config.debug_headers = true;
    config.gossip_interval = Duration::from_millis(50);
    config
}

async fn known(router: &TestRouter) {
    until("all models are known", || router.status().replicas.iter().all(|r| r.models.is_some())).await;
}

async fn ask(router: &TestRouter, path: &str, body: &Value) -> reqwest::Response {
    let request = http().post(router.url(path)).header("content-type", "application/json");
    request.body(body.to_string()).send().await.unwrap()
}

fn header(answer: &reqwest::Response, name: &str) -> String {
    answer.headers()[name].to_str().unwrap().to_owned()
}

fn completion(model: &str, prompt: &str) -> Value {
    json!({ "model": model, "prompt": prompt, "max_tokens": 2 })
}

#[tokio::test]
async fn a_request_goes_only_to_replicas_of_its_model_on_every_router() {
    let (a, b, also_b) = (engine(&["a", "a-sql"]).await, engine(&["b"]).await, engine(&["b"]).await);
    let engines = [&a, &b, &also_b];
    let first = TestRouter::start(fleet_config("router-a", &engines)).await;
    let mut second = fleet_config("router-b", &engines);
    second.gossip_seeds = vec![first.gossip.to_string()];
    let second = TestRouter::start(second).await;
    known(&first).await;
    known(&second).await;
    let mut of_b = std::collections::BTreeSet::new();
    for i in 0..12 {
        for router in [&first, &second] {
            let prompt = format!("{i} lorem ipsum dolor ").repeat(60);
            for (model, replica) in [("a", Some("r0")), ("a-sql", Some("r0")), ("b", None)] {
                let answer = ask(router, "/v1/completions", &completion(model, &prompt)).await;
                assert_eq!(answer.status(), 200, "{model}");
                let chosen = header(&answer, "x-grapevine-replica");
                assert!(replica.map_or(chosen != "r0", |replica| replica == chosen), "{model}: {chosen}");
                if model == "b" {
                    of_b.insert(chosen);
                }
            }
        }
    }
    assert_eq!(of_b.len(), 2, "cold prompts spread over the replicas of their model: {of_b:?}");
    assert_eq!((first.outcome("ok"), second.outcome("ok")), (36, 36));
}

#[tokio::test]
async fn an_adapter_shares_the_replica_of_its_base_and_not_its_prefixes() {
    let engine = engine(&["base", "base-sql"]).await;
    let router = TestRouter::start(fleet_config("router-a", &[&engine])).await;
    known(&router).await;
    let prompt = "the same long preamble ".repeat(100);
    let matched = async |model: &str| {
        let answer = ask(&router, "/v1/completions", &completion(model, &prompt)).await;
        header(&answer, "x-grapevine-matched-tokens")
    };
    assert_eq!(matched("base").await, "0");
    assert_ne!(matched("base").await, "0");
    assert_eq!(matched("base-sql").await, "0", "an adapter's KV is its own");
    assert_ne!(matched("base-sql").await, "0");
}

/// What was refused was placed nowhere, so it says nothing of the share of hits.
#[tokio::test]
async fn refused_requests_do_not_lower_the_share_of_hits() {
    let engine = engine(&["a"]).await;
    let router = TestRouter::start(fleet_config("router-a", &[&engine])).await;
    known(&router).await;
    let prompt = "the same long preamble ".repeat(100);
    for (model, status) in [("a", 200), ("a", 200), ("x", 404), ("x", 404)] {
        let answer = ask(&router, "/v1/completions", &completion(model, &prompt)).await;
        assert_eq!(answer.status(), status, "{model}");
        answer.bytes().await.unwrap();
    }
    let status = router.status();
    assert_eq!((status.lookups, status.hits), (2, 1));
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_a_404_as_openai_says_it() {
    let (a, b) = (engine(&["a"]).await, engine(&["b"]).await);
    let router = TestRouter::start(fleet_config("router-a", &[&a, &b])).await;
    known(&router).await;
    let answer = ask(&router, "/v1/chat/completions", &json!({ "model": "x\"y", "messages": [] })).await;
    assert_eq!(
        (answer.status().as_u16(), header(&answer, "x-grapevine-error").as_str()),
        (404, "model_not_found")
    );
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    let expected = json!({ "error": {
        "message": "The model `x\"y` does not exist or you do not have access to it.",
        "type": "invalid_request_error", "param": null, "code": "model_not_found" } });
    assert_eq!(body, expected);
    let answer =
        ask(&router, "/v1/messages", &json!({ "model": "x", "messages": [], "max_tokens": 1 })).await;
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("not_found_error")));
    let explain = http().post(format!("http://{}/api/v1/explain", router.admin));
    let answer = explain.body(json!({ "model": "x" }).to_string()).send().await.unwrap();
    assert_eq!(answer.status(), 404);
    let body: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(body, json!({ "error": "model_not_found: no replica serves `x`" }));
    let answer = ask(&router, "/v1/embeddings", &json!({ "model": "x", "input": "y" })).await;
    assert_eq!(answer.status(), 404, "paths without a prefix too");
    assert_eq!(router.outcome("refused"), 3);
    assert_eq!(
        ask(&router, "/v1/completions", &json!({ "prompt": "z", "max_tokens": 1 })).await.status(),
        200
    );
}

#[tokio::test]
async fn a_model_that_comes_later_is_found_soon() {
    let (a, b) = (engine(&["a"]).await, engine(&["new"]).await);
    let addr = b.addr();
    b.stop().await;
    let mut config = fleet_config("router-a", &[&a]);
    config.replicas.push(ReplicaSpec::new("late", format!("http://{addr}")));
    let router = TestRouter::start(config).await;
    until("the first is known", || router.status().replicas[0].models.is_some()).await;
    let config = EngineConfig { listen: addr, models: vec!["new".into()], ..EngineConfig::instant() };
    let _late = Engine::start(config).await.unwrap();
    until("the late one is known", || router.status().replicas[1].models.is_some()).await;
    let answer = ask(&router, "/v1/completions", &completion("new", "hi")).await;
    assert_eq!((answer.status().as_u16(), header(&answer, "x-grapevine-replica").as_str()), (200, "late"));
}

#[tokio::test]
async fn with_every_policy_and_for_every_kind_of_body_the_model_decides() {
    let (a, b) = (engine(&["a"]).await, engine(&["b"]).await);
    let mut config = fleet_config("router-a", &[&a, &b]);
    config.policy = grapevine_route::Policy::RoundRobin;
    let router = TestRouter::start(config).await;
    known(&router).await;
    for _ in 0..4 {
        let answer = ask(&router, "/v1/completions", &completion("b", "hi")).await;
        assert_eq!(header(&answer, "x-grapevine-replica"), "r1");
        let form = "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nb\r\n\
                    --x\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n\0\u{1}\r\n--x--\r\n";
        let request = http().post(router.url("/v1/audio/transcriptions")).body(form);
        let answer = request.header("content-type", "multipart/form-data; boundary=x").send().await.unwrap();
        assert_eq!(header(&answer, "x-grapevine-replica"), "r1");
    }
}

#[tokio::test]
async fn an_operators_list_decides_and_shows() {
    let (a, b) = (engine(&["a", "hidden"]).await, engine(&["b"]).await);
    let mut config = fleet_config("router-a", &[&a, &b]);
    config.replicas[0].models = Some(vec!["a".into()]);
    let router = TestRouter::start(config).await;
    known(&router).await;
    assert_eq!(ask(&router, "/v1/completions", &completion("hidden", "x")).await.status(), 404);
    assert_eq!(ask(&router, "/v1/completions", &completion("a", "x")).await.status(), 200);
    let list = http().get(router.url("/v1/models")).send().await.unwrap().text().await.unwrap();
    let list: Value = serde_json::from_str(&list).unwrap();
    let ids: Vec<_> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [&json!("a"), &json!("b")]);
}
