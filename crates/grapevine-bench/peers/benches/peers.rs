//! Lookup and insert beside the public crates for the same work, on the same prompts: see
//! [`grapevine_bench_peers`] for what each is given.

use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use grapevine_bench::cpu::CpuTime;
use grapevine_bench::traffic::mix;
use grapevine_bench_peers::{Prompt, REPLICAS, SUBJECTS};

/// Prompts in each tree, by their length.
const STORED: [(usize, u64); 3] = [(1 << 10, 10_000), (16 << 10, 10_000), (128 << 10, 1_000)];

const ASKED: u64 = 256;

fn home(n: u64) -> u32 {
    (mix(n) % u64::from(REPLICAS)) as u32
}

fn beside(c: &mut Criterion<CpuTime>) {
    for (bytes, stored) in STORED {
        let repeat: Vec<_> = (0..ASKED).map(|n| Prompt::sharing(n * (stored / ASKED), bytes)).collect();
        let head: Vec<_> = (0..ASKED).map(|n| Prompt::sharing(1 << 20 | n, bytes)).collect();
        for (name, make) in SUBJECTS {
            let mut subject = make();
            for n in 0..stored {
                subject.insert(&Prompt::sharing(n, bytes), home(n));
            }
            let mut group = c.benchmark_group(format!("{}KiB", bytes >> 10));
            for (case, prompts) in [("lookup head", &head), ("lookup repeat", &repeat)] {
                let mut asked = prompts.iter().cycle();
                group.bench_function(BenchmarkId::new(case, name), |b| {
                    b.iter(|| subject.lookup(asked.next().expect("cycles")));
                });
            }
            let mut next = stored;
            group.bench_function(BenchmarkId::new("insert", name), |b| {
                let fresh = || {
                    next += 1;
                    (Prompt::sharing(next, bytes), home(next))
                };
                b.iter_batched(
                    fresh,
                    |(prompt, replica)| subject.insert(&prompt, replica),
                    BatchSize::SmallInput,
                );
            });
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(10).warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = beside
}
criterion_main!(benches);
