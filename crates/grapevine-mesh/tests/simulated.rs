//! Routers on a simulated network in virtual time: who hears what, how often, and after which
//! mishaps.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grapevine_mesh::{MeshConfig, MeshHandle, spawn_with_transport};

mod common;
#[path = "common/network.rs"]
mod network;

use common::{TestHost, is_live, peer, rejected, ticks, until};
use network::{Network, pass};

struct Router {
    mesh: MeshHandle,
    host: Arc<TestHost>,
}

fn addr(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn config(name: &str, port: u16, seeds: &[u16]) -> MeshConfig {
    MeshConfig {
        seeds: seeds.iter().map(|port| addr(*port).to_string()).collect(),
        generation: Some(1_000),
        ..MeshConfig::new(name, addr(port))
    }
}

fn start(network: &Network, config: MeshConfig) -> Router {
    let host = TestHost::new();
    let mesh = spawn_with_transport(config, host.clone(), network.shared(), None).unwrap();
    Router { mesh, host }
}

/// Routers `r1` to `r<count>` that all know only the first.
fn fleet(network: &Network, count: u16) -> Vec<Router> {
    (1..=count).map(|port| start(network, config(&format!("r{port}"), port, &[1]))).collect()
}

async fn all_met(routers: &[Router]) {
    for router in routers {
        until("all are live", || router.mesh.status().live_peers() == routers.len() - 1).await;
    }
}

fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
    range.collect()
}

#[tokio::test(start_paused = true)]
async fn what_one_router_says_all_hear_once() {
    let network = Network::new(1);
    let routers = fleet(&network, 3);
    all_met(&routers).await;
    for round in 0..20 {
        routers[0].host.say(round * 10..round * 10 + 10);
        routers[0].host.say_load(round as u32);
        ticks(&routers[0].mesh, 1).await;
    }
    for router in &routers[1..] {
        until("everything is heard", || router.host.numbers("r1").len() >= 200).await;
        until("the load is heard", || router.host.inflight("r1") == Some(19)).await;
    }
    ticks(&routers[0].mesh, 20).await;
    for router in &routers[1..] {
        assert_eq!(router.host.numbers("r1"), numbers(0..200));
        let peer = peer(&router.mesh, "r1").unwrap();
        assert_eq!((peer.missed, peer.open, peer.entries), (0, 0, 200));
        assert!(router.host.heard().iter().all(|it| !it.restarted));
    }
    assert!(routers[0].host.heard().iter().all(|it| it.entries.is_empty()), "nobody repeats what it heard");
}

