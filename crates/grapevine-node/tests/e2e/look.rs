//! What can be looked at: the fleet, decisions, the tree, explanations, events.

use std::time::Duration;

use grapevine_node::admin::decisions::{DecisionList, ExplainView};
use grapevine_node::admin::fleet_view::Fleet;
use grapevine_node::admin::heaviest::TreeView;
use grapevine_node::config::{Config, Mode, Secret};
use serde::de::DeserializeOwned;

use crate::support::*;

const ANSWER: &str = r#"{"usage":{"prompt_tokens":500,"prompt_tokens_details":{"cached_tokens":400}}}"#;

async fn engines(n: usize) -> Vec<RawEngine> {
    let mut engines = Vec::new();
    for _ in 0..n {
        engines.push(RawEngine::json("200 OK", ANSWER).await);
    }
    engines
}

fn config_before(name: &str, engines: &[RawEngine]) -> Config {
    let addrs: Vec<_> = engines.iter().map(|engine| engine.addr).collect();
    Config { gossip_interval: Duration::from_millis(50), ..named_config(name, &addrs) }
}

fn prompt(tag: &str) -> String {
    serde_json::json!({ "model": "m", "prompt": format!("{tag} {}", "lorem ipsum dolor ".repeat(100)) })
        .to_string()
}

async fn complete(router: &TestRouter, tag: &str) -> String {
    let answer = http().post(router.url("/v1/completions")).body(prompt(tag)).send().await.unwrap();
    let replica = answer.headers()["x-grapevine-replica"].to_str().unwrap().to_owned();
    answer.bytes().await.unwrap();
    replica
}

