//! What the mesh costs for real: whole routers of one process, with sealed gossip and HTTP over loopback.
//!
//! ```sh
//! cargo run --release -p grapevine-node --example mesh -- join    # a router joins a warm fleet of 8
//! cargo run --release -p grapevine-node --example mesh -- cost    # CPU of gossip, 8 routers, 200 picks/s each
//! cargo run --release -p grapevine-node --example mesh -- soak 60 # memory over so many minutes of that
//! ```
//!
//! Requests are picks told to the trees and load counts: proxying and engines would only cover what is measured.

#![expect(clippy::unwrap_used, reason = "a measurement that fails has failed")]

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use grapevine_node::admin::survey::Observatory;
use grapevine_node::app::{App, Deps};
use grapevine_node::config::{Config, ReplicaSpec, Secret};
use grapevine_route::LoadGuard;
use grapevine_tree::{PrefixKey, boundary};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tokio::time::{MissedTickBehavior, interval, sleep};

const ROUTERS: usize = 8;
const REPLICAS: usize = 8;

/// Picks a second at each router.
const RATE: f64 = 200.0;

/// Boundaries that a warm router knows.
const BOUNDARIES: usize = 1_000_000;

/// Boundaries that a router keeps in the soak: full after some minutes, so that memory has no reason to grow.
const KEPT: usize = 200_000;

/// Boundaries of a warm prompt, and of its shared head.
const PROMPT: usize = 48;
const HEAD: usize = 8;

/// How long CPU is measured, each time.
const MEASURED: Duration = Duration::from_secs(20);

/// Longest wait for a lookup that is measured.
const PATIENCE: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() {
    let mut args = env::args().skip(1);
    match args.next().as_deref() {
        Some("join") => join().await,
        Some("cost") => cost().await,
        Some("soak") => soak(args.next().map_or(60, |minutes| minutes.parse().unwrap())).await,
        _ => println!("join, cost or soak MINUTES?"),
    }
}

async fn join() {
    let keys = warm_keys();
    let fleet = fleet(ROUTERS, true, 2 * BOUNDARIES).await;
    for router in &fleet {
        for (at, key) in keys.iter().enumerate() {
            let replica = replica(router, at % REPLICAS);
            let _ = router.tree.observe(key, replica, 500, None).await;
        }
    }
    quiet(&fleet).await;
    let known = fleet[0].tree.stats().boundaries;
    println!("{ROUTERS} routers, {known} boundaries each");

    let done = Arc::new(AtomicBool::new(false));
    let waits = tokio::spawn(look_up(fleet.clone(), keys.clone(), done.clone()));
    let (began, before) = (Instant::now(), cpu_seconds());
    let joiner = start("joiner", &seeds(&fleet), 2 * BOUNDARIES).await;
    joiner.mesh.joined().await;
    let (took, spent) = (began.elapsed(), cpu_seconds() - before);
    done.store(true, Relaxed);
    let mut waits = waits.await.unwrap();
    waits.sort_unstable();
    // Its status is of the tick before.
    while !joiner.mesh.status().joined {
        sleep(Duration::from_millis(10)).await;
    }
    let snapshots = joiner.mesh.status().totals.snapshots;
    println!("joined after {took:.2?} and {spent:.2} s of CPU, all routers together: {snapshots:?}");
    println!("boundaries {}", joiner.tree.stats().boundaries);
    let (theirs, own) = (matched(&fleet[0], &keys).await, matched(&joiner, &keys).await);
    println!("matched bytes {own} of {theirs}: {:.2} %", own as f64 / theirs as f64 * 100.0);
    println!(
        "lookups at the 8 meanwhile: {}, p99 {:.2?}, longest {:.2?}",
        waits.len(),
        waits[waits.len() * 99 / 100],
        waits[waits.len() - 1]
    );
}

