//! The decision: votes alone with 16 and 1,000 candidates, and all of it (key, lookup, votes) for a
//! 32 KiB prompt.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use grapevine_bench::cpu::CpuTime;
use grapevine_bench::text::{chat_body, text};
use grapevine_bench::traffic::mix;
use grapevine_route::{Ballot, Candidate, LoadView, Policy, Request, Weights, decide};
use grapevine_tree::{Api, Extractor, KeySeed, Match, Matches, PrefixTree, ReplicaId, Teacher, TreeConfig};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Fleets from a usual to a very large one.
const FLEETS: [u32; 2] = [16, 1_000];

/// System prompts that the fleet has seen, and chats under each.
const SYSTEMS: u64 = 16;
const CHATS: u64 = 200;

const PROMPT: usize = 32 << 10;

fn candidates(count: u32) -> Vec<Candidate> {
    let load = |n: u32| LoadView {
        inflight: (mix(u64::from(n)) % 12) as f32,
        queued_tokens: (mix(u64::from(n) + 7) % 8_000) as f32,
        intake_tokens: (mix(u64::from(n) + 9) % 200_000) as f32,
    };
    let candidate = |n| Candidate { replica: ReplicaId(n), weight: 1.0, load: load(n), kv_use: Some(0.5) };
    (0..count).map(candidate).collect()
}

fn votes(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("votes");
    for count in FLEETS {
        let candidates = candidates(count);
        let held = |n: u32| Match { replica: ReplicaId(n), bytes: 8_192, count: 3.0, teacher: Teacher::Own };
        for (name, matches) in [("cold", 0), ("half hold the head", count / 2)] {
            let matches: Matches = (0..matches).map(|n| held(n * 2)).collect();
            let request = Request {
                prompt_tokens: 8_192.0,
                bytes_per_token: 4.0,
                matches: &matches,
                cold_hash: Some(7),
                turn: 0,
                informed: true,
            };
            let (mut ballot, mut rng) = (Ballot::default(), SmallRng::seed_from_u64(1));
            let weights = Weights::default();
            group.bench_function(BenchmarkId::new(name, count), |b| {
                b.iter(|| {
                    decide(
                        Policy::Affinity,
                        &weights,
                        black_box(&request),
                        &candidates,
                        &mut ballot,
                        &mut rng,
                    )
                });
            });
        }
    }
    group.finish();
}

/// What a router does for a request before it sends it on, in the same calls, without the actors
/// between them.
struct Router {
    extractor: Extractor,
    tree: PrefixTree,
    matches: Matches,
    ballot: Ballot,
    weights: Weights,
    candidates: Vec<Candidate>,
    rng: SmallRng,
}

impl Router {
    fn new(replicas: u32) -> Self {
        let mut router = Self {
            extractor: Extractor::new(KeySeed(1)),
            tree: PrefixTree::new(TreeConfig { default_capacity_tokens: 1 << 40, ..TreeConfig::default() }),
            matches: Matches::new(),
            ballot: Ballot::default(),
            weights: Weights::default(),
            candidates: candidates(replicas),
            rng: SmallRng::seed_from_u64(1),
        };
        for n in 0..SYSTEMS * CHATS {
            let prompt = router.extractor.extract(Api::Chat, &body(n), b"");
            let replica = ReplicaId((mix(n) % u64::from(replicas)) as u32);
            router.tree.observe(&prompt.key, replica, 1, 0);
        }
        router
    }

    fn place(&mut self, body: &[u8]) -> usize {
        let prompt = self.extractor.extract(Api::Chat, body, b"");
        self.tree.lookup(&prompt.key, 0, &mut self.matches);
        let deepest = self.matches.first().map_or(0, |m| m.bytes as usize);
        let request = Request {
            prompt_tokens: prompt.key.bytes as f32 / 4.0,
            bytes_per_token: 4.0,
            matches: &self.matches,
            cold_hash: prompt.key.hashes.get(grapevine_tree::boundary::count(deepest)).copied(),
            turn: 0,
            informed: true,
        };
        let (ballot, rng) = (&mut self.ballot, &mut self.rng);
        let decision = decide(Policy::Affinity, &self.weights, &request, &self.candidates, ballot, rng);
        decision.expect("there are candidates").index
    }
}

/// Chat `n`: one of the system prompts of 8 KiB, and 24 KiB of its own.
fn body(n: u64) -> Vec<u8> {
    chat_body(&text(n % SYSTEMS, PROMPT / 4), &text(1 << 32 | n, PROMPT * 3 / 4))
}

fn whole(c: &mut Criterion<CpuTime>) {
    let mut group = c.benchmark_group("decision");
    for replicas in FLEETS {
        let mut router = Router::new(replicas);
        for (name, first) in [("known chat", 0), ("new chat", SYSTEMS * CHATS)] {
            let bodies: Vec<_> = (0..64).map(|n| body(first + n)).collect();
            let mut asked = bodies.iter().cycle();
            group.bench_function(BenchmarkId::new(name, replicas), |b| {
                b.iter(|| router.place(black_box(asked.next().expect("cycles"))));
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(30).warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = votes, whole
}
criterion_main!(benches);
