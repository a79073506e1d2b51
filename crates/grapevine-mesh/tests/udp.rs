//! Routers over real UDP on loopback: plain and sealed, who is heard and who is not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use grapevine_mesh::{MeshConfig, MeshError, MeshHandle, spawn};
use tokio::net::UdpSocket;

mod common;

use common::{TestHost, is_live, rejected, ticks, until};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER: &[u8] = b"another secret of enough bytes..";

fn config(name: &str, seeds: &[&MeshHandle]) -> MeshConfig {
    MeshConfig {
        seeds: seeds.iter().map(|mesh| address(mesh).to_string()).collect(),
        interval: Duration::from_millis(50),
        ..MeshConfig::new(name, "127.0.0.1:0".parse().unwrap())
    }
}

fn sealed(name: &str, seeds: &[&MeshHandle], secrets: &[&[u8]]) -> MeshConfig {
    let mut secrets = secrets.iter().map(|secret| secret.to_vec());
    MeshConfig { secret: secrets.next(), previous_secret: secrets.next(), ..config(name, seeds) }
}

fn address(mesh: &MeshHandle) -> SocketAddr {
    mesh.local_addr().unwrap()
}

async fn start(config: MeshConfig) -> (MeshHandle, Arc<TestHost>) {
    let host = TestHost::new();
    (spawn(config, host.clone()).await.unwrap(), host)
}

fn peers(mesh: &MeshHandle) -> Vec<String> {
    mesh.status().peers.iter().map(|peer| peer.name.to_string()).collect()
}

async fn three_routers_hear_each_other(secrets: &[&[u8]]) {
    let (a, host_a) = start(sealed("a", &[], secrets)).await;
    let (_b, host_b) = start(sealed("b", &[&a], secrets)).await;
    let (c, host_c) = start(sealed("c", &[&a], secrets)).await;
    host_a.say(0..500);
    host_b.say_load(3);
    until("a is heard", || host_b.numbers("a").len() >= 500 && host_c.numbers("a").len() >= 500).await;
    until("load is heard", || host_a.inflight("b") == Some(3) && host_c.inflight("b") == Some(3)).await;
    until("b and c met", || is_live(&c, "b") && is_live(&c, "a")).await;
    for host in [&host_b, &host_c] {
        assert_eq!(host.numbers("a"), (0..500).collect::<Vec<_>>());
    }
    let status = a.status();
    assert_eq!(status.sealed, !secrets.is_empty());
    assert!(status.running && status.totals.traffic.bytes_sent > 0);
    assert!(host_a.numbers("a").is_empty(), "a router does not hear itself");
    until("peers tell how far they are", || a.status().peers.iter().all(|peer| peer.pairs == 2)).await;
    bytes_are_those_of_peers(&a);
}

/// All that passed, but for greetings, which tell who is there, and what was rejected.
fn bytes_are_those_of_peers(mesh: &MeshHandle) {
    let status = mesh.status();
    let (sent, received): (Vec<u64>, Vec<u64>) =
        status.peers.iter().map(|peer| (peer.bytes_sent, peer.bytes_received)).unzip();
    assert!(sent.iter().chain(&received).all(|&bytes| bytes > 0), "{:?}", status.peers);
    assert!(sent.iter().sum::<u64>() <= status.totals.traffic.bytes_sent);
    assert!(received.iter().sum::<u64>() <= status.totals.traffic.bytes_received);
    assert_eq!(status.pairs, status.peers.iter().map(|peer| peer.pairs).sum::<usize>());
}

#[tokio::test]
async fn plain_routers_hear_each_other() {
    three_routers_hear_each_other(&[]).await;
}

#[tokio::test]
async fn sealed_routers_hear_each_other() {
    three_routers_hear_each_other(&[SECRET]).await;
}

#[tokio::test]
async fn strangers_never_become_peers() {
    let (a, host_a) = start(sealed("a", &[], &[SECRET])).await;
    let (wrong, host_wrong) = start(sealed("wrong", &[&a], &[OTHER])).await;
    let (plain, _) = start(config("plain", &[&a])).await;
    let elsewhere = MeshConfig { cluster_id: "elsewhere".into(), ..sealed("elsewhere", &[&a], &[SECRET]) };
    let (elsewhere, _) = start(elsewhere).await;
    host_wrong.say(0..100);
    host_wrong.say_load(1);
    until("all have knocked", || rejected(&a, "foreign") >= 60).await;

    let (b, host_b) = start(sealed("b", &[&a], &[SECRET])).await;
    host_b.say([1]);
    until("b is heard", || host_a.numbers("b") == [1]).await;
    ticks(&a, 20).await;
    assert_eq!((peers(&a), peers(&b)), (vec!["b".into()], vec!["a".into()]));
    for stranger in [&wrong, &plain, &elsewhere] {
        assert!(peers(stranger).is_empty());
    }
    assert_eq!(host_a.heard().iter().filter(|it| !it.entries.is_empty()).count(), 1);
}

#[tokio::test]
async fn fleets_on_one_machine_do_not_mix_without_a_seal_either() {
    let (a, _) = start(config("a", &[])).await;
    let (b, _) = start(MeshConfig { cluster_id: "elsewhere".into(), ..config("b", &[&a]) }).await;
    until("b has knocked", || rejected(&a, "foreign") >= 20).await;
    assert!(peers(&a).is_empty() && peers(&b).is_empty());
}

