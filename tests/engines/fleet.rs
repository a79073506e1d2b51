//! Two routers in front of two living vLLMs with small caches. One test, since a vLLM takes minutes to start.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::process::{Head, Router, exchange, routers, wait_for};
use super::skip;
use super::vllm::{Vllm, free_port, named};

/// Tokens that one engine's cache holds: fewer than all prefixes have together, more than half of them.
const CACHE_BLOCKS: &str = "640";

/// 640 blocks of 32 must be more than one request's context.
const ARGS: &[&str] =
    &["--num-gpu-blocks-override", CACHE_BLOCKS, "--max-model-len", "4096", "--max-num-seqs", "4"];

/// Of about 2,000 tokens each: 8 fit into a cache, 16 do not.
const PREFIXES: usize = 16;
const PREFIX_BYTES: usize = 6_500;
const ROUNDS: usize = 8;

/// How far from perfect stickiness a fleet may be, and how far from random it must be.
const NEAR: f64 = 0.02;
const FAR: f64 = 0.2;

struct Place {
    engines: Vec<Vllm>,
    named: String,
}

#[test]
fn a_fleet_before_living_engines_does_what_one_perfect_router_would() {
    let Some(named) = named().filter(|named| !named.starts_with("http://")) else { return skip() };
    let engines: Vec<_> = (0..2).map(|_| Vllm::start(&named, free_port(), ARGS)).collect();
    engines.iter().for_each(Vllm::wait_until_ready);
    let mut place = Place { engines, named };
    hit_rates(&place);
    let fleet = place.fleet("affinity");
    shapes(&place, &fleet);
    a_client_that_leaves_ends_the_generation(&place, &fleet);
    a_restart_in_place_is_noticed(&mut place, &fleet);
    a_kill_in_a_stream_is_told_and_survived(place, &fleet);
}

impl Place {
    fn fleet(&self, policy: &str) -> Vec<Router> {
        let urls: Vec<_> = self.engines.iter().map(|engine| engine.url().to_owned()).collect();
        let settings = [
            ("GRAPEVINE_POLICY", policy.to_owned()),
            ("GRAPEVINE_HEALTH_INTERVAL", "1s".to_owned()),
            ("GRAPEVINE_METRICS_INTERVAL", "1s".to_owned()),
        ];
        routers(2, &urls, &settings)
    }

    fn sum(&self, metric: &str) -> f64 {
        self.engines.iter().map(|engine| engine.metric(metric)).sum()
    }

    /// Share of the prompt tokens that were found in caches while `run` ran, by the engines' own counters.
    fn hit_rate(&self, run: impl FnOnce()) -> f64 {
        let count =
            || (self.sum("vllm:prefix_cache_queries_total"), self.sum("vllm:prefix_cache_hits_total"));
        let (queries, hits) = count();
        run();
        let (more_queries, more_hits) = count();
        (more_hits - hits) / (more_queries - queries)
    }
}

