//! What stored prompts cost in memory: grapevine's tree by the kind of traffic, and beside the peers.
//!
//! Heap bytes are what the allocator was asked for; resident memory is what the system gave, one process
//! for each subject. `memory` prints tables; `memory rss NAME` is a process of its own making.

use std::alloc::System;
use std::process::Command;

use grapevine_bench::traffic::{Shape, mix};
use grapevine_bench_peers::{Grapevine, Prompt, REPLICAS, SUBJECTS, Subject};
use grapevine_tree::PrefixTree;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Heap bytes in use now.
fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn main() {
    let mut args = std::env::args().skip(1);
    if let (Some("rss"), Some(name)) = (args.next().as_deref(), args.next()) {
        return after_unique_prompts(&name);
    }
    by_traffic();
    by_subject();
    resident();
}

/// Bytes for each boundary stored, as the tree estimates and as the allocator counts.
fn by_traffic() {
    println!(
        "| prompts | nodes | boundaries | credits | B/boundary, estimated | counted |\n|---|---|---|---|---|---|"
    );
    let kib16 = 16 << 10;
    let shapes = [
        ("25,000 of 16 KiB, nothing shared", Shape { head: 0, heads: u64::MAX, bytes: kib16 }, 25_000),
        ("60,000 of 16 KiB, 64 heads of 4 KiB", Shape { head: kib16 / 4, heads: 64, bytes: kib16 }, 60_000),
        ("120,000 of 16 KiB, 64 heads of 8 KiB", Shape { head: kib16 / 2, heads: 64, bytes: kib16 }, 120_000),
        (
            "58,000 of 32 KiB, 1,000 heads of 8 KiB",
            Shape { head: 8 << 10, heads: 1_000, bytes: 32 << 10 },
            30_000,
        ),
    ];
    for (name, shape, prompts) in shapes {
        let before = heap();
        let tree = default_tree(|tree| {
            for n in 0..prompts {
                let replica = grapevine_bench::traffic::home(n, REPLICAS);
                tree.observe(&shape.key(n), replica, 1, 0);
                tell(tree, n);
            }
        });
        row(name, &tree, heap() - before);
    }
    let before = heap();
    let tree = default_tree(chats);
    row("40,000 chats of 10 turns, 2 to 16 KiB, 64 heads of 2 KiB", &tree, heap() - before);
}

/// Conversations that grow by 1.5 KiB a turn, many at a time.
fn chats(tree: &mut PrefixTree) {
    for turn in 0..10u64 {
        for chat in 0..40_000 {
            let shape = Shape { bytes: 2_048 + 1_536 * turn as usize, head: 2_048, heads: 64 };
            tree.observe(&shape.key(chat), grapevine_bench::traffic::home(chat, REPLICAS), 1, 0);
            tell(tree, chat);
        }
        for _ in 0..50 {
            tree.sweep(0);
        }
    }
}

/// Gossip takes what is new, as it does in a fleet.
fn tell(tree: &mut PrefixTree, n: u64) {
    if n.is_multiple_of(1_000) {
        tree.drain(usize::MAX, 0);
    }
}

fn default_tree(fill: impl Fn(&mut PrefixTree)) -> PrefixTree {
    let config = grapevine_tree::TreeConfig { default_capacity_tokens: 1 << 40, ..Default::default() };
    let mut tree = PrefixTree::new(config);
    fill(&mut tree);
    tree
}

fn row(name: &str, tree: &PrefixTree, counted: usize) {
    let stats = tree.stats();
    let per = |bytes: usize| bytes as f64 / stats.boundaries as f64;
    println!(
        "| {name} | {} | {} | {} | {:.1} | {:.1} |",
        stats.nodes,
        stats.boundaries,
        stats.credits,
        per(stats.bytes),
        per(counted)
    );
}

/// Heap bytes of an empty one, and for each prompt beyond that.
fn by_subject() {
    println!("\n| heap bytes | empty | a prompt of 1 KiB | 16 KiB | 128 KiB |\n|---|---|---|---|---|");
    for (name, make) in SUBJECTS {
        let before = heap();
        let empty = make();
        print!("| {name} | {} ", heap() - before);
        drop(empty);
        for (bytes, prompts) in [(1 << 10, 50_000), (16 << 10, 10_000), (128 << 10, 1_000)] {
            let mut subject = make();
            let before = heap();
            for n in 0..prompts {
                subject.insert(&Prompt::sharing(n, bytes), (mix(n) % u64::from(REPLICAS)) as u32);
            }
            print!("| {} ", (heap() - before) / prompts as usize);
        }
        println!("|");
    }
}

/// Resident memory after 50,000 unique prompts of 8 KiB, each subject in a process of its own.
fn resident() {
    println!("\n| resident MiB after 50,000 unique prompts of 8 KiB | |\n|---|---|");
    let own = std::env::current_exe().expect("this program has a path");
    for name in SUBJECTS.map(|(name, _)| name).into_iter().chain(["grapevine by default"]) {
        let output = Command::new(&own).args(["rss", name]).output().expect("this program runs");
        println!("| {name} | {} |", String::from_utf8_lossy(&output.stdout).trim());
    }
}

fn after_unique_prompts(name: &str) {
    let make = SUBJECTS.iter().find(|(other, _)| *other == name).map(|(_, make)| make);
    let mut subject =
        make.map_or_else(|| Box::new(Grapevine::by_default()) as Box<dyn Subject>, |make| make());
    // The prompts' own memory is the same for all, and small: one lives at a time.
    for n in 0..50_000 {
        subject.insert(&Prompt::unique(n, 8 << 10), (mix(n) % u64::from(REPLICAS)) as u32);
    }
    println!("{}", resident_bytes() >> 20);
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or(0) << 10
}
