//! A request's whole way over loopback, with client, router and engine on one thread. `direct` is the client and
//! the engine alone: what is above it is the router's.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use grapevine_bench::cpu::CpuTime;
use grapevine_bench::text::{chat_body, text};
use grapevine_node::config::{Config, ReplicaSpec};
use grapevine_node::{App, Deps};
use grapevine_route::Policy;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

const SIZES: [usize; 3] = [1 << 10, 16 << 10, 128 << 10];

/// Chats of each size, which share their first quarter. Asked in turn, so that none is in the nearest cache.
const CHATS: u64 = 100;

/// What the engine says to everything.
const ANSWER: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant",
"content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}"#;

fn http(c: &mut Criterion<CpuTime>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let engine = runtime.block_on(engine());
    let targets = [
        ("direct", engine),
        ("round-robin", runtime.block_on(router(engine, Policy::RoundRobin))),
        ("affinity", runtime.block_on(router(engine, Policy::Affinity))),
    ];
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let mut group = c.benchmark_group("http");
    for bytes in SIZES {
        let bodies: Vec<Bytes> = (0..CHATS).map(|chat| body(chat, bytes)).collect();
        for (name, addr) in targets {
            let url = format!("http://{addr}/v1/chat/completions");
            let mut turn = bodies.iter().cycle();
            let id = BenchmarkId::new(name, format!("{}KiB", bytes >> 10));
            group.bench_function(id, |b| b.iter(|| ask(&runtime, &client, &url, turn.next())));
        }
    }
    group.finish();
}

/// A chat, not streamed.
fn body(chat: u64, bytes: usize) -> Bytes {
    let body = chat_body(&text(1, bytes / 4), &text(chat + 2, bytes * 3 / 4));
    String::from_utf8(body).expect("text").replace(r#""stream":true"#, r#""stream":false"#).into()
}

fn ask(runtime: &Runtime, client: &reqwest::Client, url: &str, body: Option<&Bytes>) {
    let request =
        client.post(url).header(CONTENT_TYPE, "application/json").body(body.cloned().unwrap_or_default());
    let answered = runtime.block_on(async { request.send().await?.error_for_status()?.bytes().await });
    assert_eq!(answered.expect("an answer"), ANSWER);
}

/// An engine that reads the request and answers at once.
async fn engine() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let addr = listener.local_addr().expect("its address");
    let answer = |_: Bytes| async { ([(CONTENT_TYPE, "application/json")], ANSWER) };
    let limit = axum::extract::DefaultBodyLimit::disable();
    tokio::spawn(axum::serve(listener, axum::Router::new().fallback(answer).layer(limit)).into_future());
    addr
}

/// A router before it, alone.
async fn router(engine: SocketAddr, policy: Policy) -> SocketAddr {
    let replica = ReplicaSpec::new("engine", format!("http://{engine}"));
    let config = Config { policy, ..Config::local("bench", vec![replica]) };
    let app = App::build(config, Deps::default()).await.expect("a router");
    let addr = app.addresses().front;
    tokio::spawn(app.run(std::future::pending()));
    addr
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime).sample_size(30).warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = http
}
criterion_main!(benches);
