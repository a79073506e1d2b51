//! From a body to a prefix key: 1, 16 and 128 KiB chats. And the hash chain alone, by the two XXH3
//! libraries: one chooses SIMD when it is compiled, the other when it runs.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use grapevine_bench::cpu::CpuTime;
use grapevine_bench::text::{chat_body, text};
use grapevine_tree::{Api, Extractor, KeySeed, boundary};

const SIZES: [usize; 4] = [1 << 10, 16 << 10, 32 << 10, 128 << 10];

fn key(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("key");
    for bytes in SIZES {
        let body = chat_body(&text(1, bytes / 4), &text(2, bytes * 3 / 4));
        let mut extractor = Extractor::new(KeySeed(1));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(BenchmarkId::from_parameter(kib(bytes)), |b| {
            b.iter(|| extractor.extract(Api::Chat, black_box(&body), b""));
        });
    }
    group.finish();
}

fn hash_chain(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("hash-chain");
    let mut out = Vec::new();
    for bytes in SIZES {
        let prompt = text(1, bytes).into_bytes();
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("tree", kib(bytes)), |b| {
            b.iter(|| {
                out.clear();
                boundary::hash_into(1, black_box(&prompt), &mut out);
            });
        });
        for (name, hash) in [
            ("xxhash-rust", xxhash_rust::xxh3::xxh3_64_with_seed as fn(&[u8], u64) -> u64),
            ("twox-hash", |chunk, seed| twox_hash::XxHash3_64::oneshot_with_seed(seed, chunk)),
        ] {
            group.bench_function(BenchmarkId::new(name, kib(bytes)), |b| {
                b.iter(|| chain(black_box(&prompt), hash));
            });
        }
    }
    group.finish();
}

fn chain(prompt: &[u8], hash: fn(&[u8], u64) -> u64) -> u64 {
    let (mut chain, mut from) = (1, 0);
    for index in 0..boundary::count(prompt.len()) {
        let to = boundary::depth(index);
        chain = hash(&prompt[from..to], chain);
        from = to;
    }
    chain
}

fn kib(bytes: usize) -> String {
    format!("{}KiB", bytes >> 10)
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(30).warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = key, hash_chain
}
criterion_main!(benches);
