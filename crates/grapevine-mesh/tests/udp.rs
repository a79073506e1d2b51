//! Routers over real UDP on loopback: plain and sealed, who is heard and who is not.

use std::net::SocketAddr;
use std::time::Duration;

use grapevine_mesh::{MeshConfig, MeshError, MeshHandle, spawn};
use tokio::net::UdpSocket;

mod common;

use common::{TestHost, is_live, peer, rejected, ticks, until};

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const OTHER: &[u8] = b"another secret of enough bytes..";

fn config(name: &str, seeds: &[&MeshHandle]) -> MeshConfig {
    MeshConfig {
        seeds: seeds.iter().map(|mesh| mesh.local_addr().unwrap().to_string()).collect(),
        interval: Duration::from_millis(50),
        ..MeshConfig::new(name, "127.0.0.1:0".parse().unwrap())
    }
}

fn sealed(name: &str, seeds: &[&MeshHandle], secret: &[u8]) -> MeshConfig {
    MeshConfig { secret: Some(secret.to_vec()), ..config(name, seeds) }
}

async fn start(config: MeshConfig) -> (MeshHandle, std::sync::Arc<TestHost>) {
    let host = TestHost::new();
    (spawn(config, host.clone()).await.unwrap(), host)
}

async fn three_routers_hear_each_other(secret: Option<&[u8]>) {
    let with = |config: MeshConfig| MeshConfig { secret: secret.map(<[u8]>::to_vec), ..config };
    let (a, host_a) = start(with(config("a", &[]))).await;
    let (_b, host_b) = start(with(config("b", &[&a]))).await;
    let (c, host_c) = start(with(config("c", &[&a]))).await;
    host_a.say(0..500);
    host_b.say_load(3);
    until("a is heard", || host_b.hashes("a").len() >= 500 && host_c.hashes("a").len() >= 500).await;
    until("load is heard", || host_a.inflight("b") == Some(3) && host_c.inflight("b") == Some(3)).await;
    until("b and c met", || is_live(&c, "b") && is_live(&c, "a")).await;
    for host in [&host_b, &host_c] {
        assert_eq!(host.hashes("a"), (0..500).collect::<Vec<_>>());
    }
    let status = a.status();
    assert_eq!(status.sealed, secret.is_some());
    assert!(status.running && status.totals.traffic.bytes_sent > 0);
    assert!(host_a.hashes("a").is_empty(), "a router does not hear itself");
}

#[tokio::test]
async fn plain_routers_hear_each_other() {
    three_routers_hear_each_other(None).await;
}

#[tokio::test]
async fn sealed_routers_hear_each_other() {
    three_routers_hear_each_other(Some(SECRET)).await;
}
