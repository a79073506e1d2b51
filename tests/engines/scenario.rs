//! What is asked of two engines, directly and through a fleet, and how much of it they find in their caches.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::process::{Head, Router, exchange, routers, wait_for};
use super::server::Server;

pub(crate) const CHAT: &str = "/v1/chat/completions";

/// How far from perfect stickiness a fleet may be, and how far from random it must be.
const NEAR: f64 = 0.02;
const FAR: f64 = 0.2;

/// Engines of one kind, and what of their caches is asked.
pub(crate) struct Place {
    pub(crate) engines: Vec<Server>,
    pub(crate) load: Load,
}

/// Traffic that fits the engines' caches only when each prompt has its place.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Shared prefixes, and conversations at a time.
    pub(crate) prefixes: usize,
    /// Bytes of a shared prefix.
    pub(crate) prefix_bytes: usize,
    pub(crate) rounds: usize,
    /// Tokens that were found in caches, of how many: counters of one engine.
    pub(crate) hits: fn(&Server) -> (f64, f64),
}

impl Place {
    /// Two routers before all engines.
    pub(crate) fn fleet(&self, policy: &str) -> Vec<Router> {
        let urls: Vec<_> = self.engines.iter().map(|engine| engine.url().to_owned()).collect();
        let settings = [
            ("GRAPEVINE_POLICY", policy.to_owned()),
            ("GRAPEVINE_HEALTH_INTERVAL", "1s".to_owned()),
            ("GRAPEVINE_METRICS_INTERVAL", "1s".to_owned()),
            ("GRAPEVINE_IDLE_TIMEOUT", "5s".to_owned()),
        ];
        routers(2, &urls, &settings)
    }

    pub(crate) fn sum(&self, metric: &str) -> f64 {
        self.engines.iter().map(|engine| engine.metric(metric)).sum()
    }

    /// Waits until each router has found out by itself what the engines are.
    pub(crate) fn is_known(&self, fleet: &[Router], kind: &str, cache_tokens: u64) {
        for router in fleet {
            let replicas = wait_for("engines to be read", || {
                let replicas = router.status().replicas;
                replicas.iter().all(|replica| replica.engine.cache_tokens.is_some()).then_some(replicas)
            });
            assert_eq!(replicas.len(), self.engines.len());
            for replica in replicas {
                assert_eq!(replica.engine.kind, kind);
                assert_eq!(replica.engine.cache_tokens, Some(cache_tokens));
                assert_eq!((replica.health.as_str(), replica.lost_caches), ("up", 0));
                assert_eq!(replica.models, Some(vec!["m".to_owned()]));
            }
        }
    }

    /// Share of the prompt tokens that were found in caches while `run` ran, by the engines' own counters.
    fn hit_rate(&self, run: impl FnOnce()) -> f64 {
        let count = || {
            let counted = self.engines.iter().map(self.load.hits);
            counted.fold((0.0, 0.0), |sum, (hits, of)| (sum.0 + hits, sum.1 + of))
        };
        let (hits, of) = count();
        run();
        let (more_hits, more_of) = count();
        (more_hits - hits) / (more_of - of)
    }

    /// The same traffic with other words three times: each prompt at its own engine, through a fleet that
    /// places at random, and through one that places by affinity.
    pub(crate) fn affinity_is_near_stickiness(&self) {
        type Scenario = fn(Load, u64, &dyn Fn(usize, usize) -> String);
        let scenarios: [(&str, Scenario); 2] =
            [("shared prefixes", shared_prefixes), ("conversations", conversations)];
        for (at, (name, scenario)) in scenarios.into_iter().enumerate() {
            let (load, salt) = (self.load, 10 * (at as u64 + 1));
            let at = |i: usize| self.engines[i % self.engines.len()].url().to_owned();
            let sticky = self.hit_rate(|| scenario(load, salt, &|i, _| at(i)));
            let through = |policy: &str, salt: u64| {
                let fleet = self.fleet(policy);
                self.hit_rate(|| scenario(load, salt, &|_, n| fleet[n % fleet.len()].url.clone()))
            };
            let (random, affinity) = (through("random", salt + 1), through("affinity", salt + 2));
            println!("| {name} | sticky {sticky:.3} | affinity {affinity:.3} | random {random:.3} |");
            assert!(affinity >= sticky - NEAR, "{name}: affinity {affinity:.3}, sticky {sticky:.3}");
            assert!(affinity >= random + FAR, "{name}: affinity {affinity:.3}, random {random:.3}");
        }
    }
}

