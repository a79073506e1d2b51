//! What a request costs in memory while it waits for its engine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use super::process::{Router, wait_for};

/// Bodies in flight at the same time.
const BODIES: usize = 16;
const BODY_BYTES: usize = 8 << 20;

/// Streams open at the same time.
const STREAMS: usize = 200;

/// Most that an open stream may cost, bytes: read and write buffers of two connections, and their tasks.
const STREAM_BYTES: usize = 160 << 10;

/// Looks at engines would only be in the way.
fn alone(replica: &str) -> Router {
    let settings =
        [("GRAPEVINE_HEALTH_INTERVAL", "1h".to_owned()), ("GRAPEVINE_METRICS_INTERVAL", "0s".to_owned())];
    Router::start(&[replica.to_owned()], &settings)
}

fn connect(router: &Router) -> TcpStream {
    TcpStream::connect(router.url.trim_start_matches("http://")).unwrap()
}

fn head(length: usize) -> String {
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// Growth of a router's memory, at its most, while that many bodies wait for their engine, which hangs. Their
/// clients leave then, and as many come again, `rounds` times.
fn of_bodies(count: usize, bytes: usize, rounds: usize) -> usize {
    // It takes connections, and nothing of what is sent on them.
    let engine = TcpListener::bind("127.0.0.1:0").unwrap();
    let router = alone(&format!("http://{}", engine.local_addr().unwrap()));
    let body = format!("{{\"model\":\"mock-model\",\"prompt\":\"{}\"}}", "x".repeat(bytes));
    let before = router.process.memory("VmRSS");
    for round in 1..=rounds {
        let mut clients = Vec::new();
        for _ in 0..count {
            let mut client = connect(&router);
            client.write_all(head(body.len()).as_bytes()).unwrap();
            client.write_all(body.as_bytes()).unwrap();
            clients.push(client);
        }
        let sent = (round * count) as u64;
        wait_for("all to be on their way to the engine", || (router.status().lookups == sent).then_some(()));
        drop(clients);
        wait_for("nothing in flight", || (router.status().inflight == 0).then_some(()));
    }
    router.process.memory("VmHWM").saturating_sub(before)
}

/// The engine's side of the next request; what the router asks for itself is answered.
fn asked(engine: &TcpListener, request: &mut [u8]) -> TcpStream {
    loop {
        let (mut served, _) = engine.accept().unwrap();
        let length = served.read(request).unwrap();
        if !request[..length].starts_with(b"GET ") {
            return served;
        }
        let well = request.starts_with(b"GET /health");
        let status = if well { "200 OK" } else { "404 Not Found" };
        let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        served.write_all(answer.as_bytes()).unwrap();
    }
}

/// Growth of a router's memory by each of that many streams that have begun and say nothing.
fn of_streams(count: usize) -> usize {
    let engine = TcpListener::bind("127.0.0.1:0").unwrap();
    let router = alone(&format!("http://{}", engine.local_addr().unwrap()));
    let body = "{\"model\":\"mock-model\",\"prompt\":\"hi\",\"stream\":true}";
    let before = router.process.memory("VmRSS");
    let mut held = Vec::new();
    for _ in 0..count {
        let mut client = connect(&router);
        client.write_all(head(body.len()).as_bytes()).unwrap();
        client.write_all(body.as_bytes()).unwrap();
        let mut request = [0; 2_048];
        let mut served = asked(&engine, &mut request);
        let begun =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        served.write_all(format!("{begun}9\r\ndata: 1\n\n\r\n").as_bytes()).unwrap();
        assert!(client.read(&mut request).unwrap() > 0);
        held.push((client, served));
    }
    assert_eq!(router.status().inflight, count);
    router.process.memory("VmRSS").saturating_sub(before) / count
}

#[test]
fn a33_bodies_in_flight_are_in_memory_once_and_go_with_their_clients() {
    // The allocator keeps some of what the first ones gave back; what stayed held would be three times as much.
    let (grown, once) = (of_bodies(BODIES, BODY_BYTES, 3), BODIES * BODY_BYTES);
    assert!(grown < 2 * once, "{} MiB for {} MiB of bodies", grown >> 20, once >> 20);
}

#[test]
fn an_open_stream_costs_little() {
    let each = of_streams(STREAMS);
    assert!(each < STREAM_BYTES, "{} KiB each", each >> 10);
}

#[test]
#[ignore = "measures, and takes 2 GiB: docs/operations.md"]
fn memory_at_full_size() {
    println!("100 bodies of 20 MB in flight, three times: {} MB", of_bodies(100, 20_000_000, 3) / 1_000_000);
    println!("an idle stream, of 2,000: {} KiB", of_streams(2_000) >> 10);
}
