//! An engine that costs nothing: it answers `{}`, or writes for ever, or refuses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Between two events of a stream that tells the time: fifty tokens a second.
const TICK: Duration = Duration::from_millis(20);

/// Listens as long as the test runs. What it does with a request is in the path:
/// `/v1/torrent` a stream without end, `/v1/clock` one that tells the time, `/v1/unknown/...` a 404, everything
/// else `{}` when the body is read.
pub(super) fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::Builder::new().stack_size(64 << 10).spawn(move || serve(stream)).unwrap();
        }
    });
    url
}

/// Serves one connection until somebody has enough.
fn serve(stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let path = read_request(&mut reader)?;
        if path.starts_with("/v1/torrent") {
            return torrent(&mut writer);
        }
        if path.starts_with("/v1/clock") {
            return clock(&mut writer);
        }
        let unknown = path.starts_with("/v1/unknown");
        let status = if unknown { "404 Not Found" } else { "200 OK" };
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}");
        writer.write_all(head.as_bytes()).ok()?;
    }
}

/// Reads a request, and throws its body away: its path.
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
    Some(path)
}

const EVENT_STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Now, as it is said in a stream, microseconds.
pub(super) fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64
}

fn clock(writer: &mut TcpStream) -> Option<()> {
    writer.write_all(EVENT_STREAM).ok()?;
    loop {
        let event = format!("data: {}\n\n", now_micros());
        writer.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).ok()?;
        thread::sleep(TICK);
    }
}

fn torrent(writer: &mut TcpStream) -> Option<()> {
    writer.write_all(EVENT_STREAM).ok()?;
    let event = format!("data: {}\n\n", "x".repeat(16_000));
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    loop {
        writer.write_all(chunk.as_bytes()).ok()?;
    }
}
