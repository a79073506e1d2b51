//! Two routers in front of two living vLLMs with small caches. One test, since a vLLM takes minutes to start.

use serde_json::{Value, json};

use super::process::{Router, wait_for};
use super::scenario::{self, CHAT, Load, Place, chat, open_stream, post, rest_of, text, turn};
use super::server::{Server, free_port, named};
use super::{skip, vllm};

/// 640 blocks of 32 tokens: half of the prefixes fit, all of them do not. More than one request's context.
const ARGS: &[&str] = &["--num-gpu-blocks-override", "640", "--max-model-len", "4096", "--max-num-seqs", "4"];

/// Prefixes of about 1,900 tokens each.
const LOAD: Load = Load {
    prefixes: 16,
    prefix_bytes: 10_500,
    rounds: 8,
    hits: |engine| {
        (engine.metric("vllm:prefix_cache_hits_total"), engine.metric("vllm:prefix_cache_queries_total"))
    },
};

#[test]
fn a_fleet_before_living_engines_does_what_one_perfect_router_would() {
    let Some(named) = named(vllm::SETTING).filter(|named| !named.starts_with("http://")) else {
        return skip(vllm::SETTING);
    };
    let engines: Vec<_> = (0..2).map(|_| vllm::start(&named, free_port(), ARGS)).collect();
    engines.iter().for_each(Server::wait_until_ready);
    let mut place = Place { engines, load: LOAD };
    place.affinity_is_near_stickiness();
    let fleet = place.fleet("affinity");
    place.is_known(&fleet, "vllm", 640 * vllm::BLOCK);
    shapes(&place, &fleet);
    a_client_that_leaves_ends_the_generation(&place, &fleet);
    a_restart_in_place_is_noticed(&mut place, &fleet, &named);
    a_kill_in_a_stream_is_told_and_survived(place, &fleet);
}

/// Whatever an engine answers, a client gets: errors to the byte, other answers in their shape.
fn shapes(place: &Place, fleet: &[Router]) {
    let user = || json!([turn("user", "hi")]);
    let none = json!({ "model": "m", "messages": user(), "n": 0 });
    let mut refused = scenario::refusals();
    refused.push(("n = 0", CHAT, none.to_string().into_bytes()));
    refused.push(("no such path", "/v1/nothing", b"{}".to_vec()));
    scenario::are_refused_alike(&place.engines[0], &fleet[0], &refused);
    let (unknown, said) = post(&fleet[0].url, CHAT, &json!({ "model": "nobody", "messages": user() }));
    assert_eq!((unknown.status, &said["error"]["code"]), (404, &json!("model_not_found")));
    let function = json!({ "name": "f", "parameters": { "type": "object", "properties": {} } });
    let tools = json!([{ "type": "function", "function": function }]);
    let with = |member: &str, value: Value| {
        let mut body = json!({ "model": "m", "messages": user(), "max_tokens": 4 });
        body[member] = value;
        body
    };
    let ask = |prompt: Value| json!({ "model": "m", "prompt": prompt, "max_tokens": 4 });
    let respond = json!({ "model": "m", "input": "hi", "max_output_tokens": 16, "store": false });
    let tokenize = json!({ "model": "m", "prompt": "hi" });
    let served = [
        ("tools", CHAT, with("tools", tools), "choices", 1),
        ("n = 2", CHAT, with("n", json!(2)), "choices", 2),
        ("a list of prompts", "/v1/completions", ask(json!(["a b", "c d", "e f"])), "choices", 3),
        ("token ids", "/v1/completions", ask(json!([300, 301, 302, 303])), "choices", 1),
        ("responses", "/v1/responses", respond, "output", 1),
        ("messages", "/v1/messages", with("max_tokens", json!(4)), "content", 1),
        ("tokenize", "/tokenize", tokenize, "tokens", 1),
    ];
    scenario::are_served(&fleet[1], &served);
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

fn a_restart_in_place_is_noticed(place: &mut Place, fleet: &[Router], named: &str) {
    let ask = |n: u64| {
        for router in fleet {
            chat(&router.url, &json!([turn("user", text(n, 300))]));
        }
    };
    let old = place.engines.remove(0);
    let (url, port) = (old.url().to_owned(), old.port());
    old.signal("TERM");
    old.ended();
    (100..110).for_each(ask);
    let new = vllm::start(named, port, ARGS);
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
    let stream = open_stream(&fleet[1], 88);
    let running = |engine: &Server| engine.metric("vllm:num_requests_running") > 0.0;
    let at = wait_for("who runs it", || place.engines.iter().position(running));
    let victim = place.engines.remove(at);
    victim.signal("KILL");
    let rest = rest_of(stream);
    assert!(!rest.contains("[DONE]") || rest.contains("\"error\""), "a cut must not look like an end");
    victim.ended();
    for n in 300..306 {
        for router in fleet {
            chat(&router.url, &json!([turn("user", text(n, 300))]));
        }
    }
}
