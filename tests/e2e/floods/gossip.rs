//! The gossip port, for whoever can reach it and has no secret.

use std::net::UdpSocket;
use std::time::Duration;

use super::super::process::{Router, chat, free_udp, wait_for};
use super::healthy::served_during;
use super::{engine, quiet_settings};

/// Datagrams of each kind, to each router.
const DATAGRAMS: usize = 20_000;

/// What a router may allocate meanwhile.
const NOISE_BYTES: usize = 32 << 20;

/// A sealed fleet of two, and somebody whom it takes for a third.
struct Fleet {
    routers: Vec<Router>,
    ports: Vec<String>,
    overheard: UdpSocket,
}

impl Fleet {
    fn start() -> Self {
        let overheard = UdpSocket::bind("127.0.0.1:0").unwrap();
        overheard.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let ports = vec![free_udp(), free_udp()];
        let seeds = format!("{},{},{}", ports[0], ports[1], overheard.local_addr().unwrap());
        let engine = [engine::start()];
        let start = |port: &String| {
            let mut settings = quiet_settings();
            settings.push(("GRAPEVINE_GOSSIP_LISTEN", port.clone()));
            settings.push(("GRAPEVINE_GOSSIP_SEEDS", seeds.clone()));
            settings.push(("GRAPEVINE_CLUSTER_SECRET", "a secret that only the fleet has".to_owned()));
            settings.push(("GRAPEVINE_ROUTER_ID", format!("router-{port}")));
            Router::start(&engine, &settings)
        };
        let routers: Vec<Router> = ports.iter().map(start).collect();
        let fleet = Self { routers, ports, overheard };
        fleet.wait_until_met();
        fleet
    }

    fn wait_until_met(&self) {
        for router in &self.routers {
            wait_for("routers to meet", || (router.status().gossip.live_peers == 1).then_some(()));
        }
    }

    /// Datagrams that the routers sent to the third.
    fn overhear(&self, count: usize) -> Vec<Vec<u8>> {
        let mut buffer = [0; 65_536];
        let mut next = || {
            let length = self.overheard.recv(&mut buffer).unwrap();
            buffer[..length].to_vec()
        };
        (0..count).map(|_| next()).collect()
    }

    /// Datagrams that a router refused.
    fn rejected(&self, router: usize) -> u64 {
        self.routers[router].status().gossip.rejected.values().sum()
    }

    /// The same, again and again, until every router has refused some: what it has no time for is lost.
    fn flood_until_refused<'a>(&self, what: &str, datagram: impl Fn(usize) -> &'a [u8]) {
        for router in 0..self.routers.len() {
            let before = self.rejected(router);
            wait_for(what, || {
                self.flood(&datagram);
                (self.rejected(router) > before + 100).then_some(())
            });
        }
    }

    /// Sends `datagram(i)` to every router.
    fn flood<'a>(&self, datagram: impl Fn(usize) -> &'a [u8]) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for i in 0..DATAGRAMS {
            for port in &self.ports {
                let _ = socket.send_to(datagram(i), port);
            }
        }
    }
}

#[test]
fn noise_and_replays_are_refused_and_the_fleet_goes_on() {
    let fleet = Fleet::start();
    let recorded = fleet.overhear(4);
    let noise: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let garbled: Vec<Vec<u8>> = recorded
        .iter()
        .map(|datagram| datagram.iter().enumerate().map(|(i, byte)| byte ^ u8::from(i % 97 == 60)).collect())
        .collect();
    let before: Vec<_> = fleet.routers.iter().map(|router| router.process.memory("VmRSS")).collect();
    served_during("gossip", &fleet.routers[0], || {
        served_during("gossip", &fleet.routers[1], || {
            let noise = |i: usize| &noise[i..i + i % 1_500];
            let garbled = |i: usize| &garbled[i % garbled.len()][..];
            fleet.flood_until_refused("noise", noise);
            fleet.flood_until_refused("garbled", garbled);
            // Each asks who is there, which is answered so many times a second, with no more than it took to ask.
            fleet.flood(|i| &recorded[i % recorded.len()]);
        });
    });
    for (router, before) in fleet.routers.iter().zip(before) {
        let grown = router.process.memory("VmRSS").saturating_sub(before);
        assert!(grown < NOISE_BYTES, "{} MiB", grown >> 20);
        let status = router.status();
        assert!(status.peers.iter().filter(|peer| peer.live).count() <= 1, "nobody was invented");
    }
    fleet.wait_until_met();
    learns_still(&fleet);
}

/// What one router sends somewhere the other hears of.
fn learns_still(fleet: &Fleet) {
    let heard = || fleet.routers[1].status().gossip.entries_received;
    let before = heard();
    let question =
        serde_json::json!([{"role": "user", "content": "what was learnt after the flood ".repeat(20)}]);
    assert_eq!(chat(&fleet.routers[0].url, &question).0.status, 200);
    wait_for("the other to hear of it", || (heard() > before).then_some(()));
}
