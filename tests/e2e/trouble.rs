//! Engines that hang, descriptors that run out, surroundings that mislead.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;

use super::process::{Engine, LIMIT, Router, binary, chat, get, wait_for};

fn quick(count: usize) -> Vec<Engine> {
    (0..count).map(|_| Engine::start(&["--base-ms", "0", "--prefill-us-per-block", "0"])).collect()
}

fn urls(engines: &[Engine]) -> Vec<String> {
    engines.iter().map(|engine| engine.url.clone()).collect()
}

fn setting(name: &'static str, value: &str) -> (&'static str, String) {
    (name, value.to_owned())
}

/// Chat requests with prompts of their own, all at once: status and duration of each.
fn ask_at_once(router: &Router, count: usize, round: usize) -> Vec<(u16, Duration)> {
    let client = grapevine_testkit::load::http_client(count, LIMIT).unwrap();
    let url = format!("{}/v1/chat/completions", router.url);
    let ask = |i: usize| {
        let messages = json!([{"role": "user", "content": format!("round {round}, question {i}")}]);
        let body = json!({"model": "mock-model", "messages": messages, "max_tokens": 2}).to_string();
        let request = client.post(&url).header("content-type", "application/json").body(body);
        async move {
            let began = Instant::now();
            let status = request.send().await.map_or(0, |answer| answer.status().as_u16());
            (status, began.elapsed())
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(join_all((0..count).map(ask)))
}

fn health_of(router: &Router, replica: usize) -> String {
    router.status().replicas[replica].health.clone()
}

/// As real engines do: what reached the socket in time is read, however late its owner wakes.
#[test]
fn a_stopped_engine_reads_what_came_before_its_connections_were_idle_for_too_long() {
    const IDLE: Duration = Duration::from_millis(800);
    let engine = Engine::start(&["--keep-alive-idle-ms", "800"]);
    let mut stream = TcpStream::connect(engine.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut ask = || {
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        stream.try_clone().unwrap()
    };
    let read_status = |mut stream: TcpStream| {
        let mut answer = [0; 256];
        let length = stream.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..length.min(15)]).into_owned()
    };
    assert_eq!(read_status(ask()), "HTTP/1.1 200 OK");
    engine.process.signal("STOP");
    let asked = ask();
    std::thread::sleep(2 * IDLE);
    engine.process.signal("CONT");
    assert_eq!(read_status(asked), "HTTP/1.1 200 OK");
}

#[test]
fn a20_a_stopped_engine_hurts_nobody_else_and_comes_back() {
    let engines = quick(3);
    let settings = [
        setting("GRAPEVINE_POLICY", "round-robin"),
        setting("GRAPEVINE_FIRST_BYTE_TIMEOUT", "3s"),
        setting("GRAPEVINE_HEALTH_INTERVAL", "200ms"),
        setting("GRAPEVINE_HEALTH_TIMEOUT", "300ms"),
        setting("GRAPEVINE_METRICS_INTERVAL", "0s"),
    ];
    let router = Router::start(&urls(&engines), &settings);
    assert!(ask_at_once(&router, 9, 0).iter().all(|(status, _)| *status == 200));
    engines[0].process.signal("STOP");
    let answers = ask_at_once(&router, 30, 1);
    let (good, late): (Vec<_>, Vec<_>) = answers.iter().partition(|(status, _)| *status == 200);
    assert!(late.iter().all(|(status, _)| *status == 504), "{answers:?}");
    assert!(late.len() <= 10, "those that were sent there, by a stated limit: {answers:?}");
    let slowest = good.iter().map(|(_, took)| took).max();
    assert!(slowest < late.iter().map(|(_, took)| took).min(), "none waited for those: {answers:?}");
    wait_for("it to count as unreachable", || (health_of(&router, 0) == "unreachable").then_some(()));
    assert!(ask_at_once(&router, 20, 2).iter().all(|(status, _)| *status == 200), "it gets nothing");
    assert_eq!(router.status().replicas[0].inflight, 0, "and holds nothing");
    engines[0].process.signal("CONT");
    wait_for("it to be back", || (health_of(&router, 0) == "up").then_some(()));
    let before = engines[0].stats().requests;
    wait_for("it to get requests", || {
        assert!(ask_at_once(&router, 6, 3).iter().all(|(status, _)| *status == 200));
        (engines[0].stats().requests > before).then_some(())
    });
    assert_eq!(router.status().replicas[0].epoch, 0, "it kept its cache");
}

#[test]
fn a35_short_of_descriptors_it_serves_whom_it_has_and_lets_the_others_wait() {
    let engines = quick(1);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 128 && exec \"$0\" serve", &binary()]);
    let settings = [setting("GRAPEVINE_HEALTH_INTERVAL", "100ms")];
    let router = Router::start_with(command, &urls(&engines), &settings);
    router.process.line(|line| line.contains("file descriptors").then_some(()));
    let addr = router.url.trim_start_matches("http://").to_owned();
    // Half of them get in, and the others fit into the kernel's queue.
    let mut clients: Vec<_> = (0..120).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    router.process.line(|line| line.contains("further ones wait").then_some(()));
    let (before, began) = (router.process.cpu_ticks(), Instant::now());
    wait_for("a second", || (began.elapsed() >= Duration::from_secs(1)).then_some(()));
    let spent = router.process.cpu_ticks() - before;
    assert!(spent < 50, "{spent} hundredths of a second of computing while there was nothing to do");
    let request = "GET /v1/models?x HTTP/1.1\r\nhost: r\r\n\r\n";
    clients[0].write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    clients[0].read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200", "who is in is served");
    clients.clear();
    let question = json!([{"role": "user", "content": "hi"}]);
    wait_for("everybody to be served again", || (chat(&router.url, &question).0.status == 200).then_some(()));
    let status = router.status();
    assert_eq!((status.replicas[0].health.as_str(), status.replicas[0].epoch), ("up", 0));
    assert_eq!(get(&format!("{}/readyz", router.admin)).0, 200);
}

#[test]
fn a36_a37_proxies_of_the_environment_are_for_others() {
    let engines = quick(1);
    for (name, value) in [("NO_PROXY", ""), ("NO_PROXY", "10.0.0.0/8")] {
        let nobody = "http://127.0.0.1:9";
        let settings = [
            setting("HTTP_PROXY", nobody),
            setting("http_proxy", nobody),
            setting("HTTPS_PROXY", nobody),
            setting("ALL_PROXY", nobody),
            setting(name, value),
            setting("GRAPEVINE_HEALTH_INTERVAL", "100ms"),
        ];
        let router = Router::start(&urls(&engines), &settings);
        assert_eq!(chat(&router.url, &json!([{"role": "user", "content": "hi"}])).0.status, 200);
        assert_eq!(health_of(&router, 0), "up");
    }
}

#[test]
fn a112_a_collector_that_does_not_answer_holds_up_no_end() {
    let engines = quick(1);
    let collector = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let settings =
        [setting("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), setting("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")];
    let mut router = Router::start(&urls(&engines), &settings);
    assert_eq!(chat(&router.url, &json!([{"role": "user", "content": "hi"}])).0.status, 200);
    router.process.signal("TERM");
    assert_eq!(router.process.end().code(), Some(0), "long before the exporter's own limit");
    drop(collector);
}
