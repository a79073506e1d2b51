//! What HTTP/2 lets a client send at little cost: it costs little here too, and nobody else notices.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::*;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Pieces of a flood that is to end before: far more than any buffer on the way holds.
const ENDLESS: u32 = 50_000;

/// Frames of one piece.
const FRAMES: u32 = 100;

/// Requests of a client that does nothing wrong, meanwhile.
const HEALTHY: usize = 20;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags][..], &stream.to_be_bytes()[..], payload].concat()
}

/// The preface, and settings that change nothing.
fn opening() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])[..]].concat()
}

/// The head of a request, in HPACK: method and scheme by their index, path and authority in full.
fn head(method: u8, path: &str) -> Vec<u8> {
    let text = |name: u8, value: &str| [&[name, value.len() as u8][..], value.as_bytes()].concat();
    [&[method, 0x86][..], &text(0x04, path), &text(0x01, "r")].concat()
}

const GET: u8 = 0x82;
const POST: u8 = 0x83;

fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &head(GET, "/v1/flood"))
}

/// An engine that answers those who do nothing wrong, and nobody else.
async fn engine() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            if seen.head.contains("/v1/good") {
                conn.write(&json_response("200 OK", "{}")).await;
            }
        }
    })
    .await
}

/// A client with little room for what it will not read.
async fn connect(addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(addr).await.unwrap()
}

/// Writes `opening`, and then `pieces` that `piece` makes, without ever reading: whether the router has closed the
/// connection before they were written. Meanwhile and afterwards others are served.
async fn flood(name: &str, opening: &[u8], pieces: u32, piece: impl Fn(u32) -> Vec<u8>) -> bool {
    let engine = engine().await;
    let mut config = config(&[engine.addr]);
    config.client_timeout = Duration::from_millis(500);
    let router = TestRouter::start(config).await;
    let healthy = async || {
        for _ in 0..HEALTHY {
            let answer = http().get(router.url("/v1/good")).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{name}");
        }
    };
    let flooding = async {
        let mut stream = connect(router.addr).await;
        stream.write_all(opening).await.unwrap();
        for number in 0..pieces {
            if stream.write_all(&piece(number)).await.is_err() {
                return true;
            }
        }
        router.quiet().await;
        false
    };
    let (ended, ()) = tokio::join!(soon(flooding), healthy());
    healthy().await;
    router.quiet().await;
    let flooded = engine.seen().iter().filter(|seen| seen.head.contains("/v1/flood")).count();
    assert!(flooded <= 400, "{name}: {flooded} requests reached the engine");
    assert_eq!(router.status().replicas[0].health, "up", "{name}");
    ended
}

/// So many frames of one kind.
fn many(frame: &[u8]) -> Vec<u8> {
    frame.repeat(FRAMES as usize)
}

/// `what` together with a request, for stream after stream.
fn with_requests(number: u32, what: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let streams = (number * FRAMES..(number + 1) * FRAMES).map(|n| 2 * n + 1);
    streams.flat_map(|stream| [request(stream), what(stream)].concat()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_reset_as_they_are_opened() {
    let cancel = 8u32.to_be_bytes();
    let piece = |number| with_requests(number, |stream| frame(RST_STREAM, 0, stream, &cancel));
    assert!(flood("reset by the client", &opening(), ENDLESS, piece).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_the_router_is_made_to_reset() {
    // A window must not be enlarged by nothing: an error of the stream.
    let nothing = 0u32.to_be_bytes();
    let piece = |number| with_requests(number, |stream| frame(WINDOW_UPDATE, 0, stream, &nothing));
    assert!(flood("reset by the router", &opening(), ENDLESS, piece).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_never_end() {
    let field = [&[0x00, 0x01, b'x', 0x7f, 0xe1, 0x06][..], &[b'y'; 992][..]].concat();
    for part in [&field[..], &[]] {
        let begun = [opening(), frame(HEADERS, END_STREAM, 1, &head(GET, "/v1/flood"))].concat();
        assert!(flood("a head", &begun, ENDLESS, |_| many(&frame(CONTINUATION, 0, 1, part))).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_want_an_answer_which_nobody_reads() {
    let window = [0, 4, 0, 0, 0xff, 0xff];
    assert!(flood("settings", &opening(), ENDLESS, |_| many(&frame(SETTINGS, 0, 0, &window))).await);
    assert!(flood("pings", &opening(), ENDLESS, |_| many(&frame(PING, 0, 0, b"flooding"))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_beyond_what_a_window_can_be() {
    let most = 0x7fff_ffff_u32.to_be_bytes();
    assert!(flood("windows", &opening(), ENDLESS, |_| many(&frame(WINDOW_UPDATE, 0, 0, &most))).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_say_nothing() {
    let post = frame(HEADERS, END_HEADERS, 1, &head(POST, "/v1/flood"));
    let begun = [opening(), post].concat();
    flood("empty data", &begun, 500, |_| many(&frame(DATA, 0, 1, &[]))).await;
    flood("priorities", &opening(), 500, |_| many(&frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_heads_that_mean_large_ones() {
    // One field of 3 kB for the table, and then its index, 4,000 times: 12 MB in 8 kB.
    let field = [&[0x40, 0x01, b'x', 0x7f, 0xb9, 0x16][..], &[b'y'; 3_000][..]].concat();
    let bomb = [head(GET, "/v1/flood"), field, vec![0xbe; 4_000]].concat();
    let piece = |number| frame(HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, &bomb);
    flood("indices", &opening(), 500, piece).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_answered_and_the_connection_goes_on() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let with = |bytes: usize| client.get(router.url("/v1/x")).header("x-large", "y".repeat(bytes));
    assert_eq!(with(15_000).send().await.unwrap().status(), 200);
    assert_eq!(with(20_000).send().await.unwrap().status(), 431);
    assert_eq!(with(1_000).send().await.unwrap().status(), 200);
    assert_eq!(engine.seen().len(), 2);
}
