//! Routers that start: what they learn before they are ready, and of whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use grapevine_mesh::{MeshConfig, ReplicaEpoch};
use grapevine_tree::{ReplicaId, RouterId};

mod common;
#[path = "common/fleet.rs"]
mod fleet;
#[path = "common/network.rs"]
mod network;

use common::{peer, until};
use fleet::{Router, World, all_joined, all_met, config, url};
use network::pass;

const KNOWN: u64 = 3_000;

/// Two routers that know more than is in any ring.
async fn warm(world: &World) -> Vec<Router> {
    let routers = world.fleet(2).await;
    all_joined(&routers).await;
    routers[0].host.say(0..KNOWN);
    routers[1].host.say(KNOWN..2 * KNOWN);
    routers[0].host.say_epoch(3);
    until("they know each other's", || {
        routers[1].host.numbers("r1").len() == KNOWN as usize
            && routers[0].host.numbers("r2").len() == KNOWN as usize
    })
    .await;
    pass(Duration::from_secs(30)).await;
    routers
}

fn knows_all(router: &Router) -> bool {
    (0..2 * KNOWN).step_by(97).all(|number| router.host.knows(number))
}

#[tokio::test(start_paused = true)]
async fn a_joiner_knows_what_the_fleet_knows_before_it_is_ready() {
    let world = World::new(1);
    let routers = warm(&world).await;
    let joiner = world.start(config(3, &[1]));
    let started = tokio::time::Instant::now();
    assert!(!joiner.mesh.is_joined());
    joiner.mesh.joined().await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    assert!(knows_all(&joiner));
    let (teacher, epochs) = joiner.host.teachers().remove(0);
    assert!([RouterId::of_name("r1"), RouterId::of_name("r2")].contains(&teacher));
    assert_eq!(epochs, if teacher == RouterId::of_name("r1") { vec![epoch(3)] } else { vec![] });
    assert!(joiner.host.numbers("r1").is_empty(), "nothing twice: it was in no ring");
    // From here on it hears like everyone.
    routers[0].host.say([9_999]);
    until("news is heard", || joiner.host.numbers("r1") == [9_999]).await;
    pass(Duration::from_secs(15)).await;
    let peer = peer(&joiner.mesh, "r1").unwrap();
    assert_eq!((peer.missed, peer.open), (0, 0));
    assert_eq!(joiner.mesh.status().agreement(), 1.0);
}

fn epoch(epoch: u32) -> ReplicaEpoch {
    ReplicaEpoch { replica: ReplicaId(1), epoch }
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_forgets_nothing() {
    let world = World::new(1);
    let mut routers = warm(&world).await;
    for generation in 1_001..1_004 {
        for port in [1, 2] {
            let old = routers.remove(0);
            old.mesh.leave().await;
            world.kill(old, port);
            let next = world.start(MeshConfig { generation: Some(generation), ..config(port, &[3 - port]) });
            next.mesh.joined().await;
            assert!(knows_all(&next), "generation {generation} of r{port}");
            let other = RouterId::of_name(&format!("r{}", 3 - port));
            assert!(next.host.teachers().iter().all(|it| it.0 == other), "never of itself");
            routers.push(next);
            all_met(&routers).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_finds_nobody_is_ready_after_the_wait() {
    let world = World::new(1);
    let lonely = world.start(config(1, &[2]));
    let started = tokio::time::Instant::now();
    lonely.mesh.joined().await;
    let waited = started.elapsed();
    assert!((3_000..3_500).contains(&waited.as_millis()), "{waited:?}");
    let first = world.start(config(3, &[]));
    assert!(first.mesh.is_joined(), "who looks for nobody does not wait");
    let hasty = world.start(MeshConfig { join_timeout: Duration::ZERO, ..config(4, &[1]) });
    assert!(hasty.mesh.is_joined());
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_starts_all_at_once_does_not_wait_for_itself() {
    let world = World::new(1);
    let routers: Vec<Router> = (1..=5).map(|port| world.start(config(port, &[1, 2, 3, 4, 5]))).collect();
    let started = tokio::time::Instant::now();
    all_joined(&routers).await;
    assert!(started.elapsed() < Duration::from_millis(2_500), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_does_not_come_is_tried_for_in_the_background() {
    let world = World::new(1);
    let _routers = warm(&world).await;
    for port in [1, 2] {
        world.admins.set_dead(&url(port), true);
    }
    let joiner = world.start(config(3, &[1]));
    joiner.mesh.joined().await;
    let status = joiner.mesh.status();
    assert!(status.totals.snapshots.failed >= 2 && !knows_all(&joiner), "every candidate was tried");
    world.admins.set_dead(&url(2), false);
    until("it learns later", || knows_all(&joiner)).await;
    until("and is content", || !joiner.mesh.status().wants_snapshot).await;
    assert_eq!(joiner.host.teachers()[0].0, RouterId::of_name("r2"));
}
