//! Clients that are slow, many, or large.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::super::process::{LIMIT, Router, wait_for};
use super::healthy::served_during;
use super::{addr, descriptors, engine, quiet_settings};

/// Slow clients of each kind.
const SLOW: usize = 50;

/// Most that a connection without a request may cost, bytes.
const CONNECTION_BYTES: usize = 32 << 10;

/// The largest body that is taken, as `GRAPEVINE_BODY_LIMIT` is by default.
const BODY_LIMIT: usize = 64 << 20;

fn connect(router: &Router) -> TcpStream {
    let stream = TcpStream::connect(addr(router)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends a byte on each of `clients` now and then, until the router has closed the last of them.
fn drip(mut clients: Vec<TcpStream>) {
    let began = Instant::now();
    while !clients.is_empty() {
        assert!(began.elapsed() < LIMIT, "{} are still connected", clients.len());
        clients.retain_mut(|client| client.write_all(b"x").is_ok());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn slow_clients_are_given_up_and_cost_nobody_else() {
    let mut settings = quiet_settings();
    settings.push(("GRAPEVINE_CLIENT_TIMEOUT", "1s".to_owned()));
    let router = Router::start(&[engine::start()], &settings);
    served_during("slow clients", &router, || {
        let before = descriptors(&router);
        let send = |text: &str| {
            let mut client = connect(&router);
            client.write_all(text.as_bytes()).unwrap();
            client
        };
        let heads = || send("POST /v1/completions HTTP/1.1\r\nhost: r\r\nx: ");
        let bodies = || send("POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: 10\r\n\r\nhalf");
        let stalled: Vec<_> = (0..SLOW).map(|_| bodies()).collect();
        let dripping: Vec<_> = (0..SLOW).map(|_| heads()).collect();
        let unread: Vec<_> =
            (0..SLOW / 5).map(|_| send("GET /v1/torrent HTTP/1.1\r\nhost: r\r\n\r\n")).collect();
        drip(dripping);
        for mut client in stalled {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
        // The sockets of those who read nothing, and of their engines.
        wait_for("all descriptors to be back", || (descriptors(&router) <= before + 24).then_some(()));
        wait_for("nobody but the healthy in flight", || (router.status().inflight <= 4).then_some(()));
        drop(unread);
    });
}

/// Lets this process open as many descriptors as it may: how many.
fn raise_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize)
}

/// `count` connections, every other one with the beginning of a request.
fn connections(count: usize) {
    let router = Router::start(&[engine::start()], &quiet_settings());
    let (memory_before, before) = (router.process.memory("VmRSS"), descriptors(&router));
    served_during("connections", &router, || {
        let mut clients: Vec<_> = (0..count).map(|_| connect(&router)).collect();
        for client in clients.iter_mut().step_by(2) {
            client.write_all(b"GET /v1/x HTTP/1.1\r\nhost: r\r\n").unwrap();
        }
        wait_for("all to be taken", || (descriptors(&router) >= before + count).then_some(()));
        let each = router.process.memory("VmRSS").saturating_sub(memory_before) / count;
        println!("{count} connections: {each} bytes each");
        assert!(each < CONNECTION_BYTES, "{each} bytes each");
        for client in clients.iter_mut().step_by(count / 20 * 2) {
            client.write_all(b"connection: close\r\n\r\n").unwrap();
            let mut answer = [0; 12];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200", "whoever finishes is served");
        }
    });
    wait_for("all descriptors to be back", || (descriptors(&router) <= before + 8).then_some(()));
}

#[test]
fn ten_thousand_connections_keep_nobody_out() {
    // Of the router's descriptors half are for clients, and the healthy need some.
    let most = (raise_limit() / 2).saturating_sub(100);
    if most < 10_000 {
        println!("only {most} connections: this machine allows no more descriptors");
    }
    connections(most.min(10_000));
}

/// A body of `length` bytes that is JSON.
fn body_of(length: usize) -> Vec<u8> {
    let (head, tail) = (r#"{"model":"m","prompt":""#, r#""}"#);
    [head.as_bytes(), &vec![b'x'; length - head.len() - tail.len()], tail.as_bytes()].concat()
}

/// Sends a body: the answer's status line.
fn upload(router: &Router, body: &[u8]) -> String {
    let mut client = connect(router);
    let head = format!("POST /v1/completions HTTP/1.1\r\nhost: r\r\ncontent-length: {}\r\n\r\n", body.len());
    client.write_all(head.as_bytes()).unwrap();
    // It may be refused before it is sent whole.
    let _ = client.write_all(body);
    let mut answer = [0; 12];
    client.read_exact(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// `count` clients, each of which sends the largest body there may be, and one byte more.
fn bodies(count: usize) {
    let router = Router::start(&[engine::start()], &quiet_settings());
    let (largest, beyond) = (body_of(BODY_LIMIT), body_of(BODY_LIMIT + 1));
    served_during("bodies", &router, || {
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    assert_eq!(upload(&router, &largest), "HTTP/1.1 200");
                    assert_eq!(upload(&router, &beyond), "HTTP/1.1 413");
                });
            }
        });
    });
    let peak = router.process.memory("VmHWM");
    println!("{count} bodies of 64 MiB at a time: {} MiB at most", peak >> 20);
    assert!(peak < (count + 1) * 2 * BODY_LIMIT, "{} MiB", peak >> 20);
}

#[test]
fn bodies_of_64_mib_pass_and_delay_nobody() {
    bodies(2);
}
