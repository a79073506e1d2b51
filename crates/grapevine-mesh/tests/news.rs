//! What is told directly, past chitchat, and what becomes of it when it is lost.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use grapevine_mesh::MeshConfig;
use grapevine_mesh::codec::{Pointer, Segment, Word, encode_pointer, encode_segment, encode_word};
use grapevine_tree::RouterId;

mod common;
#[path = "common/fleet.rs"]
mod fleet;
#[path = "common/network.rs"]
mod network;

use common::{rejected, ticks, until};
use fleet::{Router, World, addr, all_met, config};
use network::pass;

const TICK: Duration = Duration::from_millis(250);

/// Routers that tell directly and answer no questions, have met and have nothing more to say.
async fn fleet_of(world: &World, count: u16) -> Vec<Router> {
    let start = |port| world.start_telling(MeshConfig { admin_url: None, ..config(port, &[1]) });
    let routers: Vec<Router> = (1..=count).map(start).collect();
    all_met(&routers).await;
    for router in &routers {
        until("it knows all", || router.mesh.status().peers.iter().all(|peer| peer.compatible)).await;
    }
    pass(TICK * 8).await;
    routers
}

/// chitchat needs four ticks for each of its exchanges, of which a fleet of this size needs several.
#[tokio::test(start_paused = true)]
async fn news_are_everywhere_after_one_tick_and_once() {
    let world = World::new(1);
    let routers = fleet_of(&world, 16).await;
    for round in 0..20 {
        routers[0].host.say([round]);
        pass(TICK + Duration::from_millis(20)).await;
        let all: Vec<u64> = (0..=round).collect();
        assert!(routers[1..].iter().all(|it| it.host.numbers("r1") == all), "after one tick");
    }
    pass(TICK * 20).await;
    assert!(routers[1..].iter().all(|it| it.host.numbers("r1").len() == 20), "gossip brought it again");
}

/// It counts as live only at chitchat's next exchange, up to a second later.
#[tokio::test(start_paused = true)]
async fn a_router_is_told_as_soon_as_it_is_met() {
    let world = World::new(6);
    let routers: Vec<Router> = [1, 2].map(|port| world.start_telling(config(port, &[1]))).into();
    let knows = |router: &Router| matches!(&router.mesh.status().peers[..], [peer] if peer.compatible);
    until("they have met", || routers.iter().all(knows)).await;
    assert_eq!(routers[0].mesh.status().live_peers(), 0);
    routers[0].host.say([1]);
    pass(TICK + Duration::from_millis(20)).await;
    assert_eq!((routers[1].host.numbers("r1"), world.network.words() > 0), (vec![1], true));
}

/// The next ones show what was skipped, and gossip with their origin brings it, at once.
#[tokio::test(start_paused = true)]
async fn lost_news_are_there_with_the_next_ones() {
    let world = World::new(2);
    let routers = fleet_of(&world, 16).await;
    for round in 0..20 {
        // To some of 15 peers, whichever come first.
        world.network.lose_words(3);
        routers[0].host.say([2 * round]);
        ticks(&routers[0].mesh, 1).await;
        routers[0].host.say([2 * round + 1]);
        pass(TICK + Duration::from_millis(40)).await;
        let all: Vec<u64> = (0..2 * round + 2).collect();
        assert!(routers[1..].iter().all(|it| it.host.sorted("r1") == all), "round {round}");
    }
    assert!(routers.iter().all(|it| it.mesh.status().totals.pulls == Default::default()), "nobody was asked");
}

/// Load comes with the number of the newest segment.
#[tokio::test(start_paused = true)]
async fn lost_news_that_none_follow_are_there_with_the_next_load() {
    let world = World::new(10);
    let routers = fleet_of(&world, 4).await;
    for round in 0..20 {
        world.network.lose_words(3);
        routers[0].host.say([round]);
        ticks(&routers[0].mesh, 1).await;
        let before: Vec<u64> = (0..round).collect();
        assert!(routers[1..].iter().any(|it| it.host.sorted("r1") == before), "lost in round {round}");
        routers[0].host.say_load(round as u32 + 1);
        pass(TICK + Duration::from_millis(40)).await;
        let all: Vec<u64> = (0..=round).collect();
        assert!(routers[1..].iter().all(|it| it.host.sorted("r1") == all), "round {round}");
    }
    assert!(routers.iter().all(|it| it.mesh.status().totals.pulls == Default::default()), "nobody was asked");
}

