//! Request bodies: whole, bounded, untouched.

use crate::support::*;

#[tokio::test]
async fn a31_two_mebibytes_and_one_byte_pass() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let body = "x".repeat((2 << 20) + 1);
    let answer = http().post(router.url("/v1/chat/completions")).body(body.clone()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(engine.seen()[0].body == body.as_bytes());
}

#[tokio::test]
async fn a32_too_large_by_its_length_is_refused_before_it_is_read() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.body_limit = 1_000;
    let router = TestRouter::start(config).await;
    let head =
        "POST /v1/messages HTTP/1.1\r\nhost: r\r\nexpect: 100-continue\r\ncontent-length: 1001\r\n\r\n";
    let text = RawClient::send(router.addr, head).await.read_to_end().await;
    assert!(text.starts_with("HTTP/1.1 413 "), "no 100 Continue first: {text}");
    assert!(text.contains("GRAPEVINE_BODY_LIMIT") && text.contains("request_too_large"), "{text}");
    router.ended("refused", 1).await;
}

#[tokio::test]
async fn a32_too_large_is_refused_also_while_it_is_uploaded() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.body_limit = 1_000;
    let router = TestRouter::start(config).await;
    let head = "POST /v1/completions HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut client = RawClient::send(router.addr, head).await;
    client.write(format!("{:x}\r\n{}\r\n", 600, "x".repeat(600))).await;
    client.write(format!("{:x}\r\n{}\r\n", 600, "x".repeat(600))).await;
    client.read_until("body_too_large").await;
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn expect_100_continue_is_answered_when_the_length_is_fine() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let head = "POST /v1/x HTTP/1.1\r\nhost: r\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let mut client = RawClient::send(router.addr, head).await;
    client.read_until("HTTP/1.1 100 Continue").await;
    client.write("{}").await;
    client.read_until("HTTP/1.1 200 OK").await;
    assert_eq!(engine.seen()[0].values("expect"), [""; 0]);
}

#[tokio::test]
async fn a_client_that_leaves_while_it_uploads_ends_quietly() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let head = "POST /v1/x HTTP/1.1\r\nhost: r\r\ncontent-length: 1000\r\n\r\nhalf";
    drop(RawClient::send(router.addr, head).await);
    router.ended("client_closed", 1).await;
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn a74_a79_a80_a81_whatever_it_is_it_is_forwarded_untouched() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let bodies: [&[u8]; 9] = [
        br#"{ "prompt" : [1,2,3], "model":"a", "model":"b", "big":123456789012345678901234567890 }"#,
        br#"{"prompt":[[1,2],[3]]}"#,
        br#"{"prompt":["a","b"]}"#,
        br#"{"prompt":""}"#,
        br#"{"prompt":[]}"#,
        br#"{"messages":[]}"#,
        b"{\"prompt\":\"\xff\xfe\"}",
        br#"{"prompt":"\ud800"}"#,
        b"not json at all",
    ];
    for path in ["/v1/completions", "/v1/chat/completions"] {
        for body in bodies {
            let answer = http().post(router.url(path)).body(body.to_vec()).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            assert_eq!(engine.seen().last().unwrap().body, body);
        }
    }
}

#[tokio::test]
async fn a33_chunked_uploads_reach_the_engine_whole() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let request = "POST /v1/x HTTP/1.1\r\nhost: r\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let mut client = RawClient::send(router.addr, request).await;
    client.read_until("HTTP/1.1 200 OK").await;
    let seen = engine.seen().remove(0);
    assert_eq!((seen.body.as_slice(), seen.values("content-length")), (&b"abcde"[..], vec!["5"]));
}

#[tokio::test]
async fn a32_a_client_that_uploads_all_of_it_still_gets_the_413() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.body_limit = 1 << 20;
    let router = TestRouter::start(config).await;
    for _ in 0..20 {
        let answer = http().post(router.url("/v1/x")).body(vec![b'x'; 8 << 20]).send().await;
        assert_eq!(answer.expect("an answer, not a reset").status(), 413);
        let mut client =
            RawClient::send(router.addr, "POST /v1/x HTTP/1.1\r\nhost: r\r\ncontent-length: 4194304\r\n\r\n")
                .await;
        client.write(vec![b'x'; 4 << 20]).await;
        client.read_until("body_too_large").await;
    }
}

#[tokio::test]
async fn an_engine_that_answers_before_it_has_read_the_body_is_heard() {
    let engine = RawEngine::start(|mut conn| async move {
        let Some(head) = conn.head().await else { return };
        if head.starts_with("GET /health ") {
            return;
        }
        conn.write(
            b"HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: 8\r\n\r\ntoo long",
        )
        .await;
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    for _ in 0..5 {
        let answer = http().post(router.url("/v1/x")).body(vec![b'x'; 8 << 20]).send();
        let answer = soon(answer).await.unwrap();
        assert_eq!(answer.status(), 413);
        assert_eq!(answer.text().await.unwrap(), "too long");
    }
}
