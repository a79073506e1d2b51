//! Several routers.

use serde_json::json;

use super::process::{Engine, Router, chat, free_udp, routers, wait_for};

fn engines(count: usize) -> Vec<Engine> {
    (0..count).map(|_| Engine::start(&["--base-ms", "0", "--prefill-us-per-block", "0"])).collect()
}

fn urls(engines: &[Engine]) -> Vec<String> {
    engines.iter().map(|engine| engine.url.clone()).collect()
}

fn preamble(tag: &str) -> serde_json::Value {
    json!([{"role": "system", "content": format!("{tag} ").repeat(700)}, {"role": "user", "content": "hi"}])
}

#[test]
fn a90_a_router_sends_a_prefix_it_never_saw_where_its_peer_sent_it() {
    let engines = engines(4);
    let fleet = routers(2, &urls(&engines), &[("GRAPEVINE_DEBUG_HEADERS", "true".to_owned())]);
    for tag in 0..10 {
        let messages = preamble(&format!("prefix-{tag}"));
        let (first, _) = chat(&fleet[0].url, &messages);
        let chosen = first.header("x-grapevine-replica").unwrap().to_owned();
        wait_for("gossip", || (fleet[1].status().gossip.entries_received > tag).then_some(()));
        wait_for("the peer to know", || {
            let (second, _) = chat(&fleet[1].url, &messages);
            assert_eq!(second.header("x-grapevine-replica"), Some(chosen.as_str()));
            (second.header("x-grapevine-reason") == Some("affinity")).then_some(())
        });
    }
}

#[test]
fn a95_a_restarted_router_comes_back_under_its_name() {
    let engines = engines(2);
    let mut fleet = routers(2, &urls(&engines), &[]);
    for _ in 0..3 {
        let old = fleet.pop().unwrap();
        old.process.signal("KILL");
        drop(old);
        let gossip = free_udp();
        let seeds = fleet[0].status().router.gossip_listen.unwrap().to_string();
        let settings = [
            ("GRAPEVINE_ROUTER_ID", "r2".to_owned()),
            ("GRAPEVINE_GOSSIP_LISTEN", gossip),
            ("GRAPEVINE_GOSSIP_SEEDS", seeds),
        ];
        fleet.push(Router::start(&urls(&engines), &settings));
        let messages = preamble("after a restart");
        chat(&fleet[1].url, &messages);
        wait_for("the peers to talk again", || {
            let peers = fleet[0].status().peers;
            assert!(peers.iter().filter(|p| p.name == "r2").count() <= 1, "one entry for one router");
            peers.iter().any(|p| p.name == "r2" && p.live && p.entries > 0).then_some(())
        });
    }
}

#[test]
fn a107_gossip_that_cannot_start_does_not_keep_a_router_from_serving() {
    let engines = engines(1);
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let settings = [
        ("GRAPEVINE_GOSSIP_LISTEN", taken.local_addr().unwrap().to_string()),
        ("GRAPEVINE_GOSSIP_SEEDS", "no-such-host.invalid:7946".to_owned()),
    ];
    let router = Router::start(&urls(&engines), &settings);
    assert_eq!(chat(&router.url, &preamble("alone")).0.status, 200);
    assert!(!router.status().gossip.running);
}

#[test]
fn a_router_that_was_told_of_no_other_does_not_miss_any() {
    let engines = engines(1);
    let gossip = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let alone = |seed: &str| {
        let settings =
            [("GRAPEVINE_GOSSIP_LISTEN", gossip.clone()), ("GRAPEVINE_GOSSIP_SEEDS", seed.to_owned())];
        let router = Router::start(&urls(&engines), &settings);
        wait_for("gossip", || router.status().gossip.running.then_some(()));
        router.status().warnings.iter().any(|warning| warning.code == "alone")
    };
    assert!(!alone(&gossip), "its seed is itself");
    assert!(alone(&format!("{gossip},127.0.0.1:1")), "nobody is there");
    assert!(alone("no-such-host.invalid:7946"), "a name that does not resolve");
}

#[test]
fn a_sealed_fleet_lets_no_stranger_in() {
    let engines = engines(2);
    let secret = |text: &str| vec![("GRAPEVINE_CLUSTER_SECRET", text.to_owned())];
    let fleet = routers(2, &urls(&engines), &secret("correct horse battery staple"));
    let seeds = fleet[0].status().router.gossip_listen.unwrap().to_string();
    let mut settings = secret("a wholly different secret");
    settings.push(("GRAPEVINE_GOSSIP_SEEDS", seeds));
    settings.push(("GRAPEVINE_ROUTER_ID", "stranger".to_owned()));
    let stranger = Router::start(&urls(&engines), &settings);
    chat(&fleet[0].url, &preamble("secret"));
    wait_for("the fleet's own gossip", || (fleet[1].status().gossip.entries_received > 0).then_some(()));
    assert!(fleet.iter().all(|router| router.status().peers.iter().all(|peer| peer.name != "stranger")));
    assert_eq!(stranger.status().gossip.live_peers, 0);
}