#[tokio::test(start_paused = true)]
async fn loss_duplicates_and_disorder_do_no_harm() {
    for seed in 0..5 {
        let network = Network::new(seed);
        let routers = fleet(&network, 4);
        network.lose(20);
        network.mess_up(30);
        for round in 0..40 {
            routers[1].host.say(round * 5..round * 5 + 5);
            ticks(&routers[1].mesh, 1).await;
        }
        for router in routers.iter().filter(|it| !Arc::ptr_eq(&it.host, &routers[1].host)) {
            until("everything is heard", || router.host.numbers("r2").len() >= 200).await;
        }
        ticks(&routers[0].mesh, 40).await;
        assert_eq!(routers[0].host.numbers("r2"), numbers(0..200), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_hears_the_last_16_seconds_and_not_what_is_older() {
    let network = Network::new(1);
    let mut routers = fleet(&network, 2);
    all_met(&routers).await;
    routers[0].host.say([1, 2, 3]);
    ticks(&routers[0].mesh, 4).await;
    routers.push(start(&network, config("r3", 3, &[2])));
    until("the ring is heard", || routers[2].host.numbers("r1") == [1, 2, 3]).await;

    pass(Duration::from_secs(20)).await;
    routers.push(start(&network, config("r4", 4, &[2])));
    all_met(&routers).await;
    ticks(&routers[3].mesh, 20).await;
    assert!(routers[3].host.numbers("r1").is_empty(), "stale");
    routers[0].host.say([4]);
    until("what is new is heard", || routers[3].host.numbers("r1") == [4]).await;
    assert_eq!(peer(&routers[3].mesh, "r1").unwrap().missed, 0);
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_writes_nothing() {
    let network = Network::new(1);
    let routers = fleet(&network, 3);
    all_met(&routers).await;
    routers[0].host.say([1]);
    pass(Duration::from_secs(30)).await;
    let before: Vec<_> = routers.iter().map(|it| it.mesh.status().totals.published).collect();
    let heard: Vec<_> = routers.iter().map(|it| it.host.heard().len()).collect();
    pass(Duration::from_secs(600)).await;
    let after: Vec<_> = routers.iter().map(|it| it.mesh.status().totals.published).collect();
    assert_eq!(before, after);
    assert_eq!(heard, routers.iter().map(|it| it.host.heard().len()).collect::<Vec<_>>());
    assert!(routers.iter().all(|it| it.mesh.status().live_peers() == 2));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_router_is_heard_and_told_of_once() {
    let network = Network::new(1);
    let a = start(&network, config("r1", 1, &[]));
    let b = start(&network, MeshConfig { generation: Some(10), ..config("r2", 2, &[1]) });
    b.host.say([1, 2]);
    b.host.say_epoch(3);
    until("b is heard", || a.host.numbers("r2") == [1, 2]).await;
    drop(b);
    ticks(&a.mesh, 2).await;
    let b = start(&network, MeshConfig { generation: Some(11), ..config("r2", 2, &[1]) });
    b.host.say([3]);
    until("the new b is heard", || a.host.numbers("r2") == [1, 2, 3]).await;
    pass(Duration::from_secs(20)).await;
    assert_eq!(a.host.heard().iter().filter(|it| it.restarted).count(), 1);
    assert_eq!(a.mesh.status().peers.len(), 1);
    assert_eq!(peer(&a.mesh, "r2").unwrap().generation, 11);
    let epochs: Vec<u32> = a.host.heard().iter().flat_map(|it| &it.epochs).map(|it| it.epoch).collect();
    assert_eq!(epochs, [3]);
}

#[tokio::test(start_paused = true)]
async fn twenty_restarts_leave_no_trace() {
    let network = Network::new(1);
    let a = start(&network, config("r1", 1, &[]));
    for generation in 1..=20 {
        let b = start(&network, MeshConfig { generation: Some(generation), ..config("r2", 2, &[1]) });
        // Full values that do not compress: a ring left behind would weigh.
        b.host.say((0..3_000).map(|i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let heard = || peer(&a.mesh, "r2").map_or(0, |it| it.entries);
        until("all is said", || heard() == generation * 3_000).await;
        b.mesh.leave().await;
    }
    assert_eq!(a.mesh.status().peers.len(), 1);
    let newcomer = start(&network, config("r3", 3, &[1]));
    until("the last ring is heard", || newcomer.host.numbers("r2").len() == 3_000).await;
    ticks(&newcomer.mesh, 20).await;
    let received = newcomer.mesh.status().totals.traffic.bytes_received;
    assert!(received < 3 * 3_000 * 30, "a newcomer received {received} bytes");
    assert_eq!(newcomer.mesh.status().peers.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cut_fleet_finds_itself_again() {
    let network = Network::new(1);
    let routers = fleet(&network, 4);
    all_met(&routers).await;
    let halves = || [1, 2].into_iter().flat_map(|left| [3, 4].map(|right| (addr(left), addr(right))));
    for (left, right) in halves() {
        network.links.remove_link(left, right).await;
    }
    for router in &routers {
        until("the others are missed", || router.mesh.status().live_peers() == 1).await;
    }
    routers[0].host.say(0..5);
    pass(Duration::from_secs(60)).await;
    routers[3].host.say(5..10);
    until("one half hears", || routers[2].host.numbers("r4") == numbers(5..10)).await;
    assert!(routers[0].host.numbers("r4").is_empty());
    for (left, right) in halves() {
        network.links.add_link(left, right).await;
    }
    all_met(&routers).await;
    until("the one half is heard", || routers[3].host.numbers("r1") == numbers(0..5)).await;
    until("the other half is heard", || routers[1].host.numbers("r4") == numbers(5..10)).await;
}

/// Cut off for longer than chitchat remembers the dead: only the seeds are left to find the rest.
#[tokio::test(start_paused = true)]
async fn a_router_cut_off_for_ten_minutes_returns() {
    let network = Network::new(1);
    let routers = fleet(&network, 3);
    all_met(&routers).await;
    for other in [1, 2] {
        network.links.remove_link(addr(3), addr(other)).await;
    }
    pass(Duration::from_secs(700)).await;
    assert!(routers[0].mesh.status().peers.iter().all(|peer| &*peer.name != "r3"), "forgotten");
    for other in [1, 2] {
        network.links.add_link(addr(3), addr(other)).await;
    }
    routers[2].host.say([1]);
    until("it is heard again", || routers[0].host.numbers("r3") == [1]).await;
    all_met(&routers).await;
    assert!(routers[0].host.heard().iter().all(|it| !it.restarted), "it never restarted");
}

#[tokio::test(start_paused = true)]
async fn a_flood_is_spread_over_ticks() {
    let network = Network::new(1);
    let routers = fleet(&network, 2);
    all_met(&routers).await;
    routers[0].host.ignore_budget();
    routers[0].host.say(0..4_000);
    until("everything is heard", || routers[1].host.numbers("r1").len() >= 4_000).await;
    assert_eq!(routers[1].host.numbers("r1"), numbers(0..4_000));
    let published = routers[0].mesh.status().totals.published;
    assert!(published.deferred > 0 && published.dropped == 0);
    assert!(peer(&routers[1].mesh, "r1").unwrap().segments >= 7, "at most 12 KiB each");

    routers[0].host.say(0..100_000);
    ticks(&routers[0].mesh, 2).await;
    let published = routers[0].mesh.status().totals.published;
    assert!(published.dropped > 90_000, "bounded");
}

#[tokio::test(start_paused = true)]
async fn gossip_that_broke_starts_again() {
    let network = Network::new(1);
    let routers = fleet(&network, 2);
    all_met(&routers).await;
    routers[0].host.say([1]);
    until("before", || routers[1].host.numbers("r1") == [1]).await;
    network.break_one();
    let restarts = || routers.iter().map(|it| it.mesh.status().totals.restarts).sum::<u64>();
    until("it broke", || restarts() == 1).await;
    all_met(&routers).await;
    routers[0].host.say([2]);
    routers[1].host.say([3]);
    until("after", || routers[1].host.numbers("r1").contains(&2) && routers[0].host.numbers("r2") == [3])
        .await;
    let heard = routers.iter().flat_map(|it| it.host.heard());
    assert!(heard.into_iter().all(|it| !it.restarted), "the routers themselves did not restart");
}

#[tokio::test(start_paused = true)]
async fn a_router_whose_clock_went_back_catches_up_with_its_past() {
    let network = Network::new(1);
    let a = start(&network, config("r1", 1, &[]));
    let b = start(&network, MeshConfig { generation: Some(5_000), ..config("r2", 2, &[1]) });
    b.host.say([1]);
    until("b is heard", || a.host.numbers("r2") == [1]).await;
    drop(b);
    ticks(&a.mesh, 2).await;
    let b = start(&network, MeshConfig { generation: Some(4_000), ..config("r2", 2, &[1]) });
    b.host.say([2]);
    until("b is heard again", || a.host.numbers("r2") == [1, 2]).await;
    assert_eq!(b.mesh.status().generation, 5_001);
    assert_eq!(a.host.heard().iter().filter(|it| it.restarted).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_routers_of_one_name_are_reported_and_do_not_chase_each_other() {
    let network = Network::new(1);
    let a = start(&network, config("r1", 1, &[]));
    let older = start(&network, MeshConfig { generation: Some(1), ..config("twin", 2, &[1]) });
    let newer = start(&network, MeshConfig { generation: Some(2), ..config("twin", 3, &[1]) });
    until("the older one notices", || older.mesh.status().name_conflict).await;
    older.host.say([1]);
    newer.host.say([2]);
    until("the newer one is heard", || a.host.numbers("twin") == [2]).await;
    pass(Duration::from_secs(60)).await;
    assert_eq!((older.mesh.status().generation, newer.mesh.status().generation), (1, 2));
    assert_eq!(a.host.numbers("twin"), [2]);
    assert!(!newer.mesh.status().name_conflict);
}

#[tokio::test(start_paused = true)]
async fn who_leaves_says_so() {
    let network = Network::new(1);
    let routers = fleet(&network, 3);
    all_met(&routers).await;
    routers[2].host.say_load(5);
    until("the load is heard", || routers[0].host.inflight("r3") == Some(5)).await;
    let gone = routers[2].mesh.clone();
    let again = tokio::spawn(async move { gone.leave().await });
    routers[2].mesh.leave().await;
    again.await.unwrap();
    routers[2].mesh.stopped().await;
    assert!(!routers[2].mesh.status().running);
    for router in &routers[..2] {
        until("it is draining", || peer(&router.mesh, "r3").unwrap().draining).await;
        assert_eq!(router.host.heard().last().unwrap().loads, Some(vec![]), "and has nothing in flight");
        assert_eq!(router.mesh.status().live_peers(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_router_said_stays() {
    let network = Network::new(1);
    let mut routers = fleet(&network, 3);
    all_met(&routers).await;
    routers[2].host.say([1]);
    until("it is heard", || routers[0].host.numbers("r3") == [1]).await;
    routers.truncate(2);
    until("it is missed", || !is_live(&routers[0].mesh, "r3")).await;
    let newcomer = start(&network, config("r4", 4, &[1]));
    until("a newcomer hears of it", || newcomer.host.numbers("r3") == [1]).await;
    assert_eq!(routers[0].host.heard().iter().filter(|it| !it.entries.is_empty()).count(), 1);
}

/// Routers leave the dead out of their digests a while after they missed them. Who joined later does so later, and until
/// then must not send the others all that the dead said, with each exchange.
#[tokio::test(start_paused = true)]
async fn the_dead_are_not_told_of_again_and_again() {
    let network = Network::new(1);
    let mut routers = fleet(&network, 4);
    all_met(&routers).await;
    for router in &routers[2..] {
        router.host.say((1..=1_000).map(|i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    until("all is said", || ["r3", "r4"].iter().all(|it| routers[0].host.numbers(it).len() == 1_000)).await;
    routers.truncate(2);
    pass(Duration::from_secs(25)).await;
    routers.push(start(&network, config("r5", 5, &[1])));
    let again = MeshConfig { generation: Some(u64::MAX / 2), ..config("r3", 3, &[1]) };
    routers.push(start(&network, again));
    for name in ["r3", "r4"] {
        until("a newcomer hears of it", || routers[2].host.numbers(name).len() == 1_000).await;
    }
    pass(Duration::from_secs(60)).await;
    let sent = || routers.iter().map(|it| it.mesh.status().totals.traffic.bytes_sent).sum::<u64>();
    let before = sent();
    pass(Duration::from_secs(240)).await;
    let each_second = (sent() - before) / 240 / 4;
    assert!(each_second < 6_000, "{each_second} bytes a second of a router with nothing to say");
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_sixteen_hears_everyone() {
    let network = Network::new(1);
    let routers = fleet(&network, 16);
    all_met(&routers).await;
    for (at, router) in routers.iter().enumerate() {
        router.host.say([at as u64]);
        router.host.say_load(at as u32 + 1);
    }
    for (at, router) in routers.iter().enumerate() {
        let others = || (0..16).filter(|other| *other != at);
        until("everyone is heard", || {
            others().all(|it| router.host.numbers(&format!("r{}", it + 1)) == [it as u64])
                && others().all(|it| router.host.inflight(&format!("r{}", it + 1)) == Some(it as u32 + 1))
        })
        .await;
    }
    let names: BTreeSet<_> = routers[0].mesh.status().peers.iter().map(|peer| peer.name.clone()).collect();
    assert_eq!(names.len(), 15);
    assert_eq!(rejected(&routers[0].mesh, "malformed"), 0);
}
