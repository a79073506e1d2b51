//! What gossip did not bring: holes, pointers, a dead router's last words, long cuts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_mesh::{MeshConfig, Refused};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

mod common;
#[path = "common/fleet.rs"]
mod fleet;
#[path = "common/network.rs"]
mod network;

use common::{is_live, peer, rejected, ticks, until};
use fleet::{World, all_joined, config, url};
use network::pass;

/// Numbers that do not compress.
fn noise(range: std::ops::Range<u64>) -> Vec<u64> {
    range.map(|i| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8).collect()
}

fn sorted(mut numbers: Vec<u64>) -> Vec<u64> {
    numbers.sort_unstable();
    numbers
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_pointed_to_and_asked_for() {
    let world = World::new(1);
    let routers = world.fleet(3).await;
    all_joined(&routers).await;
    routers[0].host.say(noise(0..2_000));
    for router in &routers[1..] {
        until("all is heard", || router.host.sorted("r1") == sorted(noise(0..2_000))).await;
        assert_eq!(peer(&router.mesh, "r1").unwrap().missed, 0);
    }
    ticks(&routers[0].mesh, 1).await;
    let totals = routers[0].mesh.status().totals.clone();
    assert!(totals.published.pointed > 0 && totals.published.deferred == 0 && totals.traffic.answers > 0);
    let largest = totals.traffic.largest_message;
    assert!(largest < 16_000, "the bytes did not go through gossip, but a message had {largest}");
}

/// Where datagrams get lost, big messages get lost more, which makes the next ones bigger: without
/// pointers this fleet hears almost nothing.
#[tokio::test(start_paused = true)]
async fn lost_fragments_start_no_spiral() {
    let world = World::new(3);
    let routers = world.fleet(8).await;
    all_joined(&routers).await;
    world.network.lose_fragments(10);
    // 4 KB a tick each, 16 KB/s.
    const PER_TICK: u64 = 160;
    const TICKS: u64 = 40;
    for round in 0..TICKS {
        for (at, router) in routers.iter().enumerate() {
            let from = ((at as u64) << 32) + round * PER_TICK;
            router.host.say(noise(from..from + PER_TICK));
        }
        ticks(&routers[0].mesh, 1).await;
    }
    let said = |at: usize| sorted(noise((at as u64) << 32..((at as u64) << 32) + TICKS * PER_TICK));
    for router in &routers {
        for (at, _) in routers.iter().enumerate().filter(|(_, it)| !Arc::ptr_eq(&it.host, &router.host)) {
            let name = format!("r{}", at + 1);
            until("all is heard while loss lasts", || router.host.sorted(&name) == said(at)).await;
        }
        assert!(router.mesh.status().peers.iter().all(|peer| peer.missed == 0));
    }
    assert!(routers.iter().any(|it| it.mesh.status().totals.pulls.segments > 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_routers_last_words_are_had_of_who_heard_them() {
    let world = World::new(1);
    let mut routers = world.fleet(3).await;
    all_joined(&routers).await;
    for other in [1, 3] {
        world.link(2, other, false).await;
    }
    until("r2 is alone", || routers[1].mesh.status().live_peers() == 0).await;
    routers[2].host.say(noise(0..600));
    until("r1 heard it", || routers[0].host.numbers("r3").len() == 600).await;
    world.kill(routers.remove(2), 3);
    world.link(2, 1, true).await;
    until("r2 hears it too", || routers[1].host.sorted("r3") == sorted(noise(0..600))).await;
    ticks(&routers[1].mesh, 1).await;
    assert!(routers[1].mesh.status().totals.pulls.answered > 0, "it lay in no ring");
}

#[tokio::test(start_paused = true)]
async fn a_router_that_cannot_be_asked_is_heard_by_gossip() {
    let world = World::new(1);
    let routers = world.fleet(3).await;
    all_joined(&routers).await;
    world.admins.set_dead(&url(1), true);
    routers[0].host.say(noise(0..600));
    until("it notices", || !routers[0].mesh.status().pointers).await;
    routers[0].host.say(noise(1_000..2_000));
    let heard = |at: usize| routers[at].host.sorted("r1");
    let later = sorted(noise(1_000..2_000));
    for at in [1, 2] {
        until("the rest is heard", || later.iter().all(|it| heard(at).binary_search(it).is_ok())).await;
    }
    assert!(routers[1].mesh.status().totals.pulls.failed > 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_long_cut_a_snapshot_mends() {
    let world = World::new(1);
    let routers = world.fleet(4).await;
    all_joined(&routers).await;
    let cut = |up| {
        let world = &world;
        async move {
            for (a, b) in [(1, 3), (1, 4), (2, 3), (2, 4)] {
                world.link(a, b, up).await;
            }
        }
    };
    cut(false).await;
    // Longer than anyone keeps segments, and more of them than a router asks for.
    for round in 0..600 {
        routers[0].host.say([round]);
        routers[3].host.say([10_000 + round]);
        ticks(&routers[0].mesh, 1).await;
    }
    assert!(!routers[3].host.knows(7));
    cut(true).await;
    for number in [0, 300, 599] {
        until("one half is known", || routers[3].host.knows(number) && routers[2].host.knows(number)).await;
        let number = 10_000 + number;
        until("the other half is known", || routers[0].host.knows(number) && routers[1].host.knows(number))
            .await;
    }
    pass(Duration::from_secs(15)).await;
    for router in &routers {
        let status = router.mesh.status();
        assert_eq!((status.agreement(), status.pairs), (1.0, 9), "all agree");
        assert!(status.totals.snapshots.restored <= 3, "but not again and again");
    }
}

#[tokio::test(start_paused = true)]
async fn agreement_falls_while_a_router_is_deaf_and_returns() {
    let world = World::new(1);
    let routers = world.fleet(3).await;
    all_joined(&routers).await;
    let talk = async |rounds: u64| {
        for round in 0..rounds {
            routers[0].host.say([round]);
            ticks(&routers[0].mesh, 1).await;
        }
    };
    talk(60).await;
    assert_eq!(routers[1].mesh.status().agreement(), 1.0);
    // It hears nothing of r1 on any way, but lives.
    world.admins.set_dead(&url(1), true);
    world.admins.set_dead(&url(2), true);
    world.network.lose_fragments(70);
    talk(60).await;
    world.network.lose_fragments(0);
    world.admins.set_dead(&url(1), false);
    world.admins.set_dead(&url(2), false);
    talk(80).await;
    for router in &routers {
        until("they agree again", || router.mesh.status().agreement() == 1.0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_fleet_asks_and_writes_nothing() {
    let world = World::new(1);
    let routers = world.fleet(4).await;
    all_joined(&routers).await;
    routers[0].host.say(noise(0..600));
    pass(Duration::from_secs(60)).await;
    let asked = world.admins.asked.load(Relaxed);
    let totals = || -> Vec<_> { routers.iter().map(|it| it.mesh.status().totals.published).collect() };
    let sent = || routers.iter().map(|it| it.mesh.status().totals.traffic.bytes_sent).sum::<u64>();
    let (before, start) = (totals(), sent());
    pass(Duration::from_secs(60)).await;
    let quiet = sent() - start;
    pass(Duration::from_secs(600)).await;
    assert_eq!(world.admins.asked.load(Relaxed), asked, "nobody asks");
    assert_eq!(totals(), before);
    let per_minute = (sent() - start - quiet) / 10;
    assert!(per_minute < quiet + quiet / 10, "heartbeats only: {quiet} B, then {per_minute} B a minute");
}

#[tokio::test(start_paused = true)]
async fn twenty_restarts_do_not_grow_what_is_told() {
    let world = World::new(1);
    let a = world.start(config(1, &[]));
    let bytes = || a.mesh.status().totals.traffic.bytes_sent;
    let minute = async || {
        let before = bytes();
        pass(Duration::from_secs(60)).await;
        bytes() - before
    };
    let mut b = Some(world.start(config(2, &[1])));
    until("they met", || is_live(&a.mesh, "r2")).await;
    let at_first = minute().await;
    for generation in 1_001..1_021 {
        world.kill(b.take().unwrap(), 2);
        let next = world.start(MeshConfig { generation: Some(generation), ..config(2, &[1]) });
        next.host.say(noise(0..50));
        until("it is heard", || {
            peer(&a.mesh, "r2").is_some_and(|it| it.generation == generation && it.segments > 0)
        })
        .await;
        b = Some(next);
    }
    pass(Duration::from_secs(320)).await;
    let at_last = minute().await;
    assert!(at_last < at_first + at_first / 4, "{at_first} B a minute became {at_last}");
    assert_eq!(a.mesh.status().peers.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_questions_of_this_fleet_to_this_router_are_answered_once() {
    let world = World::new(1);
    let sealed = |port, secret: &[u8]| MeshConfig { secret: Some(secret.to_vec()), ..config(port, &[1]) };
    let a = world.start(sealed(1, b"a secret of enough bytes"));
    let b = world.start(sealed(2, b"a secret of enough bytes"));
    let stranger = world.start(sealed(3, b"another one of enough bytes"));
    a.host.say(noise(0..600));
    until("b pulls", || b.host.numbers("r1").len() == 600).await;
    until("the stranger is refused", || rejected(&a.mesh, "foreign") > 0).await;
    assert!(stranger.host.numbers("r1").is_empty(), "what is sealed is not answered");
    for junk in [&b""[..], &[0xB1, 0], &[0xB0; 40], &[0xB1; 300], &[7; 4_000]] {
        let refused = a.mesh.answer(junk).await.unwrap_err();
        assert!(matches!(refused, Refused::Foreign | Refused::Malformed), "{refused}");
    }
}

/// Whatever comes, it is answered with bounded bytes or refused, and good questions are answered after it.
#[tokio::test(start_paused = true)]
async fn arbitrary_questions_do_no_harm() {
    let world = World::new(1);
    let routers = world.fleet(2).await;
    all_joined(&routers).await;
    routers[0].host.say(noise(0..600));
    until("r2 asks", || routers[1].host.numbers("r1").len() == 600).await;
    let questions = world.admins.questions();
    let mut rng = SmallRng::seed_from_u64(7);
    for _ in 0..3_000 {
        let mut question = questions[rng.random_range(0..questions.len())].clone();
        // Behind the fleet's tag: a new salt, and changed, cut or longer bodies.
        question[10..26].fill_with(|| rng.random());
        for _ in 0..rng.random_range(0..4) {
            let at = rng.random_range(26..question.len());
            question[at] = rng.random();
        }
        question.truncate(rng.random_range(20..=question.len()));
        question.extend((0..rng.random_range(0..9)).map(|_| rng.random::<u8>()));
        match routers[rng.random_range(0..2)].mesh.answer(&question).await {
            Ok(answer) => assert!(answer.len() < 600 * 1024),
            Err(refused) => assert!(refused.status() >= 400),
        }
    }
    let again = routers[1].mesh.answer(&questions[0]).await;
    assert!(matches!(again, Err(Refused::Replayed | Refused::Misdirected | Refused::Joining)), "{again:?}");
    routers[0].host.say(noise(1_000..1_600));
    until("r2 asks again", || routers[1].host.numbers("r1").len() == 1_200).await;
}
