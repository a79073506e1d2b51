//! Hosts that misbehave, and peers that speak another version or nonsense.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use chitchat::{ChitchatConfig, ChitchatHandle, ChitchatId, FailureDetectorConfig, spawn_chitchat};
use grapevine_mesh::codec::{Segment, Vitals, encode_segment, encode_vitals};
use grapevine_mesh::transport::ChannelTransport;
use grapevine_mesh::{
    FetchError, Host, Incoming, LoadReport, MeshConfig, MeshHandle, Outgoing, Snapshot, carrier,
    spawn_with_transport,
};
use grapevine_tree::{ReplicaHistory, SnapshotPage};

mod common;

use common::{Admins, TestHost, entry, peer, rejected, ticks, until};

fn addr(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn start<H: Host>(network: &ChannelTransport, name: &str, port: u16, host: Arc<H>) -> MeshHandle {
    let config = MeshConfig {
        seeds: vec![addr(1).to_string()],
        generation: Some(1_000),
        admin_url: Some(format!("http://10.0.0.1:{}", 9000 + port)),
        ..MeshConfig::new(name, addr(port))
    };
    spawn_with_transport(config, host, Arc::new(network.clone()), None).unwrap()
}

/// A router of our cluster that writes what a test says.
async fn odd_router(network: &ChannelTransport, keys: &[(&str, String)]) -> ChitchatHandle {
    let config = ChitchatConfig {
        chitchat_id: ChitchatId::new("odd", 7, addr(66)),
        cluster_id: "grapevine".into(),
        gossip_interval: Duration::from_millis(250),
        listen_addr: addr(66),
        seed_nodes: vec![addr(1).to_string()],
        failure_detector_config: FailureDetectorConfig::default(),
        marked_for_deletion_grace_period: Duration::from_secs(60),
        catchup_callback: None,
        extra_liveness_predicate: None,
    };
    let keys = keys.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    spawn_chitchat(config, keys, network).await.unwrap()
}

fn vitals(generation: u64) -> String {
    carrier::to_text(&encode_vitals(&Vitals { generation, seq: 1, boot: generation, ..Vitals::default() }))
}

fn segment(generation: u64, seq: u64) -> Vec<u8> {
    encode_segment(&Segment { generation, seq, sent_ms: 0, entries: vec![entry(seq)] })
}

#[tokio::test(start_paused = true)]
async fn a_router_of_another_version_is_seen_and_not_read() {
    for meta in ["2 1 http://10.0.0.1:1", "1 9 ", "1 65536 ", "nonsense", ""] {
        let network = ChannelTransport::default();
        let admins = Admins::new();
        let host = TestHost::with(&admins);
        let a = start(&network, "a", 1, host.clone());
        let text = carrier::to_text(&segment(7, 1));
        let odd = odd_router(&network, &[("meta", meta.into()), ("load", vitals(7)), ("d/01", text)]).await;
        until("it is seen", || peer(&a, "odd").is_some_and(|it| it.live)).await;
        ticks(&a, 10).await;
        let seen = peer(&a, "odd").unwrap();
        assert!(!seen.compatible && seen.segments == 0, "{meta:?}");
        assert_eq!(a.status().live_peers(), 0);
        assert!(host.heard().is_empty());
        assert_eq!(admins.asked.load(Relaxed), 0, "nor asked");
        // Nor does it mind ours.
        host.say(0..2_000);
        ticks(&a, 40).await;
        assert!(peer(&a, "odd").unwrap().live && a.status().running);
        let ours =
            odd.with_chitchat(|it| it.node_states().values().filter(|it| it.num_key_values() >= 3).count());
        assert!(ours.await >= 2, "it holds its keys and ours");
    }
}

/// The next version's way to speak: keys and values that this one does not know, beside a router that it
/// does. What can be read is read, the rest is counted, and all goes on.
#[tokio::test(start_paused = true)]
async fn half_a_fleet_of_the_next_version_disturbs_nobody() {
    let network = ChannelTransport::default();
    let (host_a, host_b) = (TestHost::new(), TestHost::new());
    let a = start(&network, "a", 1, host_a.clone());
    let b = start(&network, "b", 2, host_b.clone());
    let mut next = segment(7, 1);
    next[0] = 2;
    let keys = [
        ("meta", "2 1 http://10.0.0.1:1 zstd".to_owned()),
        ("load", carrier::to_text(&[2, 1, 1, 0, 9, 9, 9])),
        ("d/01", carrier::to_text(&next)),
        ("v2/tree", "of another kind".to_owned()),
    ];
    let odd = odd_router(&network, &keys).await;
    until("it is seen", || peer(&a, "odd").is_some_and(|it| it.live && !it.compatible)).await;
    host_a.say(0..100);
    until("b hears a", || host_b.numbers("a").len() == 100).await;
    host_b.say(100..200);
    until("a hears b", || host_a.numbers("b").len() == 100).await;
    odd.with_chitchat(|it| it.self_node_state().set("d/02", "more")).await;
    ticks(&a, 20).await;
    assert!(host_a.numbers("odd").is_empty() && host_b.numbers("odd").is_empty());
    assert_eq!((a.status().live_peers(), b.status().live_peers()), (1, 1));
    assert_eq!(a.status().agreement(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn values_that_are_wrong_are_counted_and_the_rest_is_read() {
    let network = ChannelTransport::default();
    let host = TestHost::new();
    let a = start(&network, "a", 1, host.clone());
    let mut other_version = segment(7, 2);
    other_version[0] = 9;
    let mut other_scheme = segment(7, 3);
    other_scheme[2] = 9;
    let keys = [
        ("meta", "1 2 ".to_owned()),
        ("load", vitals(7)),
        ("d/01", carrier::to_text(&segment(7, 1))),
        ("d/02", carrier::to_text(&other_version)),
        ("d/03", carrier::to_text(&other_scheme)),
        ("d/04", carrier::to_text(&segment(8, 4))),
        ("d/05", "not base64!".to_owned()),
        ("d/06", "A".repeat(60_000)),
        ("d/07", carrier::to_text(&segment(7, 7))),
        ("d/zz", "\u{1f347}".to_owned()),
        ("unknown", "left alone".to_owned()),
    ];
    let _odd = odd_router(&network, &keys).await;
    until("the good ones are read", || host.numbers("odd") == [1, 7]).await;
    ticks(&a, 2).await;
    for (reason, count) in [("version", 1), ("scheme", 1), ("generation", 1), ("malformed", 3)] {
        assert_eq!(rejected(&a, reason), count, "{reason}");
    }
    assert!(peer(&a, "odd").unwrap().compatible);
}

#[tokio::test(start_paused = true)]
async fn a_router_without_vitals_is_read_once_it_has_some() {
    let network = ChannelTransport::default();
    let host = TestHost::new();
    let a = start(&network, "a", 1, host.clone());
    let odd =
        odd_router(&network, &[("meta", "1 2".into()), ("d/01", carrier::to_text(&segment(7, 1)))]).await;
    until("it is seen", || peer(&a, "odd").is_some_and(|it| it.compatible)).await;
    ticks(&a, 5).await;
    assert!(host.heard().is_empty());
    odd.with_chitchat(|chitchat| chitchat.self_node_state().set("load", vitals(7))).await;
    until("it is read", || host.numbers("odd") == [1]).await;
}

/// Never answers the first time, panics the second, says something the third.
struct MoodyHost {
    asked: AtomicU64,
    heard: Arc<TestHost>,
    patience: Duration,
    /// Panics on what it hears this often.
    deaf: AtomicU64,
}

impl Host for MoodyHost {
    async fn collect(&self, budget: usize) -> Outgoing {
        match self.asked.fetch_add(1, Relaxed) {
            0 => {
                tokio::time::sleep(self.patience).await;
                Outgoing { entries: vec![entry(1)], ..Outgoing::default() }
            }
            1 => panic!("a host that panics, as the test wants"),
            _ => self.heard.collect(budget).await,
        }
    }

    fn loads(&self) -> Vec<LoadReport> {
        Vec::new()
    }

    fn deliver(&self, incoming: Incoming) {
        let left = self.deaf.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        assert!(left.is_err(), "a host that panics, as the test wants");
        self.heard.deliver(incoming);
    }

    async fn fetch(&self, _url: &str, _body: Vec<u8>, _limit: usize) -> Result<Vec<u8>, FetchError> {
        panic!("a host that panics, as the test wants")
    }

    async fn histories(&self) -> Option<Vec<ReplicaHistory>> {
        None
    }

    async fn snapshot(&self, _cursor: u64, _budget: usize) -> Option<SnapshotPage> {
        None
    }

    async fn restore(&self, _snapshot: Snapshot) {}
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_broken_host_stops_nothing() {
    let network = ChannelTransport::default();
    let inner = TestHost::new();
    let patience = Duration::from_secs(5);
    let moody = Arc::new(MoodyHost {
        asked: AtomicU64::new(0),
        heard: inner.clone(),
        patience,
        deaf: AtomicU64::new(0),
    });
    let a = start(&network, "a", 1, moody);
    let host_b = TestHost::new();
    let b = start(&network, "b", 2, host_b.clone());
    host_b.say([5]);
    until("b is heard meanwhile", || inner.numbers("b") == [5]).await;
    until("ticks pass", || a.status().totals.late_collects >= 10).await;
    until("the late answer is told", || host_b.numbers("a") == [1]).await;
    inner.say([2]);
    until("and the next", || host_b.numbers("a") == [1, 2]).await;
    let peer = peer(&b, "a").unwrap();
    assert_eq!(peer.admin_url.as_deref(), Some("http://10.0.0.1:9001"));
    assert_eq!(peer.speaks, Some((1, 2)));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_never_answers_does_not_hold_up_leaving() {
    let network = ChannelTransport::default();
    let patience = Duration::from_secs(1_000_000);
    let deaf = AtomicU64::new(0);
    let moody = MoodyHost { asked: AtomicU64::new(0), heard: TestHost::new(), patience, deaf };
    let a = start(&network, "a", 1, Arc::new(moody));
    until("it runs", || a.status().running).await;
    a.leave().await;
    assert!(!a.status().running);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_the_actor_ends_neither_the_router_nor_its_gossip() {
    let network = ChannelTransport::default();
    let inner = TestHost::new();
    let (asked, deaf) = (AtomicU64::new(9), AtomicU64::new(3));
    let moody = MoodyHost { asked, heard: inner.clone(), patience: Duration::ZERO, deaf };
    let a = start(&network, "a", 1, Arc::new(moody));
    let host_b = TestHost::new();
    let _b = start(&network, "b", 2, host_b.clone());
    host_b.say([5]);
    until("it fell", || a.status().totals.restarts >= 1 && !a.status().running).await;
    until("it runs again, after each fall", || a.status().totals.restarts == 3 && a.status().running).await;
    host_b.say([6]);
    until("and hears", || inner.numbers("b").contains(&6)).await;
    inner.say([7]);
    until("and is heard", || host_b.numbers("a") == [7]).await;
    a.leave().await;
    assert!(!a.status().running);
}