#[tokio::test]
async fn the_secret_is_replaced_router_by_router() {
    let (a, host_a) = start(sealed("a", &[], &[SECRET])).await;
    let (b, host_b) = start(sealed("b", &[&a], &[OTHER, SECRET])).await;
    host_a.say([1]);
    host_b.say([2]);
    until("old and both hear each other", || host_b.numbers("a") == [1] && host_a.numbers("b") == [2]).await;
    let (_c, host_c) = start(sealed("c", &[&b], &[OTHER])).await;
    host_b.say([3]);
    host_c.say([4]);
    until("both and new hear each other", || host_c.numbers("b").contains(&3) && host_b.numbers("c") == [4])
        .await;
}

#[tokio::test]
async fn junk_has_no_effect() {
    let (a, host_a) = start(sealed("a", &[], &[SECRET])).await;
    let (_b, host_b) = start(sealed("b", &[&a], &[SECRET])).await;
    until("they met", || is_live(&a, "b")).await;
    let attacker = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut noise = 1u64;
    for round in 0..5_000usize {
        let mut junk: Vec<u8> = (0..round % 1_400)
            .map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (noise >> 56) as u8
            })
            .collect();
        // Some begin like ours, sealed or plain.
        if let Some(first) = junk.first_mut().filter(|_| round % 2 == 0) {
            *first = 0xA0 + (round / 2 % 2) as u8;
        }
        attacker.send_to(&junk, address(&a)).await.unwrap();
        if round % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    host_b.say(0..100);
    until("b is still heard", || host_a.numbers("b") == (0..100).collect::<Vec<_>>()).await;
    assert_eq!(peers(&a), ["b"]);
    assert_eq!(a.status().totals.restarts, 0);
    assert!(rejected(&a, "foreign") >= 1_000, "{:?}", a.status().totals.traffic);
}

#[tokio::test]
async fn junk_in_the_plain_format_is_dropped_too() {
    let (a, host_a) = start(config("a", &[])).await;
    let (b, host_b) = start(config("b", &[&a])).await;
    until("they met", || is_live(&a, "b")).await;
    let cluster = {
        // The fleet's tag, as anyone on this machine can see it.
        let spy = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (_c, _) =
            start(MeshConfig { seeds: vec![spy.local_addr().unwrap().to_string()], ..config("c", &[]) })
                .await;
        let mut datagram = [0; 2048];
        spy.recv(&mut datagram).await.unwrap();
        datagram[..10].to_vec()
    };
    let attacker = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for round in 0..2_000u32 {
        let mut junk = cluster.clone();
        junk.extend(round.to_le_bytes());
        junk.extend([(round % 5) as u8, (round % 4) as u8, (round % 3) as u8]);
        junk.extend(vec![round as u8; (round % 300) as usize]);
        attacker.send_to(&junk, address(&a)).await.unwrap();
        if round % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    host_b.say([7]);
    until("b is still heard", || host_a.numbers("b") == [7]).await;
    assert!(rejected(&a, "damaged") + rejected(&a, "incomplete") > 100);
    assert!(b.status().running);
}

#[tokio::test]
async fn a_busy_port_is_tried_again() {
    let squatter = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let listen = squatter.local_addr().unwrap();
    let (a, host_a) = start(MeshConfig { listen, ..config("a", &[]) }).await;
    assert_eq!(a.local_addr(), None);
    assert!(!a.status().running);
    drop(squatter);
    until("the port is ours", || a.local_addr() == Some(listen) && a.status().running).await;
    let (_b, host_b) = start(config("b", &[&a])).await;
    host_b.say([5]);
    until("b is heard", || host_a.numbers("b") == [5]).await;
}

#[tokio::test]
async fn leaving_ends_the_wait_for_a_busy_port() {
    let squatter = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (a, _) = start(MeshConfig { listen: squatter.local_addr().unwrap(), ..config("a", &[]) }).await;
    a.leave().await;
    a.leave().await;
}

#[tokio::test]
async fn seeds_that_do_not_resolve_do_no_harm() {
    let (good, host_good) = start(config("good", &[])).await;
    let seeds = vec![
        "no-such-host.invalid:1".into(),
        "not an address".into(),
        "127.0.0.1:1".into(),
        address(&good).to_string(),
    ];
    let (_a, host_a) = start(MeshConfig { seeds, ..config("a", &[]) }).await;
    host_a.say([1]);
    until("the good seed hears", || host_good.numbers("a") == [1]).await;
}

#[tokio::test]
async fn gossip_beyond_this_machine_needs_a_secret() {
    let open = MeshConfig { listen: "0.0.0.0:0".parse().unwrap(), ..config("a", &[]) };
    let error = spawn(open.clone(), TestHost::new()).await.unwrap_err();
    assert!(matches!(error, MeshError::Unsealed(_)));
    assert!(error.to_string().contains("needs a secret"), "{error}");
    let advertise = Some("127.0.0.1:0".parse().unwrap());
    let (a, _) = start(MeshConfig { secret: Some(SECRET.to_vec()), advertise, ..open }).await;
    until("it runs", || a.status().running).await;
    assert_eq!(a.status().advertised.unwrap().port(), address(&a).port());
}

#[tokio::test]
async fn a_sealed_router_that_restarts_is_met_again() {
    let (a, host_a) = start(sealed("a", &[], &[SECRET])).await;
    let (b, _) = start(sealed("b", &[&a], &[SECRET])).await;
    until("they met", || is_live(&a, "b") && is_live(&b, "a")).await;
    let listen = address(&b);
    b.leave().await;
    let (_b, host_b) = start(MeshConfig { listen, ..sealed("b", &[&a], &[SECRET]) }).await;
    host_b.say([9]);
    until("the new b is heard", || host_a.numbers("b") == [9]).await;
    let restarts = host_a.heard().iter().filter(|it| it.restarted).count();
    assert_eq!(restarts, 1);
}