/// How long lookups take at the routers of a fleet.
async fn look_up(
    fleet: Vec<Arc<Observatory>>,
    keys: Vec<Arc<PrefixKey>>,
    done: Arc<AtomicBool>,
) -> Vec<Duration> {
    let mut waits = Vec::new();
    while !done.load(Relaxed) {
        for router in &fleet {
            let began = Instant::now();
            router.tree.lookup(&keys[waits.len() % keys.len()], PATIENCE).await;
            waits.push(began.elapsed());
        }
        sleep(Duration::from_millis(2)).await;
    }
    waits
}

async fn matched(router: &Observatory, keys: &[Arc<PrefixKey>]) -> u64 {
    let mut bytes = 0;
    for key in keys.iter().step_by(10) {
        let matches = router.tree.lookup(key, PATIENCE).await.unwrap().matches;
        bytes += matches.iter().map(|it| u64::from(it.bytes)).max().unwrap_or(0);
    }
    bytes
}

async fn cost() {
    let apart = cpu_of(false).await;
    let together = cpu_of(true).await;
    let gossip = (together - apart) / ROUTERS as f64;
    println!("{ROUTERS} routers, {RATE} picks a second each, {REPLICAS} replicas, sealed:");
    println!("  apart    {:5.2} % of a core per router", apart / ROUTERS as f64);
    println!("  together {:5.2} %", together / ROUTERS as f64);
    println!("  gossip   {gossip:5.2} %");
}

/// Per cent of a core that a fleet takes, that is one or that does not know itself.
async fn cpu_of(together: bool) -> f64 {
    let fleet = fleet(ROUTERS, together, 2 * BOUNDARIES).await;
    let traffic: Vec<_> =
        fleet.iter().enumerate().map(|(at, it)| tokio::spawn(picks(it.clone(), at))).collect();
    sleep(Duration::from_secs(5)).await;
    let (began, before, said) = (Instant::now(), cpu_seconds(), sent(&fleet));
    sleep(MEASURED).await;
    let spent = (cpu_seconds() - before) / began.elapsed().as_secs_f64() * 100.0;
    let bytes = (sent(&fleet) - said) as f64 / began.elapsed().as_secs_f64() / ROUTERS as f64;
    println!("together: {together}, sent {:.1} kB/s per router", bytes / 1_000.0);
    traffic.iter().for_each(tokio::task::JoinHandle::abort);
    spent
}

async fn soak(minutes: u64) {
    let fleet = fleet(ROUTERS, true, KEPT).await;
    for (at, router) in fleet.iter().enumerate() {
        tokio::spawn(picks(router.clone(), at));
    }
    println!(
        "minute, resident MB, trees MB, messages to trees, then of one mesh: log kB, state kB, backlog, holes"
    );
    for minute in 0..=minutes {
        let status = fleet[0].mesh.status();
        let tree: usize = fleet.iter().map(|it| it.tree.stats().bytes).sum();
        let handled: u64 = fleet.iter().map(|it| it.tree.mailbox().handled).sum();
        println!(
            "{minute:3} {:6.1} {:6.1} {handled:8} {:6} {:5} {:4} {:4}",
            resident_bytes() as f64 / 1e6,
            tree as f64 / 1e6,
            status.held.log_bytes / 1_000,
            status.held.state_bytes / 1_000,
            status.held.backlog,
            status.held.holes,
        );
        sleep(Duration::from_secs(60)).await;
    }
}

/// Chats at one router: each turn goes where the one before went, as long as the one before took.
async fn picks(router: Arc<Observatory>, seed: usize) {
    let mut dice = SmallRng::seed_from_u64(seed as u64);
    let mut chats: VecDeque<(Arc<PrefixKey>, usize)> = VecDeque::new();
    let mut running: VecDeque<LoadGuard> = VecDeque::new();
    let mut ticks = interval(Duration::from_secs_f64(1.0 / RATE));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    loop {
        ticks.tick().await;
        let again = chats.len() > 2_000 || (chats.len() > 500 && dice.random_bool(0.8));
        let (key, at) = match chats.pop_front().filter(|_| again) {
            Some((key, at)) if key.hashes.len() < PROMPT => (longer(&key, 3, &mut dice), at),
            _ => (longer(&head(dice.random_range(0..100)), 4, &mut dice), dice.random_range(0..REPLICAS)),
        };
        chats.push_back((key.clone(), at));
        let set = router.replicas.replicas().load_full();
        let mut guard = set.replicas[at].load.begin(300);
        drop(router.tree.observe(&key, set.replicas[at].id, 300, None));
        // Some hundred in flight, as many as answers of half a second keep.
        guard.first_byte();
        running.push_back(guard);
        if running.len() > RATE as usize / 2 {
            running.pop_front();
        }
    }
}

