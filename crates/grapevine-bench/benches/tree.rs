//! Lookup and insert for prompts of 1, 16 and 128 KiB in trees of ten thousand and a million nodes, and
//! with 4, 64 and 1,000 replicas.
//!
//! `head`: a new question after a known system prompt, the most common case; most of its boundaries
//! miss. `repeat`: a known prompt again. `cold`: nothing is known. `heads held by all`: every replica
//! holds the head, so the answer has an entry for each. `told by a peer`: labels have gaps, and a lookup
//! must look past what it does not find.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use grapevine_bench::cpu::CpuTime;
use grapevine_bench::traffic::{Shape, home, unlimited};
use grapevine_tree::{Matches, PrefixKey, PrefixTree, RouterId};

/// Questions asked in turn, so that what one brought into the processor's cache does not help the next.
const ASKED: u64 = 4_096;

/// Prompts that no tree knows start here.
const UNKNOWN: u64 = 1 << 40;

const SIZES: [usize; 3] = [1 << 10, 16 << 10, 128 << 10];

fn lookup(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("lookup");
    for (name, nodes) in [("10k", 10_000), ("1M", 1_000_000)] {
        for bytes in SIZES {
            // Full trees have at most 16 million boundaries; longer prompts then have a longer head.
            let head = if bytes > 16 << 10 { bytes * 3 / 4 } else { bytes / 4 };
            let shape = Shape { head, ..Shape::of(bytes) };
            let mut tree = shape.tree(nodes, 16);
            let id = |case: &str| BenchmarkId::new(format!("{case}/{name}"), format!("{}KiB", bytes >> 10));
            let cold = Shape { heads: u64::MAX, ..shape };
            let cases: [(&str, Vec<PrefixKey>); 3] = [
                ("head", (0..ASKED).map(|n| shape.key(UNKNOWN + n)).collect()),
                ("repeat", (0..ASKED).map(|n| shape.key(n * (nodes / ASKED))).collect()),
                ("cold", (0..ASKED).map(|n| cold.key(UNKNOWN + n)).collect()),
            ];
            for (case, keys) in cases {
                group.bench_function(id(case), |b| ask(b, &mut tree, &keys));
            }
        }
    }
    for (name, nodes) in [("10k", 10_000), ("1M", 1_000_000)] {
        let shape = Shape::of(16 << 10);
        let mut tree = told(&shape, nodes);
        let keys: Vec<_> = (0..ASKED).map(|n| shape.key(UNKNOWN + n)).collect();
        group.bench_function(BenchmarkId::new("head, told by a peer", name), |b| ask(b, &mut tree, &keys));
    }
    for replicas in [4, 64, 1_000] {
        let shape = Shape { heads: 4, ..Shape::of(16 << 10) };
        let mut tree = shape.tree(20_000, replicas);
        let keys: Vec<_> = (0..ASKED).map(|n| shape.key(UNKNOWN + n)).collect();
        group.bench_function(BenchmarkId::new("heads held by all", replicas), |b| ask(b, &mut tree, &keys));
    }
    group.finish();
}

/// A tree that only ever heard a peer's gossip, which leaves boundaries out.
fn told(shape: &Shape, prompts: u64) -> PrefixTree {
    let mut peer = PrefixTree::new(unlimited());
    let mut tree = PrefixTree::new(unlimited());
    for n in 0..prompts {
        peer.observe(&shape.key(n), home(n, 16), 1, 0);
        if n % 1_000 == 999 {
            peer.drain(usize::MAX, 0).iter().for_each(|entry| tree.apply(RouterId(1), entry, 0));
        }
    }
    tree
}

fn ask(b: &mut criterion::Bencher<'_, CpuTime>, tree: &mut PrefixTree, keys: &[PrefixKey]) {
    let mut out = Matches::new();
    let mut asked = keys.iter().cycle();
    b.iter(|| {
        tree.lookup(black_box(asked.next().expect("cycles")), 0, &mut out);
        out.len()
    });
}

fn insert(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("insert");
    for (name, nodes) in [("10k", 10_000), ("1M", 1_000_000)] {
        for bytes in SIZES {
            let head = if bytes > 16 << 10 { bytes * 3 / 4 } else { bytes / 4 };
            let shape = Shape { head, ..Shape::of(bytes) };
            let mut tree = shape.tree(nodes, 16);
            let mut next = nodes;
            group.bench_function(BenchmarkId::new(name, format!("{}KiB", bytes >> 10)), |b| {
                b.iter_batched(
                    || {
                        next += 1;
                        (shape.key(next), home(next, 16))
                    },
                    |(key, replica)| tree.observe(&key, replica, 1, 0),
                    BatchSize::SmallInput,
                );
            });
        }
    }
    for replicas in [4, 64, 1_000] {
        let shape = Shape { heads: 4, ..Shape::of(16 << 10) };
        let mut tree = shape.tree(20_000, replicas);
        let mut next = 20_000;
        group.bench_function(BenchmarkId::new("heads held by all", replicas), |b| {
            b.iter_batched(
                || {
                    next += 1;
                    (shape.key(next), home(next, replicas))
                },
                |(key, replica)| tree.observe(&key, replica, 1, 0),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(20).warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700));
    targets = lookup, insert
}
criterion_main!(benches);
