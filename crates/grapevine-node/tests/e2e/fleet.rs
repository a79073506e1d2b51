//! Two routers, one fleet.

use std::time::Duration;

use crate::support::*;

async fn ask(router: &TestRouter, prompt: &str) -> (String, String) {
    let body = serde_json::json!({ "model": "m", "prompt": prompt }).to_string();
    let answer = http().post(router.url("/v1/completions")).body(body).send().await.unwrap();
    let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    (header("x-grapevine-replica"), header("x-grapevine-matched-tokens"))
}

#[tokio::test]
async fn a90_a_router_that_never_saw_a_prefix_sends_it_where_its_peer_did() {
    let mut engines = Vec::new();
    for _ in 0..4 {
        engines.push(RawEngine::json("200 OK", "{}").await);
    }
    let addrs: Vec<_> = engines.iter().map(|e| e.addr).collect();
    let fleet_config = |name: &str| {
        let mut config = named_config(name, &addrs);
        config.debug_headers = true;
        config.gossip_interval = Duration::from_millis(50);
        config
    };
    let a = TestRouter::start(fleet_config("router-a")).await;
    let mut second = fleet_config("router-b");
    second.gossip_seeds = vec![a.gossip.to_string()];
    let b = TestRouter::start(second).await;
    until("they know each other", || a.status().gossip.live_peers == 1 && b.status().gossip.live_peers == 1)
        .await;

    let prompts: Vec<_> = (0..20).map(|i| format!("{i} lorem ipsum dolor ").repeat(100)).collect();
    let mut chosen = Vec::new();
    for prompt in &prompts {
        let (replica, matched) = ask(&a, prompt).await;
        assert_eq!(matched, "0", "nobody has seen it");
        chosen.push(replica);
    }
    let spread: std::collections::BTreeSet<_> = chosen.iter().collect();
    assert_eq!(spread.len(), 4, "cold prompts are spread: {chosen:?}");
    until("b has heard of all", || b.status().gossip.entries_received >= 20).await;
    until("b's tree holds them", || b.status().tree.boundaries > 0).await;
    for (prompt, replica) in prompts.iter().zip(&chosen) {
        let (same, matched) = ask(&b, prompt).await;
        assert_eq!(&same, replica);
        assert_ne!(matched, "0");
    }
    assert_eq!(b.status().hits, 20);
}

#[tokio::test]
async fn a_router_that_joins_is_ready_when_it_knows_what_its_peer_knows() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let other = RawEngine::json("200 OK", "{}").await;
    let fleet_config = |name: &str| {
        let mut config = named_config(name, &[engine.addr, other.addr]);
        config.debug_headers = true;
        config.gossip_interval = Duration::from_millis(50);
        config.cluster_secret = Some(grapevine_node::config::Secret::new("a secret of enough bytes".into()));
        config.join_timeout = Duration::from_secs(60);
        config
    };
    let a = TestRouter::start(fleet_config("router-a")).await;
    assert_eq!(a.admin_get("/readyz").await.0, 200, "who looks for nobody does not wait");
    let prompts: Vec<_> = (0..20).map(|i| format!("{i} lorem ipsum dolor ").repeat(100)).collect();
    let mut chosen = Vec::new();
    for prompt in &prompts {
        chosen.push(ask(&a, prompt).await.0);
    }
    until("a's tree holds them", || a.status().tree.boundaries > 0).await;

    let mut second = fleet_config("router-b");
    second.gossip_seeds = vec![a.gossip.to_string()];
    let b = TestRouter::start(second).await;
    until("b has joined", || b.status().router.phase == "serving").await;
    assert_eq!(b.admin_get("/readyz").await.0, 200);
    for (prompt, replica) in prompts.iter().zip(&chosen) {
        let (same, matched) = ask(&b, prompt).await;
        assert_eq!(&same, replica);
        assert_ne!(matched, "0");
    }
    until("it says how", || b.status().gossip.snapshots["restored"] == 1).await;
    assert!(a.status().gossip.answers >= 2, "a head and at least one page");
    let metrics = b.admin_get("/metrics").await.1;
    assert!(metrics.contains("grapevine_gossip_snapshots_total{result=\"restored\"} 1"), "{metrics}");
    assert!(metrics.contains("grapevine_gossip_agreement 1"), "{metrics}");
    until("the peer told how far it is", || b.status().peers[0].agreement == Some(1.0)).await;
    let metrics = b.admin_get("/metrics").await.1;
    assert!(metrics.contains("grapevine_gossip_peer_agreement{peer=\"router-a\"} 1"), "{metrics}");
    for bytes in ["sent", "received"] {
        let name = format!("grapevine_gossip_peer_{bytes}_bytes_total{{peer=\"router-a\"}}");
        assert!(metrics.contains(&name) && !metrics.contains(&format!("{name} 0")), "{metrics}");
    }
    assert!(metrics.contains("grapevine_tree_outdated_total 0"), "{metrics}");
    let question = http().post(format!("http://{}/internal/v1/mesh", a.admin)).body("anything");
    assert_eq!(question.send().await.unwrap().status(), 403);
    until("it is counted", || a.status().gossip.rejected["question_foreign"] == 1).await;
}

#[tokio::test]
async fn load_of_a_peer_is_seen_and_goes_again() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.closed().await;
    })
    .await;
    let mut config = named_config("router-a", &[engine.addr]);
    config.gossip_interval = Duration::from_millis(50);
    let a = TestRouter::start(config.clone()).await;
    config.router_id = "router-b".to_owned();
    config.gossip_seeds = vec![a.gossip.to_string()];
    let b = TestRouter::start(config).await;
    let held = RawClient::send(a.addr, chat()).await;
    until("b sees a's request", || b.status().replicas[0].peer_inflight > 0.0).await;
    drop(held);
    until("and its end", || b.status().replicas[0].peer_inflight == 0.0).await;
}

#[tokio::test]
async fn a107_a_taken_gossip_port_keeps_no_router_from_serving() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let taken = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&[engine.addr]);
    config.gossip_listen = taken.local_addr().unwrap();
    let app = grapevine_node::App::build(config, grapevine_node::Deps::default()).await.unwrap();
    let addresses = app.addresses();
    assert_eq!(addresses.gossip, None);
    let task = tokio::spawn(app.run(std::future::pending()));
    let url = format!("http://{}/v1/chat/completions", addresses.front);
    assert_eq!(http().post(url).body("{}").send().await.unwrap().status(), 200);
    task.abort();
}
