//! How late the events of streams are while large bodies are read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use super::super::process::Router;
use super::{addr, engine, quiet_settings};

/// Streams at a time, fifty events a second each.
const STREAMS: usize = 32;

/// Length of a body's text: an agent's history with files in it.
const BODY_BYTES: usize = 16 << 20;

/// How long each row is measured.
const SPAN: Duration = Duration::from_secs(10);

/// Delays of the events of one stream, microseconds, until it is `over`.
fn delays(router: &Router, over: &AtomicBool) -> Vec<u64> {
    let mut stream = TcpStream::connect(addr(router)).unwrap();
    stream.write_all(b"GET /v1/clock HTTP/1.1\r\nhost: r\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut delays = Vec::new();
    while !over.load(Relaxed) {
        let line = lines.next().unwrap().unwrap();
        if let Some(sent) = line.strip_prefix("data: ") {
            delays.push(engine::now_micros().saturating_sub(sent.parse().unwrap()));
        }
    }
    delays
}

/// Sends a chat of 16 MiB after the other until it is `over`: how many.
fn upload(router: &Router, over: &AtomicBool) -> usize {
    let text = "He said \\\"go on\\\", and so I did.\\n".repeat(BODY_BYTES / 33);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut stream = TcpStream::connect(addr(router)).unwrap();
    let mut sent = 0;
    while !over.load(Relaxed) {
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = [0; 4_096];
        assert!(stream.read(&mut answer).unwrap() > 0 && answer.starts_with(b"HTTP/1.1 200"));
        sent += 1;
    }
    sent
}

/// Delays of all events while `uploaders` send large bodies, in order, and how many bodies there were.
fn measure(router: &Router, uploaders: usize) -> (Vec<u64>, usize) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let streams: Vec<_> = (0..STREAMS).map(|_| scope.spawn(|| delays(router, &over))).collect();
        let uploads: Vec<_> = (0..uploaders).map(|_| scope.spawn(|| upload(router, &over))).collect();
        thread::sleep(SPAN);
        over.store(true, Relaxed);
        let mut delays: Vec<u64> = streams.into_iter().flat_map(|stream| stream.join().unwrap()).collect();
        delays.sort_unstable();
        (delays, uploads.into_iter().map(|upload| upload.join().unwrap()).sum())
    })
}

#[test]
#[ignore = "measures"]
fn events_while_large_bodies_are_read() {
    let router = Router::start(&[engine::start()], &quiet_settings());
    for uploaders in [0, 1, 2, 4] {
        let (delays, bodies) = measure(&router, uploaders);
        let at = |share: usize| delays[(delays.len() - 1) * share / 1_000] as f64 / 1_000.0;
        println!(
            "{uploaders} clients, {bodies} bodies: {} events, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms",
            delays.len(),
            at(500),
            at(990),
            at(999)
        );
    }
}
