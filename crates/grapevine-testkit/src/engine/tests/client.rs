//! What the tests of the engine speak HTTP with.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::super::{Engine, EngineConfig, EngineHandle, Stats};

/// Longer than anything should take on a busy machine: a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) async fn start(config: EngineConfig) -> EngineHandle {
    Engine::start(config).await.unwrap()
}

pub(super) async fn instant() -> EngineHandle {
    start(EngineConfig::instant()).await
}

/// Waits until the counters say so.
pub(super) async fn until(engine: &EngineHandle, what: &str, holds: impl Fn(&Stats) -> bool) {
    let wait = async {
        while !holds(&engine.stats()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        panic!("not {what}: {:?}", engine.stats());
    }
}

pub(super) fn chat(content: &str) -> Value {
    json!({ "model": "mock-model", "messages": [{ "role": "user", "content": content }], "max_tokens": 4 })
}

/// `base` with more fields.
pub(super) fn with(mut base: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

/// An answer, read to the connection's end.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) bytes: Vec<u8>,
    /// How the connection ended, if not with a plain end.
    pub(super) error: Option<std::io::ErrorKind>,
}

impl Raw {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    pub(super) fn status(&self) -> u16 {
        self.text().get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(super) fn head(&self) -> String {
        self.text().split("\r\n\r\n").next().unwrap_or_default().to_ascii_lowercase()
    }

    /// The body, chunks put together; `None` when its end is missing.
    pub(super) fn body(&self) -> Option<Vec<u8>> {
        let start = self.bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
        let rest = &self.bytes[start..];
        if self.head().contains("transfer-encoding: chunked") {
            return dechunk(rest);
        }
        let head = self.head();
        let length: usize = head.lines().find_map(|l| l.strip_prefix("content-length: "))?.parse().ok()?;
        (rest.len() == length).then(|| rest.to_vec())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body().expect("a whole body")).unwrap()
    }

    /// The data of its events, whole or not.
    pub(super) fn events(&self) -> Vec<String> {
        self.text().lines().filter_map(|line| line.strip_prefix("data: ")).map(str::to_owned).collect()
    }
}

fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        let data = rest.get(end + 2..end + 2 + size)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(data);
        rest = rest.get(end + 4 + size..)?;
    }
}

/// A connection that has sent a request.
pub(super) struct Sent(pub(super) TcpStream);

impl Sent {
    /// Reads until `text` has come.
    pub(super) async fn read_until(&mut self, text: &str) -> String {
        let mut got = Vec::new();
        let read = async {
            while !String::from_utf8_lossy(&got).contains(text) {
                let byte = self.0.read_u8().await.expect("more to come");
                got.push(byte);
            }
        };
        tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| panic!("no {text}"));
        String::from_utf8(got).unwrap()
    }

    /// Reads to the end of the connection.
    pub(super) async fn finish(mut self) -> Raw {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.0.read_to_end(&mut bytes)).await.expect("an end");
        Raw { bytes, error: read.err().map(|error| error.kind()) }
    }
}

/// Sends a request on a connection of its own.
pub(super) async fn send(
    engine: &EngineHandle,
    method: &str,
    path: &str,
    headers: &str,
    body: &[u8],
) -> Sent {
    let mut stream = TcpStream::connect(engine.addr()).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: engine\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
    Sent(stream)
}

pub(super) async fn post_open(engine: &EngineHandle, path: &str, body: &Value) -> Sent {
    send(engine, "POST", path, "content-type: application/json\r\n", body.to_string().as_bytes()).await
}

pub(super) async fn post(engine: &EngineHandle, path: &str, body: &Value) -> Raw {
    post_open(engine, path, body).await.finish().await
}

pub(super) async fn get(engine: &EngineHandle, path: &str) -> Raw {
    send(engine, "GET", path, "", b"").await.finish().await
}
