//! Does one piece of a routing decision a given number of times, and nothing else that depends on that
//! number: `counted PIECE TIMES`. The difference between two runs is what the piece costs; counted in
//! instructions it is the same on a busy machine.
//!
//! Everything comes from fixed seeds. `tests/instructions` holds the counts against a baseline.

use std::hint::black_box;
use std::process::ExitCode;

use grapevine_route::{Ballot, Candidate, LoadView, Policy, Request, Weights, cold_hash, decide};
use grapevine_tree::{Api, Extractor, KeySeed, Matches, PrefixKey, PrefixTree, ReplicaId, TreeConfig};
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Replicas of the fleet.
const REPLICAS: u32 = 16;

/// Chats that the tree holds, under so many system prompts.
const CHATS: u64 = 256;
const SYSTEMS: u64 = 8;

/// Bytes of a prompt; a quarter of them is its system prompt.
const PROMPT: usize = 32 << 10;

/// Bodies that are asked in turn: more than a branch predictor remembers, fewer than memory notices.
const ASKED: u64 = 32;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (piece, times) = (args.next(), args.next().and_then(|times| times.parse::<u64>().ok()));
    let (Some(piece), Some(times)) = (piece, times) else { return ExitCode::from(2) };
    let mut bench = Bench::new();
    for n in 0..times {
        match piece.as_str() {
            "key" => drop(black_box(bench.key(n % ASKED))),
            "lookup" => bench.lookup(n % ASKED),
            "observe" => bench.observe(n),
            "votes" => bench.votes(n % ASKED),
            "decision" => bench.decision(n % ASKED),
            _ => return ExitCode::from(2),
        }
    }
    ExitCode::SUCCESS
}

struct Bench {
    extractor: Extractor,
    tree: PrefixTree,
    matches: Matches,
    ballot: Ballot,
    candidates: Vec<Candidate>,
    rng: SmallRng,
    bodies: Vec<Vec<u8>>,
    keys: Vec<PrefixKey>,
}

impl Bench {
    fn new() -> Self {
        let mut extractor = Extractor::new(KeySeed(1));
        let mut tree = PrefixTree::new(TreeConfig::default());
        for chat in 0..CHATS {
            let key = extractor.extract(Api::Chat, &body(chat), b"").key;
            tree.observe(&key, ReplicaId(mix(chat) as u32 % REPLICAS), 1_000, 0);
        }
        // Half of what is asked is known to its end, half only by its system prompt.
        let bodies: Vec<_> = (0..ASKED).map(|n| body(CHATS - ASKED / 2 + n)).collect();
        let keys = bodies.iter().map(|body| extractor.extract(Api::Chat, body, b"").key).collect();
        Self {
            extractor,
            tree,
            matches: Matches::new(),
            ballot: Ballot::default(),
            candidates: (0..REPLICAS).map(candidate).collect(),
            rng: SmallRng::seed_from_u64(1),
            bodies,
            keys,
        }
    }

    fn key(&mut self, n: u64) -> PrefixKey {
        self.extractor.extract(Api::Chat, &self.bodies[n as usize], b"").key
    }

    fn lookup(&mut self, n: u64) {
        self.tree.lookup(&self.keys[n as usize], 0, &mut self.matches);
    }

    /// A pick of a chat that is known, and of one that is new but for its head.
    fn observe(&mut self, n: u64) {
        let key = &self.keys[(n % ASKED) as usize];
        self.tree.observe(key, ReplicaId(mix(n) as u32 % REPLICAS), 1_000, n);
    }

    fn votes(&mut self, n: u64) {
        self.vote(&self.keys[n as usize].clone());
    }

    fn decision(&mut self, n: u64) {
        let key = self.key(n);
        self.tree.lookup(&key, 0, &mut self.matches);
        self.vote(&key);
    }

    fn vote(&mut self, key: &PrefixKey) {
        let request = Request {
            prompt_tokens: key.bytes as f32 / 4.0,
            bytes_per_token: 4.0,
            matches: &self.matches,
            cold_hash: cold_hash(key, &self.matches),
            turn: 0,
            informed: true,
        };
        let (ballot, rng) = (&mut self.ballot, &mut self.rng);
        black_box(decide(Policy::Affinity, &Weights::default(), &request, &self.candidates, ballot, rng));
    }
}

fn candidate(n: u32) -> Candidate {
    let load = LoadView {
        inflight: (mix(u64::from(n)) % 12) as f32,
        queued_tokens: (mix(u64::from(n) + 7) % 8_000) as f32,
        intake_tokens: (mix(u64::from(n) + 9) % 200_000) as f32,
    };
    Candidate { replica: ReplicaId(n), weight: 1.0, load, kv_use: Some(0.5) }
}

/// A chat as clients write it; a line ends about every twelve words.
fn body(chat: u64) -> Vec<u8> {
    let (system, question) = (text(chat % SYSTEMS, PROMPT / 4), text(1 << 32 | chat, PROMPT * 3 / 4));
    format!(
        r#"{{"model":"m","stream":true,"messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{question}"}}]}}"#
    )
    .into_bytes()
}

fn text(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 8] = ["the", "model", "answers", "with", "care", "and", "sources", "it"];
    let (mut text, mut n) = (String::with_capacity(bytes + 16), seed << 20);
    while text.len() < bytes {
        n += 1;
        let random = mix(n);
        text.push_str(WORDS[(random % 8) as usize]);
        text.push_str(if random >> 32 & 15 < 1 { "\\n" } else { " " });
    }
    text
}

fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ n >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 8
}