/// Text that only the same `seed` gives again.
fn text(seed: u64, bytes: usize) -> String {
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

fn post(base: &str, path: &str, body: &Value) -> (Head, Value) {
    let (head, bytes) = raw_post(base, path, body.to_string().as_bytes());
    (head, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

fn raw_post(base: &str, path: &str, body: &[u8]) -> (Head, Vec<u8>) {
    exchange(&format!("{base}{path}"), "POST", &[("content-type", "application/json")], body)
}

const CHAT: &str = "/v1/chat/completions";

fn chat(base: &str, messages: &Value) -> Value {
    let body = json!({ "model": "m", "messages": messages, "max_tokens": 4, "temperature": 0 });
    let (head, answer) = post(base, CHAT, &body);
    assert_eq!(head.status, 200, "{answer}");
    answer["choices"][0]["message"].clone()
}

fn turn(role: &str, content: impl Into<String>) -> Value {
    let content: String = content.into();
    json!({ "role": role, "content": content })
}

/// Shared prefixes in an order that mixes them; `base` says who is asked for the n-th request of a prefix.
fn shared_prefixes(salt: u64, base: impl Fn(usize, usize) -> String) {
    for round in 0..ROUNDS {
        for i in 0..PREFIXES {
            let prefix = (i * 5 + round * 3) % PREFIXES;
            let system = text(salt * 1_000 + prefix as u64, PREFIX_BYTES);
            let question = text(salt * 1_000_000 + (round * PREFIXES + i) as u64, 120);
            chat(
                &base(prefix, round * PREFIXES + i),
                &json!([turn("system", system), turn("user", question)]),
            );
        }
    }
}

/// Conversations that grow turn by turn, one after another.
fn conversations(salt: u64, base: impl Fn(usize, usize) -> String) {
    let mut histories: Vec<Vec<Value>> = (0..PREFIXES)
        .map(|i| vec![turn("system", text(salt * 1_000 + i as u64, PREFIX_BYTES / 3))])
        .collect();
    for round in 0..ROUNDS / 2 {
        for (i, history) in histories.iter_mut().enumerate() {
            history.push(turn("user", text(salt * 1_000_000 + (round * PREFIXES + i) as u64, 600)));
            let answer = chat(&base(i, round * PREFIXES + i), &json!(history));
            history.push(turn("assistant", answer["content"].as_str().unwrap_or_default()));
        }
    }
}

fn hit_rates(place: &Place) {
    type Scenario = fn(u64, &dyn Fn(usize, usize) -> String);
    let scenarios: [(&str, Scenario); 2] = [
        ("shared prefixes", |s, base| shared_prefixes(s, base)),
        ("conversations", |s, base| conversations(s, base)),
    ];
    for (at, (name, scenario)) in scenarios.into_iter().enumerate() {
        let salt = 10 * (at as u64 + 1);
        let sticky = place.hit_rate(|| scenario(salt, &|i, _| place.engines[i % 2].url().to_owned()));
        let through = |policy: &str, salt: u64| {
            let fleet = place.fleet(policy);
            place.hit_rate(|| scenario(salt, &|_, n| fleet[n % 2].url.clone()))
        };
        let (random, affinity) = (through("random", salt + 1), through("affinity", salt + 2));
        println!("| {name} | sticky {sticky:.3} | affinity {affinity:.3} | random {random:.3} |");
        assert!(affinity >= sticky - NEAR, "{name}: affinity {affinity:.3}, sticky {sticky:.3}");
        assert!(affinity >= random + FAR, "{name}: affinity {affinity:.3}, random {random:.3}");
    }
}

/// Whatever an engine answers, a client gets: errors to the byte, other answers in their shape.
fn shapes(place: &Place, fleet: &[Router]) {
    let engine = place.engines[0].url();
    let user = || json!([turn("user", "hi")]);
    let long = json!({ "model": "m", "messages": [turn("user", text(9, 60_000))], "max_tokens": 1 });
    let refused: [(&str, &str, Vec<u8>); 5] = [
        ("too long", CHAT, long.to_string().into_bytes()),
        ("bad JSON", CHAT, b"{\"model\": \"m\", ".to_vec()),
        ("embeddings", "/v1/embeddings", json!({ "model": "m", "input": "x" }).to_string().into_bytes()),
        ("n = 0", CHAT, json!({ "model": "m", "messages": user(), "n": 0 }).to_string().into_bytes()),
        ("no such path", "/v1/nothing", b"{}".to_vec()),
    ];
    for (name, path, body) in refused {
        let (direct, expected) = raw_post(engine, path, &body);
        let (through, found) = raw_post(&fleet[0].url, path, &body);
        assert!((400..500).contains(&direct.status), "{name}: {}", direct.status);
        assert_eq!((through.status, &found), (direct.status, &expected), "{name}");
    }
    let (unknown, body) = post(&fleet[0].url, CHAT, &json!({ "model": "nobody", "messages": user() }));
    assert_eq!((unknown.status, &body["error"]["code"]), (404, &json!("model_not_found")));
    let function = json!({ "name": "f", "parameters": { "type": "object", "properties": {} } });
    let tools = json!([{ "type": "function", "function": function }]);
    let with = |field: &str, value: Value| {
        let mut body = json!({ "model": "m", "messages": user(), "max_tokens": 4 });
        body[field] = value;
        body
    };
    let ask = |prompt: Value| json!({ "model": "m", "prompt": prompt, "max_tokens": 4 });
    let served: [(&str, &str, Value, &str, usize); 7] = [
        ("tools", CHAT, with("tools", tools), "choices", 1),
        ("n = 2", CHAT, with("n", json!(2)), "choices", 2),
        ("a list of prompts", "/v1/completions", ask(json!(["a b", "c d", "e f"])), "choices", 3),
        ("token ids", "/v1/completions", ask(json!([300, 301, 302, 303])), "choices", 1),
        (
            "responses",
            "/v1/responses",
            json!({ "model": "m", "input": "hi", "max_output_tokens": 16, "store": false }),
            "output",
            1,
        ),
        (
            "messages",
            "/v1/messages",
            json!({ "model": "m", "messages": user(), "max_tokens": 4 }),
            "content",
            1,
        ),
        ("tokenize", "/tokenize", json!({ "model": "m", "prompt": "hi" }), "tokens", 1),
    ];
    for (name, path, body, field, least) in served {
        let (head, answer) = post(&fleet[1].url, path, &body);
        assert_eq!(head.status, 200, "{name}: {answer}");
        assert!(answer[field].as_array().is_some_and(|items| items.len() >= least), "{name}: {answer}");
    }
}

/// A stream through `router`, up to its first event.
fn open_stream(router: &Router, tag: u64) -> TcpStream {
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

fn a_client_that_leaves_ends_the_generation(place: &Place, fleet: &[Router]) {
    let generated = place.sum("vllm:generation_tokens_total");
    let stream = open_stream(&fleet[0], 77);
    let running = |n: f64| (place.sum("vllm:num_requests_running") == n).then_some(());
    wait_for("the engine to say that it runs", || running(1.0));
    drop(stream);
    wait_for("the engine to say that it does not", || running(0.0));
    let tokens = place.sum("vllm:generation_tokens_total") - generated;
    assert!(tokens < 2_900.0, "it went on to the end: {tokens} tokens");
    wait_for("the router to have nothing in flight", || (fleet[0].status().inflight == 0).then_some(()));
}

fn a_restart_in_place_is_noticed(place: &mut Place, fleet: &[Router]) {
    let ask = |n: u64| {
        for router in fleet {
            chat(&router.url, &json!([turn("user", text(n, 300))]));
        }
    };
    let old = place.engines.remove(0);
    let url = old.url().to_owned();
    let port = url.rsplit_once(':').unwrap().1.parse().unwrap();
    old.signal("TERM");
    old.ended();
    (100..110).for_each(ask);
    let new = Vllm::start(&place.named, port, ARGS);
    new.wait_until_ready();
    place.engines.insert(0, new);
    for router in fleet {
        wait_for("its new cache generation", || {
            let replicas = router.status().replicas;
            replicas.iter().any(|r| r.url == url && r.epoch >= 1 && r.health == "up").then_some(())
        });
    }
    let picks = || {
        let of = |router: &Router| router.status().replicas.iter().find(|r| r.url == url).unwrap().picks;
        fleet.iter().map(of).sum::<u64>()
    };
    let before = picks();
    (200..240).for_each(ask);
    assert!(picks() > before, "it gets requests again");
}

fn a_kill_in_a_stream_is_told_and_survived(mut place: Place, fleet: &[Router]) {
    let mut stream = open_stream(&fleet[1], 88);
    let running = |engine: &Vllm| engine.metric("vllm:num_requests_running") > 0.0;
    let at = wait_for("who runs it", || place.engines.iter().position(running));
    let victim = place.engines.remove(at);
    victim.signal("KILL");
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(!rest.contains("[DONE]") || rest.contains("\"error\""), "a cut must not look like an end");
    victim.ended();
    for n in 300..306 {
        for router in fleet {
            chat(&router.url, &json!([turn("user", text(n, 300))]));
        }
    }
}
