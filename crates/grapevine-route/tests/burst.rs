//! A burst of equal prompts that nobody holds: tree, loads, votes and guard together.

use std::sync::Arc;

use grapevine_route::{
    Ballot, Candidate, LoadGuard, Policy, ReplicaLoad, Request, Weights, cold_hash, decide,
};
use grapevine_tree::{Matches, PrefixKey, PrefixTree, ReplicaId, TreeConfig, boundary};
use rand::SeedableRng;
use rand::rngs::SmallRng;

const REPLICAS: usize = 8;
const BURST: usize = 32;

/// A router that has heard nothing of the others yet, which is so for the first quarter of a second.
struct Router {
    tree: PrefixTree,
    loads: Vec<Arc<ReplicaLoad>>,
    in_flight: Vec<LoadGuard>,
    rng: SmallRng,
}

impl Router {
    fn new(seed: u64) -> Self {
        let loads = (0..REPLICAS).map(|_| Arc::default()).collect();
        let rng = SmallRng::seed_from_u64(seed);
        Self { tree: PrefixTree::new(TreeConfig::default()), loads, in_flight: Vec::new(), rng }
    }

    /// Where `key` goes, and whether that replica has to prefill it.
    fn send(&mut self, key: &PrefixKey, now: u64) -> (usize, bool) {
        let mut matches = Matches::new();
        self.tree.lookup(key, now, &mut matches);
        let candidates: Vec<Candidate> = self.loads.iter().zip(0..).map(candidate).collect();
        let request = Request {
            prompt_tokens: key.bytes as f32 / 4.0,
            bytes_per_token: 4.0,
            matches: &matches,
            cold_hash: cold_hash(key, &matches),
            turn: 0,
            informed: true,
        };
        let (weights, mut ballot) = (Weights::default(), Ballot::default());
        let picked = decide(Policy::Affinity, &weights, &request, &candidates, &mut ballot, &mut self.rng)
            .expect("there are candidates");
        self.tree.observe(key, picked.replica, picked.uncached_tokens(), now);
        self.in_flight.push(self.loads[picked.index].begin(picked.uncached_tokens()));
        (picked.index, picked.matched_tokens == 0)
    }
}

fn candidate((load, id): (&Arc<ReplicaLoad>, u32)) -> Candidate {
    Candidate { replica: ReplicaId(id), weight: 1.0, load: load.view(), kv_use: None }
}

/// How many replicas have to prefill the prompt, and the most that one router sent to one of them.
fn burst(routers: usize, tokens: usize) -> (usize, usize) {
    let mut hashes = Vec::new();
    boundary::hash_into(7, &vec![b'x'; tokens * 4], &mut hashes);
    let key = PrefixKey { hashes, bytes: tokens as u64 * 4 };
    let mut fleet: Vec<Router> = (0..routers as u64).map(Router::new).collect();
    let (mut sent, mut prefilled) = (vec![[0; REPLICAS]; routers], [false; REPLICAS]);
    for n in 0..BURST {
        let router = n % routers;
        let (index, cold) = fleet[router].send(&key, n as u64 * 10 / BURST as u64);
        sent[router][index] += 1;
        prefilled[index] |= cold;
    }
    (prefilled.iter().filter(|cold| **cold).count(), sent.into_iter().flatten().max().unwrap_or(0))
}

/// The guard's gap of 8 above the mean of what a router sent, and the one that meets it.
fn fair(routers: usize) -> usize {
    BURST / routers / REPLICAS + 8 + 1
}

#[test]
fn one_router_prefills_it_a_few_times_and_spreads_the_rest() {
    for tokens in [512, 2_048, 8_192] {
        let (prefilled, most) = burst(1, tokens);
        assert!(prefilled <= 4, "{tokens} tokens: prefilled on {prefilled} replicas");
        assert!(most <= fair(1), "{tokens} tokens: {most} of {BURST} on one replica");
    }
}

#[test]
fn routers_that_have_not_talked_agree_on_where_it_goes() {
    for tokens in [512, 2_048, 8_192] {
        let (prefilled, most) = burst(4, tokens);
        assert!(prefilled <= 2, "{tokens} tokens: prefilled on {prefilled} replicas");
        assert!(most <= fair(4), "{tokens} tokens: {most} of a router's 8 on one replica");
    }
}
