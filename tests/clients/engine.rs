//! An engine that plays back what a real one answered.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

macro_rules! recorded {
    ($name:literal) => {
        include_bytes!(concat!("recorded/", $name, ".raw"))
    };
}

/// One event of a stream that never ends.
const ENDLESS: &str = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"endless\",\
    \"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\n\n";

const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Starts it on a free port; it runs as long as the test's process.
pub(crate) fn start() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    addr
}

/// Recorded answers end their connection, so there is one request on each.
fn serve(mut stream: TcpStream) {
    let Some((head, body)) = request(&mut stream) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default();
    if body.contains("\"endless\"") {
        return endless(&mut stream);
    }
    if body.contains("\"gone\"") {
        return;
    }
    let _ = stream.write_all(answer(path, &body));
}

fn answer(path: &str, body: &str) -> &'static [u8] {
    let has = |text: &str| body.replace(' ', "").contains(text);
    let streamed = has("\"stream\":true");
    match path {
        _ if has("\"too-long\"") => recorded!("too_long"),
        _ if has("\"nope\"") => recorded!("unknown_model"),
        "/v1/chat/completions" if has("\"tool_choice\"") && streamed => recorded!("chat_tools_stream"),
        "/v1/chat/completions" if has("\"tool_choice\"") => recorded!("chat_tools"),
        "/v1/chat/completions" if streamed => recorded!("chat_stream"),
        "/v1/chat/completions" => recorded!("chat"),
        "/v1/completions" => recorded!("completion"),
        "/v1/responses" if streamed => recorded!("responses_stream"),
        "/v1/responses" => recorded!("responses"),
        "/v1/messages/count_tokens" => recorded!("count_tokens"),
        "/v1/messages" if streamed => recorded!("messages_stream"),
        "/v1/messages" => recorded!("messages"),
        "/v1/models" => recorded!("models"),
        "/health" => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        _ => b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    }
}

fn endless(stream: &mut TcpStream) {
    let chunk = format!("{:x}\r\n{ENDLESS}\r\n", ENDLESS.len());
    let mut open = stream.write_all(STREAM_HEAD.as_bytes()).is_ok();
    while open {
        open = stream.write_all(chunk.as_bytes()).is_ok();
        thread::sleep(Duration::from_millis(5));
    }
}

fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4_096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if bytes.len() >= end + 4 + length.unwrap_or(0) {
                return Some((head, String::from_utf8_lossy(&bytes[end + 4..]).into_owned()));
            }
        }
        match stream.read(&mut piece).unwrap_or(0) {
            0 => return None,
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}