fn warm_keys() -> Vec<Arc<PrefixKey>> {
    let mut dice = SmallRng::seed_from_u64(7);
    let count = BOUNDARIES / (PROMPT - HEAD);
    (0..count).map(|at| longer(&head(at % 100), PROMPT - HEAD, &mut dice)).collect()
}

/// One of the heads that prompts share.
fn head(number: usize) -> Arc<PrefixKey> {
    longer(&Arc::default(), HEAD, &mut SmallRng::seed_from_u64(number as u64))
}

/// A prompt that goes on by so many boundaries.
fn longer(key: &PrefixKey, by: usize, dice: &mut SmallRng) -> Arc<PrefixKey> {
    let mut hashes = key.hashes.clone();
    hashes.extend((0..by).map(|_| dice.random::<u64>()));
    let bytes = boundary::depth(hashes.len() - 1) as u64;
    Arc::new(PrefixKey { hashes, bytes })
}

fn replica(router: &Observatory, at: usize) -> grapevine_tree::ReplicaId {
    router.replicas.replicas().load().replicas[at].id
}

/// Routers that know each other, if they are to.
async fn fleet(count: usize, together: bool, kept: usize) -> Vec<Arc<Observatory>> {
    let mut fleet: Vec<Arc<Observatory>> = Vec::new();
    for at in 0..count {
        let seeds = if together { seeds(&fleet) } else { Vec::new() };
        fleet.push(start(&format!("router-{at}"), &seeds, kept).await);
    }
    while together && fleet.iter().any(|it| it.mesh.status().live_peers() < count - 1 || !it.mesh.is_joined())
    {
        sleep(Duration::from_millis(50)).await;
    }
    fleet
}

fn seeds(fleet: &[Arc<Observatory>]) -> Vec<String> {
    fleet.iter().take(3).map(|it| it.mesh.local_addr().unwrap().to_string()).collect()
}

async fn start(name: &str, seeds: &[String], kept: usize) -> Arc<Observatory> {
    let spec = |at| ReplicaSpec::new(format!("r{at}"), format!("http://127.0.0.1:{}", 20 + at));
    let mut config = Config::local(name, (0..REPLICAS).map(spec).collect());
    config.gossip_seeds = seeds.to_vec();
    config.cluster_secret = Some(Secret::new("a secret for measurements only".to_owned()));
    config.tree.max_boundaries = kept;
    config.tree.default_capacity_tokens = 1_000_000_000;
    let app = App::build(config, Deps::default()).await.unwrap();
    let observatory = app.observatory();
    tokio::spawn(app.run(pending()));
    observatory
}

/// Until nobody has anything more to tell.
async fn quiet(fleet: &[Arc<Observatory>]) {
    let told = || fleet.iter().map(|it| it.mesh.status().totals.published.entries).sum::<u64>();
    loop {
        let before = told();
        sleep(Duration::from_secs(3)).await;
        if told() == before && fleet.iter().all(|it| it.tree.stats().dirty == 0) {
            return;
        }
    }
}

fn sent(fleet: &[Arc<Observatory>]) -> u64 {
    fleet.iter().map(|it| it.mesh.status().totals.traffic.bytes_sent).sum()
}

/// CPU that this process took so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks = |at: usize| after_name.split_whitespace().nth(at).unwrap().parse::<f64>().unwrap();
    // Linux counts it in hundredths.
    (ticks(11) + ticks(12)) / 100.0
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