/// Shared prefixes in an order that mixes them; `base` says who is asked for the n-th request of a prefix.
fn shared_prefixes(load: Load, salt: u64, base: &dyn Fn(usize, usize) -> String) {
    for round in 0..load.rounds {
        for i in 0..load.prefixes {
            let (prefix, n) = ((i * 5 + round * 3) % load.prefixes, round * load.prefixes + i);
            let system = text(salt * 1_000 + prefix as u64, load.prefix_bytes);
            let question = text(salt * 1_000_000 + n as u64, 120);
            chat(&base(prefix, n), &json!([turn("system", system), turn("user", question)]));
        }
    }
}

/// Conversations that grow turn by turn, one after another.
fn conversations(load: Load, salt: u64, base: &dyn Fn(usize, usize) -> String) {
    let opening = |i: usize| vec![turn("system", text(salt * 1_000 + i as u64, load.prefix_bytes / 2))];
    let mut histories: Vec<Vec<Value>> = (0..load.prefixes).map(opening).collect();
    for round in 0..load.rounds {
        for (i, history) in histories.iter_mut().enumerate() {
            let n = round * load.prefixes + i;
            history.push(turn("user", text(salt * 1_000_000 + n as u64, load.prefix_bytes / 16)));
            let answer = chat(&base(i, n), &json!(history));
            history.push(turn("assistant", answer["content"].as_str().unwrap_or_default()));
        }
    }
}

/// Text that only the same `seed` gives again.
pub(crate) fn text(seed: u64, bytes: usize) -> String {
    const WORDS: [&str; 12] = [
        "return", "value", "module", "import", "system", "the", "of", "path", "string", "class", "file", "if",
    ];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = format!("[{seed}] ");
    while out.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        out.push_str(WORDS[(state >> 33) as usize % WORDS.len()]);
        out.push(' ');
    }
    out
}

pub(crate) fn turn(role: &str, content: impl Into<String>) -> Value {
    let content: String = content.into();
    json!({ "role": role, "content": content })
}

pub(crate) fn chat(base: &str, messages: &Value) -> Value {
    let body = json!({ "model": "m", "messages": messages, "max_tokens": 4, "temperature": 0 });
    let (head, answer) = post(base, CHAT, &body);
    assert_eq!(head.status, 200, "{answer}");
    answer["choices"][0]["message"].clone()
}

pub(crate) fn post(base: &str, path: &str, body: &Value) -> (Head, Value) {
    let (head, bytes) = raw_post(base, path, body.to_string().as_bytes());
    (head, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

pub(crate) fn raw_post(base: &str, path: &str, body: &[u8]) -> (Head, Vec<u8>) {
    exchange(&format!("{base}{path}"), "POST", &[("content-type", "application/json")], body)
}

/// What no engine of ours takes.
pub(crate) fn refusals() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let too_long = json!({ "model": "m", "messages": [turn("user", text(9, 60_000))] });
    let embeddings = json!({ "model": "m", "input": "x" });
    vec![
        ("too long", CHAT, too_long.to_string().into_bytes()),
        ("bad JSON", CHAT, b"{\"model\": \"m\", ".to_vec()),
        ("embeddings", "/v1/embeddings", embeddings.to_string().into_bytes()),
    ]
}

/// What an engine refuses, a client sees as the engine said it, to the byte.
pub(crate) fn are_refused_alike(engine: &Server, router: &Router, requests: &[(&str, &str, Vec<u8>)]) {
    for (name, path, body) in requests {
        let (direct, expected) = raw_post(engine.url(), path, body);
        let (through, found) = raw_post(&router.url, path, body);
        assert!((400..=501).contains(&direct.status), "{name}: {}", direct.status);
        assert_eq!((through.status, &found), (direct.status, &expected), "{name}");
    }
}

/// What an engine answers has these members, lists of so many at least.
pub(crate) fn are_served(router: &Router, requests: &[(&str, &str, Value, &str, usize)]) {
    for (name, path, body, member, least) in requests {
        let (head, answer) = post(&router.url, path, body);
        assert_eq!(head.status, 200, "{name}: {answer}");
        assert!(answer[*member].as_array().is_some_and(|items| items.len() >= *least), "{name}: {answer}");
    }
}

/// A long stream through `router`, up to its first event.
pub(crate) fn open_stream(router: &Router, tag: u64) -> TcpStream {
    let messages = json!([turn("user", text(tag, 200))]);
    let body = json!({ "model": "m", "messages": messages, "max_tokens": 3_000, "stream": true, "ignore_eos": true })
        .to_string();
    let mut stream = TcpStream::connect(router.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    let mut buffer = [0; 4_096];
    while !seen.windows(6).any(|window| window == b"data: ") {
        let n = stream.read(&mut buffer).unwrap();
        assert_ne!(n, 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..n]);
    }
    stream
}

/// What is left of a stream, however it ends.
pub(crate) fn rest_of(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    String::from_utf8_lossy(&rest).into_owned()
}
