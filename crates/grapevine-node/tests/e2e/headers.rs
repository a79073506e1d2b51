//! Header fields on their way through.

use crate::support::*;

#[tokio::test]
async fn a23_a24_a25_end_to_end_fields_reach_the_engine_once() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let request = "POST /v1/chat/completions HTTP/1.1\r\nHost: public.example\r\nAuthorization: Bearer k\r\n\
        X-My-Tenant: a\r\nX-Request-Id: mine\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
        TE: trailers\r\nContent-Length: 2\r\n\r\n{}";
    let text = RawClient::send(router.addr, request).await.read_to_end().await;
    assert!(text.to_lowercase().contains("\r\nx-request-id: mine\r\n"), "{text}");
    let seen = engine.seen().remove(0);
    assert_eq!(seen.values("authorization"), ["Bearer k"]);
    assert_eq!(seen.values("x-my-tenant"), ["a"]);
    assert_eq!(seen.values("x-request-id"), ["mine"]);
    assert_eq!(seen.values("host"), [engine.addr.to_string()]);
    assert_eq!(seen.values("content-length"), ["2"]);
    for hop in ["connection", "x-hop", "keep-alive", "te", "transfer-encoding"] {
        assert_eq!(seen.values(hop), [""; 0], "{hop}");
    }
    assert_eq!(seen.body, b"{}");
}

#[tokio::test]
async fn a26_hop_by_hop_answer_fields_are_dropped_for_every_protocol() {
    let engine = RawEngine::start(|mut conn| async move {
        conn.request().await;
        conn.write(
            b"HTTP/1.1 200 OK\r\nConnection: X-Foo, close\r\nX-Foo: 1\r\nKeep-Alive: timeout=5\r\n\
              Proxy-Authenticate: Basic\r\nX-Bar: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await;
        conn.chunk(b"hello").await;
        conn.chunk(b"").await;
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    for version in ["1.0", "1.1"] {
        let request = format!("GET /v1/x HTTP/{version}\r\nhost: r\r\nconnection: close\r\n\r\n");
        let text = RawClient::send(router.addr, request).await.read_to_end().await.to_lowercase();
        assert!(text.contains("x-bar: 2") && text.contains("hello"), "{text}");
        for hop in ["x-foo", "keep-alive:", "proxy-authenticate"] {
            assert!(!text.contains(hop), "HTTP/{version}: {text}");
        }
        assert_eq!(text.contains("transfer-encoding"), version == "1.1", "{text}");
    }
    let h2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let answer = h2.get(router.url("/v1/x")).send().await.unwrap();
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    assert!(!answer.headers().contains_key("x-foo"));
    assert_eq!(answer.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn a27_a28_a_body_and_its_encoding_pass_as_they_are() {
    // Not even gzip: whoever decodes would fail.
    let body = b"\x1f\x8b\x08\x00 \"odd\"  \\u00e9";
    let mut response = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    response.extend_from_slice(body);
    let engine = RawEngine::answering(response).await;
    let router = TestRouter::before(&[&engine]).await;
    let request = http().post(router.url("/v1/chat/completions")).header("accept-encoding", "gzip");
    let answer = request.body("{}").send().await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert_eq!(answer.headers()["content-length"], body.len().to_string());
    assert_eq!(answer.bytes().await.unwrap(), &body[..]);
    assert_eq!(engine.seen()[0].values("accept-encoding"), ["gzip"]);
}

#[tokio::test]
async fn a29_redirects_are_passed_through_and_a30_do_not_leak_the_replica() {
    let engine = RawEngine::start(|mut conn| async move {
        while let Some(seen) = conn.request().await {
            let host = seen.values("host")[0];
            let to = if seen.head.contains("/away") {
                "http://elsewhere/x"
            } else {
                &format!("http://{host}/v1/x")
            };
            let head =
                format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            conn.write(head.as_bytes()).await;
        }
    })
    .await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().post(router.url("/v1/x/")).body("{}").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["location"]), (307, &"/v1/x".parse().unwrap()));
    let answer = http().post(router.url("/away")).body("{}").send().await.unwrap();
    assert_eq!(answer.headers()["location"], "http://elsewhere/x");
    assert_eq!(engine.seen().len(), 2, "nothing was followed");
    assert!(engine.seen().iter().all(|seen| seen.request_line().starts_with("POST ")));
}

#[tokio::test]
async fn a_request_id_is_minted_sent_and_returned() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    let answer = http().get(router.url("/v1/models/m")).send().await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    assert_eq!(id.len(), 32);
    assert_eq!(engine.seen()[0].values("x-request-id"), [id]);
}
