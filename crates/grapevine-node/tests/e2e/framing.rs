//! Messages that two parsers might read differently: each is one request, or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::support::*;

/// What the router answers to `bytes`, and what reaches the engine of them. With
/// `ending` the client says that no more will come.
async fn sent(bytes: &str, ending: bool) -> (String, Vec<Seen>) {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let mut client = RawClient::connect(router.addr).await;
    client.try_write(bytes).await;
    if ending {
        client.end_writing().await;
    }
    let text = client.read_to_end().await;
    router.quiet().await;
    let healthy = http().post(router.url("/v1/after")).body("{}").send().await.unwrap();
    assert_eq!(healthy.status(), 200);
    let mut seen = engine.seen();
    seen.pop();
    (text, seen)
}

#[tokio::test]
async fn what_is_framed_badly_is_refused_and_reaches_no_engine() {
    let head = "POST /v1/x HTTP/1.1\r\nhost: r\r\n";
    for (what, rest) in [
        ("two lengths", "content-length: 2\r\ncontent-length: 3\r\n\r\n{}{"),
        ("two lengths in one", "content-length: 2, 3\r\n\r\n{}{"),
        ("a signed length", "content-length: +2\r\n\r\n{}"),
        ("a negative length", "content-length: -2\r\n\r\n{}"),
        ("an unknown coding last", "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        ("a coding that looks like it", "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        ("space before the colon", "content-length : 2\r\n\r\n{}"),
        ("a folded field", "x: a\r\n b\r\ncontent-length: 2\r\n\r\n{}"),
        ("a chunk size that is none", "transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
        ("a chunk size beyond 64 bits", "transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n"),
        ("a chunk longer than it says", "transfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n"),
        ("a body shorter than it says", "content-length: 9\r\n\r\n{}"),
        ("a NUL in a field", "x: a\0b\r\ncontent-length: 2\r\n\r\n{}"),
        ("a lone CR in a field", "x: a\rb\r\ncontent-length: 2\r\n\r\n{}"),
    ] {
        let (text, seen) = sent(&format!("{head}{rest}"), true).await;
        assert!(seen.is_empty(), "{what}: {seen:?}");
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400 "), "{what}: {text}");
    }
    let (text, seen) = sent("POST /v1/x HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", true).await;
    assert!(seen.is_empty() && text.starts_with("HTTP/1.1 400 "), "no chunks in HTTP/1.0: {text}");
    let (text, seen) = sent("\x16\x03\x01\x02\x00\x01\x00\x01\x7f", true).await;
    assert!(seen.is_empty() && !text.contains("200"), "TLS on a plain port: {text}");
}

#[tokio::test]
async fn chunks_win_over_a_length_and_the_connection_ends_there() {
    for fields in
        ["content-length: 6\r\ntransfer-encoding: chunked", "transfer-encoding: chunked\r\ncontent-length: 6"]
    {
        let smuggled = "GET /v1/smuggled HTTP/1.1\r\nhost: r\r\n\r\n";
        let request =
            format!("POST /v1/x HTTP/1.1\r\nhost: r\r\n{fields}\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n{smuggled}");
        let (text, seen) = sent(&request, false).await;
        assert_eq!(seen.len(), 1, "{text}: {seen:?}");
        assert_eq!((seen[0].body.as_slice(), seen[0].values("content-length")), (&b"{}"[..], vec!["2"]));
        assert_eq!(seen[0].values("transfer-encoding"), [""; 0]);
        assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
    }
}

#[tokio::test]
async fn lines_that_end_in_lf_alone_reach_the_engine_with_crlf() {
    let (text, seen) =
        sent("POST /v1/x HTTP/1.1\nhost: r\nx-a: 1\nconnection: close\ncontent-length: 2\n\n{}", false).await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert_eq!((seen[0].values("x-a"), seen[0].body.as_slice()), (vec!["1"], &b"{}"[..]));
    assert!(seen[0].head.ends_with("\r\n\r\n"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let peak = Arc::clone(&most);
    let engine = RawEngine::start(move |mut conn| {
        let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
        async move {
            while let Some(seen) = conn.request().await {
                let posted = usize::from(seen.request_line().starts_with("POST "));
                peak.fetch_max(now.fetch_add(posted, Relaxed) + posted, Relaxed);
                tokio::task::yield_now().await;
                now.fetch_sub(posted, Relaxed);
                conn.write(&json_response("200 OK", &format!("\"{}\"", seen.request_line()))).await;
            }
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let requests: String = (0..50)
        .map(|i| format!("POST /v1/{i} HTTP/1.1\r\nhost: r\r\ncontent-length: 2\r\n\r\n{{}}"))
        .collect();
    let mut client = RawClient::send(router.addr, requests).await;
    client.read_until("POST /v1/49 HTTP/1.1\"").await;
    let text = client.text();
    let places: Vec<_> = (0..50).map(|i| text.find(&format!("\"POST /v1/{i} ")).unwrap()).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(
        most.load(Relaxed),
        1,
        "one after the other: the next one is begun when the one before is answered"
    );
}
