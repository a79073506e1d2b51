//! Two routers in front of two living llama.cpp servers.

use std::process::Command;

use serde_json::{Value, json};

use super::process::{Router, wait_for};
use super::scenario::{self, CHAT, Load, Place, chat, open_stream, post, rest_of, text, turn};
use super::server::{Server, free_port, named};
use super::skip;

/// `SERVER:MODEL`.
const SETTING: &str = "GRAPEVINE_TEST_LLAMA";

/// Each slot keeps one prompt.
const SLOTS: usize = 4;
const SLOT_TOKENS: usize = 4_096;

/// Six prefixes find room in two engines' slots as long as each stays where it is, but not in one's.
const LOAD: Load = Load {
    prefixes: 6,
    prefix_bytes: 10_500,
    rounds: 8,
    hits: |engine| {
        let cached = engine.metric("llamacpp:prompt_tokens_cached_total");
        (cached, cached + engine.metric("llamacpp:prompt_tokens_total"))
    },
};

fn start(named: &str, port: u16) -> Server {
    let (server, model) = named.split_once(':').expect("GRAPEVINE_TEST_LLAMA is SERVER:MODEL");
    let (slots, context) = (SLOTS.to_string(), (SLOTS * SLOT_TOKENS).to_string());
    let mut command = Command::new(server);
    command
        .args(["-m", model, "--alias", "m", "--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["-np", &slots, "-c", &context, "-t", "1", "-tb", "1", "-fa", "off"])
        // Prompts kept in memory beside the slots would hide what affinity gives.
        .args(["--metrics", "--slots", "--no-webui", "--offline", "--cache-ram", "0"]);
    Server::start(&mut command, port)
}

#[test]
fn a_fleet_before_living_llama_servers_does_what_one_perfect_router_would() {
    let Some(named) = named(SETTING) else { return skip(SETTING) };
    let engines: Vec<_> = (0..2).map(|_| start(&named, free_port())).collect();
    engines.iter().for_each(Server::wait_until_ready);
    let place = Place { engines, load: LOAD };
    place.affinity_is_near_stickiness();
    let fleet = place.fleet("affinity");
    place.is_known(&fleet, "llama.cpp", (SLOTS * SLOT_TOKENS) as u64);
    shapes(&place, &fleet);
    an_image_ejects_nobody(&place, &fleet);
    a_client_that_leaves_ends_the_generation(&place, &fleet);
    a_stopped_server_stalls_its_stream_and_nobody_else(place, &fleet);
}

fn shapes(place: &Place, fleet: &[Router]) {
    let user = || json!([turn("user", "hi")]);
    scenario::are_refused_alike(&place.engines[0], &fleet[0], &scenario::refusals());
    let (slots, _) = post(&fleet[0].url, "/slots/0?action=erase", &json!({}));
    assert_eq!(slots.status, 403, "administration is closed");
    let any = json!({ "model": "any name", "messages": user(), "max_tokens": 4 });
    let ask = |prompt: Value| json!({ "model": "m", "prompt": prompt, "max_tokens": 4 });
    let two = json!({ "model": "m", "messages": user(), "max_tokens": 4, "n": 2 });
    let respond = json!({ "model": "m", "input": "hi", "max_output_tokens": 16 });
    let messages = json!({ "model": "m", "messages": user(), "max_tokens": 4 });
    let served = [
        ("a model that nobody lists", CHAT, any, "choices", 1),
        ("n = 2", CHAT, two, "choices", 2),
        ("a list of prompts", "/v1/completions", ask(json!(["a b", "c d"])), "choices", 2),
        ("token ids", "/v1/completions", ask(json!([300, 301, 302, 303])), "choices", 1),
        ("responses", "/v1/responses", respond, "output", 1),
        ("messages", "/v1/messages", messages, "content", 1),
        ("tokenize", "/tokenize", json!({ "content": "hi" }), "tokens", 1),
    ];
    scenario::are_served(&fleet[1], &served);
}

/// A client's mistake that looks like the engine's.
fn an_image_ejects_nobody(place: &Place, fleet: &[Router]) {
    let image = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBORw0KGgo=" } });
    let ask = json!({ "model": "m", "messages": [{ "role": "user", "content": [image] }] });
    let asked = [("an image", CHAT, ask.to_string().into_bytes())];
    scenario::are_refused_alike(&place.engines[0], &fleet[0], &asked);
    assert!(fleet[0].status().replicas.iter().all(|replica| replica.health == "up"));
}

fn a_client_that_leaves_ends_the_generation(place: &Place, fleet: &[Router]) {
    let stream = open_stream(&fleet[0], 77);
    let processing = |n: f64| (place.sum("llamacpp:requests_processing") == n).then_some(());
    wait_for("the engine to say that it runs", || processing(1.0));
    drop(stream);
    wait_for("the engine to say that it does not", || processing(0.0));
    assert!(place.sum("llamacpp:tokens_predicted_total") < 2_900.0, "it went on to the end");
    wait_for("the router to have nothing in flight", || (fleet[0].status().inflight == 0).then_some(()));
}

/// After SIGTERM it takes no connection any more and holds its streams in silence for half a minute: the
/// router's idle limit ends them, with an error, and everything else goes to the other one.
fn a_stopped_server_stalls_its_stream_and_nobody_else(mut place: Place, fleet: &[Router]) {
    let stream = open_stream(&fleet[1], 88);
    let running = |engine: &Server| engine.metric("llamacpp:requests_processing") > 0.0;
    let at = wait_for("who runs it", || place.engines.iter().position(running));
    let victim = place.engines.remove(at);
    victim.signal("TERM");
    for n in 300..306 {
        for router in fleet {
            chat(&router.url, &json!([turn("user", text(n, 300))]));
        }
    }
    let rest = rest_of(stream);
    assert!(rest.contains("\"error\"") && !rest.contains("[DONE]"), "a stall must not look like an end");
    victim.ended();
}