async fn look<T: DeserializeOwned>(router: &TestRouter, path: &str) -> T {
    let (status, body) = router.admin_get(path).await;
    assert_eq!(status, 200, "{path}: {body}");
    serde_json::from_str(&body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

async fn explain(router: &TestRouter, query: &str, body: String) -> reqwest::Response {
    http().post(format!("http://{}/api/v1/explain{query}", router.admin)).body(body).send().await.unwrap()
}

#[tokio::test]
async fn an_explanation_is_what_then_happens_and_changes_nothing() {
    let engines = engines(4).await;
    let router = TestRouter::start(config_before("router-a", &engines)).await;
    let replica = complete(&router, "one").await;
    router.ended("ok", 1).await;
    for _ in 0..3 {
        let answer = explain(&router, "?path=/v1/completions", prompt("one")).await;
        assert_eq!(answer.status(), 200);
        let explained: ExplainView = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let decision = &explained.decision;
        assert_eq!((decision.replica.as_str(), decision.reason.as_str()), (replica.as_str(), "affinity"));
        assert_eq!((decision.candidates_total, decision.candidates.len()), (4, 4));
        assert_eq!((decision.lookup.as_str(), decision.teacher.as_deref()), ("answered", Some("own")));
        assert!(decision.candidates[0].won && decision.candidates[0].matched_tokens > 400, "{explained:?}");
        assert!(decision.candidates.windows(2).all(|two| two[0].total <= two[1].total));
        let sum: f32 = decision.candidates[0].votes.values().sum();
        assert!((sum - decision.candidates[0].total).abs() < 1.0);
        assert_eq!((decision.seq, explained.key.boundaries), (None, 14));
    }
    let status = router.status();
    assert_eq!((status.lookups, status.inflight, status.tokens.prompt > 1_000), (1, 0, false));
    assert_eq!(status.replicas.iter().map(|r| r.picks).sum::<u64>(), 1);
    let tree: TreeView = look(&router, "/api/v1/tree").await;
    assert!((0.9..=1.0).contains(&tree.nodes[0].count), "picked once: {tree:?}");
    assert_eq!(engines.iter().map(|e| e.seen().len()).sum::<usize>(), 1, "nothing was sent");
    for (query, body, status) in
        [("", "not json", 200), ("?path=nothing", "{}", 400), ("?path=/v1/models", "", 200)]
    {
        assert_eq!(explain(&router, query, body.to_owned()).await.status(), status, "{query}");
    }
}

#[tokio::test]
async fn decisions_are_kept_with_their_votes_and_how_they_ended() {
    let engines = engines(2).await;
    let router = TestRouter::start(config_before("router-a", &engines)).await;
    let first = complete(&router, "one").await;
    complete(&router, "one").await;
    router.ended("ok", 2).await;
    let list: DecisionList = look(&router, "/api/v1/decisions").await;
    assert_eq!(list.decisions.iter().map(|d| d.seq.unwrap()).collect::<Vec<_>>(), [2, 1]);
    let (again, cold) = (&list.decisions[0], &list.decisions[1]);
    assert_eq!((again.replica.as_str(), again.reason.as_str()), (first.as_str(), "affinity"));
    assert_eq!((again.outcome.as_deref(), again.reported_cached_tokens), (Some("ok"), Some(400)));
    assert_eq!((again.path.as_deref(), again.model.as_deref()), (Some("/v1/completions"), Some("m")));
    assert_eq!((cold.matched_tokens, cold.candidates.len()), (0, 2));
    assert!(again.request_id.as_ref().is_some_and(|id| id.len() == 32));
    let none: DecisionList = look(&router, "/api/v1/decisions?after=2&limit=5").await;
    assert!(none.decisions.is_empty());
    assert_eq!(router.admin_get("/api/v1/decisions?limit=x").await.0, 400);
}

/// Two routers that know each other.
async fn pair(config: impl Fn(&str) -> Config) -> (TestRouter, TestRouter) {
    let a = TestRouter::start(config("router-a")).await;
    let seeds = vec![a.gossip.to_string()];
    let b = TestRouter::start(Config { gossip_seeds: seeds, ..config("router-b") }).await;
    until("they know each other", || a.status().gossip.live_peers == 1 && b.status().gossip.live_peers == 1)
        .await;
    (a, b)
}

#[tokio::test]
async fn one_router_shows_the_whole_fleet() {
    let engines = engines(2).await;
    let secret = || Some(Secret::new("a secret of enough bytes".to_owned()));
    let token = || Some(Secret::new("correct horse battery".to_owned()));
    let protected = |name: &str| Config {
        cluster_secret: secret(),
        admin_token: token(),
        ..config_before(name, &engines)
    };
    let (a, b) = pair(protected).await;
    for tag in ["one", "two", "three"] {
        complete(&a, tag).await;
        complete(&b, tag).await;
    }
    b.ended("ok", 3).await;
    let url = format!("http://{}/api/v1/fleet", a.admin);
    assert_eq!(http().get(&url).send().await.unwrap().status(), 401);
    let seen = http().get(&url).bearer_auth("correct horse battery").send().await.unwrap();
    let fleet: Fleet = serde_json::from_slice(&seen.bytes().await.unwrap()).unwrap();
    let routers: Vec<_> =
        fleet.routers.iter().map(|r| (r.name.as_str(), r.reached, r.requests_total)).collect();
    assert_eq!(routers, [("router-a", true, 3), ("router-b", true, 3)], "{fleet:?}");
    assert_eq!(fleet.totals.requests["ok"], 6);
    assert_eq!(fleet.replicas.iter().map(|r| r.picks).sum::<u64>(), 6);
    let links: Vec<_> = fleet.links.iter().map(|l| (l.from.as_str(), l.to.as_str(), l.live)).collect();
    assert_eq!(links, [("router-a", "router-b", true), ("router-b", "router-a", true)]);
}

#[tokio::test]
async fn without_a_seal_nobody_is_told_the_admin_token() {
    let engines = engines(1).await;
    let protected = |name: &str| Config {
        admin_token: Some(Secret::new("correct horse battery".to_owned())),
        ..config_before(name, &engines)
    };
    let (a, _b) = pair(protected).await;
    let asked = http().get(format!("http://{}/api/v1/fleet", a.admin)).bearer_auth("correct horse battery");
    let fleet: Fleet = serde_json::from_slice(&asked.send().await.unwrap().bytes().await.unwrap()).unwrap();
    let other = fleet.routers.iter().find(|router| router.name == "router-b").unwrap();
    assert_eq!((other.reached, other.error.as_deref()), (false, Some("unauthorized")));
}

#[tokio::test]
async fn shadow_mode_routes_by_load_and_says_what_affinity_would_have_found() {
    let engines = engines(4).await;
    let router =
        TestRouter::start(Config { mode: Mode::Shadow, ..config_before("router-a", &engines) }).await;
    let mut replicas = std::collections::BTreeSet::new();
    for _ in 0..40 {
        replicas.insert(complete(&router, "one").await);
    }
    assert_eq!(replicas.len(), 4, "equal load: any of them");
    let status = router.status();
    let shadow = status.shadow.unwrap();
    assert_eq!((shadow.decisions, status.decisions["shadow"]), (40, 40));
    assert!(shadow.affinity_tokens > shadow.done_tokens && shadow.done_tokens > 0, "{shadow:?}");
    assert!(shadow.agreed < 40 && shadow.affinity_tokens <= shadow.prompt_tokens);
    assert!(status.warnings.iter().any(|warning| warning.code == "shadow"));
    let metrics = router.admin_get("/metrics").await.1;
    assert!(metrics.contains("grapevine_shadow_decisions_total 40"), "{metrics}");
}

#[tokio::test]
async fn events_tell_of_the_fleet_and_of_new_decisions() {
    let engines = engines(2).await;
    let mut router = TestRouter::start(config_before("router-a", &engines)).await;
    complete(&router, "before").await;
    let mut stream = http().get(format!("http://{}/api/v1/events", router.admin)).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut read_until = async |stream: &mut reqwest::Response, wanted: &str| {
        let read = async {
            while !text.contains(wanted) {
                text.push_str(
                    std::str::from_utf8(&stream.chunk().await.unwrap().expect("an open stream")).unwrap(),
                );
            }
        };
        soon(read).await;
        text.clone()
    };
    let first = read_until(&mut stream, "\n\n").await;
    let data = first.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let fleet: Fleet = serde_json::from_str(data).unwrap();
    assert!(first.starts_with("event: fleet\n") && fleet.routers.len() == 1, "{first}");
    complete(&router, "after").await;
    let all = read_until(&mut stream, "event: decisions\n").await;
    let all = if all.contains("\"seq\":2") { all } else { read_until(&mut stream, "\"seq\":2").await };
    assert_eq!(all.matches("\"seq\":1,").count(), 1, "what was before is told once: {all}");
    assert_eq!(all.matches("\"seq\":2,").count(), 1, "{all}");
    router.tell_to_stop();
    router.stopped().await.unwrap();
}
