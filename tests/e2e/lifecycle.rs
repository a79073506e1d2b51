//! Start and end.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::process::{Engine, Process, Router, chat, exchange, free_tcp, get, wait_for};

fn setting(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_owned())
}

#[test]
fn a52_a123_every_mistake_in_the_configuration_is_named_at_once() {
    let settings = [
        setting("GRAPEVINE_REPLICAS", "10.0.0.1:8000"),
        setting("GRAPEVINE_IDLE_TIMEOUT", "30"),
        setting("GRAPEVINE_POLICI", "random"),
        setting("GRAPEVINE_GOSSIP_LISTEN", "0.0.0.0:7946"),
    ];
    let mut process = Process::start(&["serve"], &settings);
    assert_eq!(process.end().code(), Some(64));
    let log = process.log();
    for named in
        ["GRAPEVINE_REPLICAS", "GRAPEVINE_IDLE_TIMEOUT", "GRAPEVINE_POLICY", "GRAPEVINE_CLUSTER_SECRET"]
    {
        assert!(log.contains(named), "{named} in\n{log}");
    }
}

#[test]
fn a_router_without_replicas_does_not_start() {
    let mut process = Process::start(&["serve"], &[]);
    assert_eq!(process.end().code(), Some(64));
    assert!(process.log().contains("GRAPEVINE_REPLICAS"));
}

#[test]
fn a45_a_router_starts_before_its_engines_and_says_that_it_has_none() {
    let addr = free_tcp();
    let settings = [setting("GRAPEVINE_HEALTH_INTERVAL", "200ms")];
    let router = Router::start_unready(Router::command(), &[format!("http://{addr}")], &settings);
    wait_for("the engine to be missed", || (get(&format!("{}/readyz", router.admin)).0 == 503).then_some(()));
    let (head, body) = chat(&router.url, &json!([{"role": "user", "content": "hi"}]));
    assert_eq!(head.status, 503);
    assert!(head.header("retry-after").is_some());
    let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (&error["error"]["type"], &error["error"]["code"]),
        (&json!("router_error"), &json!("no_replica"))
    );
    let _engine = Engine::start(&["--listen", &addr]);
    wait_for("the engine to be found", || {
        (chat(&router.url, &json!([{"role": "user", "content": "hi"}])).0.status == 200).then_some(())
    });
}

#[test]
fn a114_sigterm_lets_a_stream_end_and_exits_0() {
    let engine = Engine::start(&["--decode-ms-per-token", "50"]);
    let mut router = Router::start(std::slice::from_ref(&engine.url), &[]);
    let mut stream = TcpStream::connect(router.url.trim_start_matches("http://")).unwrap();
    let body = json!({"model": "mock-model", "stream": true, "max_tokens": 30,
        "messages": [{"role": "user", "content": "count"}]})
    .to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json";
    let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut first = [0; 512];
    assert!(stream.read(&mut first).unwrap() > 0);
    router.process.signal("TERM");
    wait_for("readiness to fall", || (get(&format!("{}/readyz", router.admin)).0 != 200).then_some(()));
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    assert!(rest.contains("data: [DONE]"), "the stream came to its end:\n{rest}");
    assert_eq!(router.process.end().code(), Some(0));
}

#[test]
fn a22_a_killed_engine_costs_at_most_what_it_was_doing() {
    let engines: Vec<Engine> = (0..2).map(|_| Engine::start(&["--base-ms", "0"])).collect();
    let router = Router::start(&[engines[0].url.clone(), engines[1].url.clone()], &[]);
    let ask =
        |i: usize| chat(&router.url, &json!([{"role": "user", "content": format!("question {i}")}])).0.status;
    for i in 0..10 {
        assert_eq!(ask(i), 200);
    }
    engines[0].process.signal("KILL");
    for i in 10..40 {
        assert_eq!(ask(i), 200, "request {i}");
    }
}

#[test]
fn a120_engine_admin_paths_are_closed() {
    let engine = Engine::start(&[]);
    let router = Router::start(std::slice::from_ref(&engine.url), &[]);
    for path in ["/reset_prefix_cache", "/flush_cache", "/sleep", "//flush_cache", "/%66lush_cache"] {
        let (head, _) = exchange(&format!("{}{path}", router.url), "POST", &[], b"");
        assert_eq!(head.status, 403, "{path}");
    }
}
