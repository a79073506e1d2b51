//! What passes, byte for byte, in every version of HTTP/1.

use crate::support::*;

/// An engine that sends two events and ends.
async fn two_events() -> RawEngine {
    RawEngine::start(|mut conn| async move {
        while conn.request().await.is_some() {
            conn.write(EVENT_STREAM).await;
            conn.chunk(b"data: 1\n\n").await;
            conn.chunk(b"data: [DONE]\n\n").await;
            conn.chunk(b"").await;
        }
    })
    .await
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_stream_that_ends_with_its_connection() {
    let engine = two_events().await;
    let router = TestRouter::before(&[&engine]).await;
    for keep_alive in ["", "connection: keep-alive\r\n"] {
        let request =
            format!("POST /v1/chat/completions HTTP/1.0\r\n{keep_alive}content-length: 2\r\n\r\n{{}}");
        let text = RawClient::send(router.addr, request).await.read_to_end().await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK"), "{head}");
        assert!(!head.to_lowercase().contains("transfer-encoding"), "{head}");
        assert_eq!(body, "data: 1\n\ndata: [DONE]\n\n", "not chunked");
    }
}

#[tokio::test]
async fn an_http_1_0_client_that_asks_for_it_keeps_its_connection() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let request = "POST /v1/x HTTP/1.0\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}";
    let mut client = RawClient::send(router.addr, request).await;
    client.read_until("\r\n\r\n{}").await;
    client.received.clear();
    client.write(request).await;
    client.read_until("\r\n\r\n{}").await;
    assert_eq!(engine.seen().len(), 2);
}

#[tokio::test]
async fn trailers_reach_the_engine_and_cannot_change_the_request() {
    let engine = RawEngine::start(|mut conn| async move {
        let Some(head) = conn.head().await else { return };
        let rest = conn.until(b"\r\n\r\n").await;
        let said = format!("{head}{rest}");
        conn.write(&json_response("200 OK", &serde_json::Value::from(said).to_string())).await;
        conn.closed().await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let request = "POST /v1/x HTTP/1.1\r\nhost: r\r\nte: trailers\r\ntrailer: x-sum, authorization\r\n\
        transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n\
        x-sum: 42\r\nauthorization: Bearer late\r\ncontent-length: 7\r\n\r\n";
    let text = RawClient::send(router.addr, request).await.read_to_end().await;
    let said: String = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("transfer-encoding: chunked") && head.contains("trailer: x-sum"), "{head}");
    assert!(!head.contains("content-length"), "{head}");
    assert_eq!(body, "3\r\nabc\r\n0\r\nx-sum: 42\r\n\r\n");
}

#[tokio::test]
async fn a_target_is_forwarded_as_it_was_written() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    for target in [
        "/v1/x?",
        "/v1/x?&&",
        "/v1/files/a%2Fb%2fc",
        "/v1/a%20b/%E4%BD%A0",
        "/v1/x;p=1/y?a=b?c",
        "//v1///x",
        "/v1/x?q=%00%0a+%2B",
        "/v1/~u/@me/$x/(y)*!,:=",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n");
        RawClient::send(router.addr, request).await.read_to_end().await;
        assert_eq!(engine.seen().last().unwrap().request_line(), format!("GET {target} HTTP/1.1"));
    }
    let absolute = "GET http://public.example/v1/x?a HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n";
    RawClient::send(router.addr, absolute).await.read_to_end().await;
    assert_eq!(engine.seen().last().unwrap().request_line(), "GET /v1/x?a HTTP/1.1", "as a proxy is asked");
}

#[tokio::test]
async fn what_is_no_path_is_refused() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    for target in ["OPTIONS *", "CONNECT elsewhere:443"] {
        let request = format!("{target} HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n");
        let text = RawClient::send(router.addr, request).await.read_to_end().await;
        assert!(text.starts_with("HTTP/1.1 400 ") && text.contains("bad_target"), "{target}: {text}");
    }
    assert!(engine.seen().is_empty());
}

#[tokio::test]
async fn http_1_1_names_one_host() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    for (version, hosts, status) in
        [("1.1", 0, 400), ("1.1", 1, 200), ("1.1", 2, 400), ("1.0", 0, 200), ("1.0", 2, 400)]
    {
        let hosts = "host: r\r\n".repeat(hosts);
        let request = format!("GET /v1/x HTTP/{version}\r\n{hosts}connection: close\r\n\r\n");
        let text = RawClient::send(router.addr, &request).await.read_to_end().await;
        assert!(text.contains(&format!(" {status} ")), "{request} {text}");
        assert_eq!(text.contains("bad_host"), status == 400, "{request} {text}");
    }
    assert_eq!(engine.seen().len(), 2);
}

#[tokio::test]
async fn heads_have_limits() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let many = (0..90).map(|i| format!("x-{i}: {}\r\n", "v".repeat(1_000))).collect::<String>();
    let wide = format!("GET /v1/x HTTP/1.1\r\nhost: r\r\nconnection: close\r\n{many}\r\n");
    let text = RawClient::send(router.addr, wide).await.read_to_end().await;
    assert!(text.starts_with("HTTP/1.1 200 "), "90 fields of 1 kB pass: {text}");
    assert_eq!(engine.seen()[0].values("x-89").len(), 1);

    let fields = "x: y\r\n".repeat(200);
    let long = format!("x: {}\r\n", "y".repeat(1 << 20));
    for excess in [fields, long] {
        let request = format!("GET /v1/x HTTP/1.1\r\nhost: r\r\n{excess}\r\n");
        let mut client = RawClient::connect(router.addr).await;
        // It may be refused before it is sent whole.
        client.try_write(request).await;
        let text = client.read_to_end().await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 431 "), "{text}");
    }
    assert_eq!(engine.seen().len(), 1);
}