#[tokio::test(start_paused = true)]
async fn where_no_news_arrive_gossip_brings_all() {
    let world = World::new(3);
    let routers = fleet_of(&world, 16).await;
    world.network.lose_words(u32::MAX);
    for round in 0..20 {
        routers[0].host.say([round]);
        ticks(&routers[0].mesh, 1).await;
    }
    pass(TICK * 12).await;
    let all: Vec<u64> = (0..20).collect();
    assert!(routers[1..].iter().all(|it| it.host.sorted("r1") == all));
}

/// A router that joins or restarts hears what is said meanwhile once.
#[tokio::test(start_paused = true)]
async fn who_joins_or_restarts_amid_talk_misses_nothing_of_it() {
    let world = World::new(4);
    let mut routers = fleet_of(&world, 4).await;
    for round in 0..60 {
        routers[0].host.say([round]);
        match round {
            10 => routers.push(world.start_telling(MeshConfig { admin_url: None, ..config(5, &[1]) })),
            30 => {
                drop(routers.remove(1));
                let again = MeshConfig { admin_url: None, generation: Some(2_000), ..config(2, &[1]) };
                routers.push(world.start_telling(again));
            }
            _ => {}
        }
        ticks(&routers[0].mesh, 1).await;
    }
    pass(TICK * 12).await;
    for router in &routers[1..] {
        let numbers = router.host.sorted("r1");
        assert_eq!(numbers, (0..60).collect::<Vec<_>>());
    }
}

/// News that do not decode are counted; those of strangers and of other generations are not looked at.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_believed_does_no_harm() {
    let world = World::new(5);
    let routers = fleet_of(&world, 2).await;
    let (r1, r9) = (RouterId::of_name("r1"), RouterId::of_name("r9"));
    let word = |origin, news| encode_word(&Word { origin, head: 0, vitals: None, news: Some(news) });
    let generation = routers[0].mesh.status().generation;
    let segment =
        |generation, seq| encode_segment(&Segment { generation, seq, sent_ms: 0, entries: Vec::new() });
    let pointer = Pointer { generation: generation + 1, seq: 9, sent_ms: 0, len: 9 };
    for value in
        [segment(generation + 1, 1), segment(generation - 1, 1), encode_pointer(&pointer), vec![1, 2, 3]]
    {
        world.network.whisper(addr(2), &word(r1, value));
    }
    world.network.whisper(addr(2), &word(r9, segment(1, 1)));
    world.network.whisper(addr(2), &word(r1, vec![0; 40_000]));
    pass(TICK * 4).await;
    let peer = routers[1].mesh.status().peers[0].clone();
    assert_eq!((peer.segments, peer.open, peer.missed), (0, 0, 0));
    assert_eq!(rejected(&routers[1].mesh, "generation"), 3);
    routers[0].host.say([1]);
    pass(TICK * 2).await;
    assert_eq!(routers[1].host.numbers("r1"), [1]);
}

/// chitchat's exchanges are rare where news are told directly: the dead are still told from the living within seconds.
#[tokio::test(start_paused = true)]
async fn who_dies_is_missed_within_seconds_and_nobody_else() {
    for (seed, count) in [(7, 2), (8, 4), (9, 16)] {
        let world = World::new(seed);
        let mut routers = fleet_of(&world, count).await;
        let all_live = |routers: &[Router], others: u16| {
            routers.iter().all(|it| it.mesh.status().live_peers() == usize::from(others))
        };
        for _ in 0..1_000 {
            pass(TICK).await;
            assert!(all_live(&routers, count - 1), "of {count}, one is taken for dead");
        }
        drop(routers.pop());
        pass(TICK * 4).await;
        assert!(all_live(&routers, count - 1), "of {count}: one second of silence is no death");
        pass(TICK * 32).await;
        assert!(all_live(&routers, count - 2), "of {count}, the dead is taken for living");
    }
}
