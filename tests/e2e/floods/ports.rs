//! The admin port, for whoever can reach it and has no token.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::super::process::{Router, exchange, get, wait_for};
use super::healthy::served_during;
use super::{descriptors, engine, quiet_settings};

const TOKEN: &str = "a token that is long enough";

/// More than the listener takes at a time, and not more than the kernel lets wait beside them.
const CONNECTIONS: usize = 1_100;

/// What is behind the token.
const GUARDED: [(&str, &str); 9] = [
    ("GET", "/metrics"),
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/events"),
    ("GET", "/api/v1/decisions"),
    ("GET", "/api/v1/replicas"),
    ("POST", "/api/v1/replicas"),
    ("POST", "/api/v1/replicas/r1/drain"),
    ("DELETE", "/api/v1/replicas/r1"),
    ("POST", "/api/v1/explain"),
];

#[test]
fn the_admin_port_without_its_token_gives_nothing_and_costs_little() {
    let mut settings = quiet_settings();
    settings.push(("GRAPEVINE_ADMIN_TOKEN", TOKEN.to_owned()));
    let router = Router::start(&[engine::start()], &settings);
    let (before, memory_before) = (descriptors(&router), router.process.memory("VmRSS"));
    served_during("admin port", &router, || {
        for (method, path) in GUARDED {
            for authorization in ["", "Bearer wrong", "Basic YTpi"] {
                let url = format!("{}{path}", router.admin);
                let (head, body) = exchange(&url, method, &[("authorization", authorization)], b"{}");
                let text = String::from_utf8_lossy(&body);
                assert_eq!(
                    (head.status, text.contains("GRAPEVINE_ADMIN_TOKEN")),
                    (401, true),
                    "{path}: {text}"
                );
            }
        }
        let admin = router.admin.trim_start_matches("http://");
        let silent: Vec<_> = (0..CONNECTIONS).map(|_| TcpStream::connect(admin).unwrap()).collect();
        router.process.line(|line| line.contains("further ones wait").then_some(()));
        assert!(descriptors(&router) < before + CONNECTIONS, "they do not take those of clients");
        let grown = router.process.memory("VmRSS").saturating_sub(memory_before);
        assert!(grown < 64 << 20, "{} MiB", grown >> 20);
        drop(silent);
    });
    wait_for("it to answer again", || (get(&format!("{}/readyz", router.admin)).0 == 200).then_some(()));
}

#[test]
fn whoever_connects_to_the_admin_port_and_floods_it_is_answered_in_turn() {
    let mut settings = quiet_settings();
    settings.push(("GRAPEVINE_ADMIN_TOKEN", TOKEN.to_owned()));
    let router = Router::start(&[engine::start()], &settings);
    served_during("admin requests", &router, || {
        let mut client = TcpStream::connect(router.admin.trim_start_matches("http://")).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: r\r\n\r\n".repeat(100);
        let refused = b"HTTP/1.1 401";
        for _ in 0..20 {
            client.write_all(request.as_bytes()).unwrap();
            let (mut answers, mut piece) = (Vec::new(), [0; 4_096]);
            while answers.windows(refused.len()).filter(|window| window == refused).count() < 100 {
                let read = client.read(&mut piece).unwrap();
                assert_ne!(read, 0);
                answers.extend_from_slice(&piece[..read]);
            }
        }
    });
}
