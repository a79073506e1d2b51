//! Every fault does what it says.

use std::io::ErrorKind;

use serde_json::{Value, json};

use super::super::{CutHow, EngineConfig, EngineHandle, Fault, FaultRule};
use super::client::*;

const CHAT: &str = "/v1/chat/completions";

async fn broken(fault: Fault) -> EngineHandle {
    let engine = instant().await;
    engine.faults().add(FaultRule::always(fault));
    engine
}

fn stream() -> Value {
    with(chat("hello"), &json!({ "stream": true }))
}

#[tokio::test]
async fn cut_ends_the_connection_after_the_events() {
    let engine = broken(Fault::Cut { after_events: 3, how: CutHow::Eof }).await;
    let raw = post(&engine, CHAT, &stream()).await;
    assert_eq!((raw.events().len(), raw.error), (3, None));
    assert_eq!(raw.body(), None, "no final chunk");
    until(&engine, "freed", |s| s.running == 0 && s.waiting == 0).await;
    assert_eq!(engine.stats().aborted, 0, "nobody left");
}

#[tokio::test]
async fn cut_can_reset() {
    let engine = broken(Fault::Cut { after_events: 3, how: CutHow::Rst }).await;
    let raw = post(&engine, CHAT, &stream()).await;
    assert_eq!((raw.events().len(), raw.error), (3, Some(ErrorKind::ConnectionReset)));
}

#[tokio::test]
async fn cut_breaks_a_whole_answer_half_way() {
    let engine = broken(Fault::Cut { after_events: 0, how: CutHow::Eof }).await;
    let raw = post(&engine, CHAT, &chat("hello")).await;
    assert_eq!((raw.status(), raw.body()), (200, None));
    assert!(raw.text().contains("chatcmpl"), "the first half came");
}

#[tokio::test]
async fn cut_before_headers_leaves_nothing() {
    for (how, error) in [(CutHow::Eof, None), (CutHow::Rst, Some(ErrorKind::ConnectionReset))] {
        let engine = broken(Fault::CutBeforeHeaders { how }).await;
        let raw = post(&engine, CHAT, &chat("hello")).await;
        assert_eq!((raw.bytes.len(), raw.error), (0, error));
    }
}

#[tokio::test]
async fn stall_goes_silent_until_the_client_leaves() {
    let engine = broken(Fault::Stall { after_events: 2 }).await;
    let mut sent = post_open(&engine, CHAT, &stream()).await;
    sent.read_until("\"index\":0").await;
    sent.read_until("\"index\":0").await;
    let more = tokio::time::timeout(std::time::Duration::from_millis(50), sent.read_until("\"index\":0"));
    assert!(more.await.is_err(), "a third event came");
    assert_eq!(engine.stats().running, 1);
    drop(sent);
    until(&engine, "aborted", |s| s.running == 0 && s.aborted == 1).await;
}

#[tokio::test]
async fn a_whole_answer_stalls_half_way() {
    let engine = broken(Fault::Stall { after_events: 2 }).await;
    let mut sent = post_open(&engine, CHAT, &chat("hello")).await;
    sent.read_until("chatcmpl").await;
    drop(sent);
    until(&engine, "aborted", |s| s.aborted == 1).await;
}

#[tokio::test]
async fn statuses_come_with_the_engines_words_while_health_is_fine() {
    for (code, says) in
        [(503, "currently busy"), (500, "cannot schedule new futures"), (429, "fault on demand")]
    {
        let engine = broken(Fault::Status { code }).await;
        let raw = post(&engine, CHAT, &stream()).await;
        assert_eq!((raw.status(), raw.json()["error"]["code"].as_u64()), (code, Some(u64::from(code))));
        assert!(raw.text().contains(says));
        assert_eq!(get(&engine, "/health").await.status(), 200);
    }
}

#[tokio::test]
async fn health_can_fail_while_the_rest_works() {
    let engine = instant().await;
    engine.faults().add(FaultRule::on_path(Fault::Status { code: 503 }, "/health"));
    assert_eq!(get(&engine, "/health").await.status(), 503);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
}

#[tokio::test]
async fn hang_reads_and_never_answers() {
    let engine = broken(Fault::Hang).await;
    let mut sent = post_open(&engine, CHAT, &stream()).await;
    until(&engine, "asked", |s| s.requests == 1).await;
    let answer = tokio::time::timeout(std::time::Duration::from_millis(50), sent.read_until("HTTP"));
    assert!(answer.await.is_err());
    assert_eq!(engine.stats().running + engine.stats().waiting, 0, "gauges show nothing");
}

#[tokio::test]
async fn an_error_event_comes_with_a_clean_end() {
    let engine = broken(Fault::ErrorEvent { after_events: 2 }).await;
    let raw = post(&engine, CHAT, &stream()).await;
    let events = raw.events();
    assert_eq!(events.len(), 4);
    assert!(events[2].starts_with(r#"{"error":{"message":"EngineCore"#));
    assert_eq!(events[3], "[DONE]");
    assert!(raw.body().is_some());
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 500);
}

#[tokio::test]
async fn a_slow_first_byte_comes_after_the_head() {
    let engine = broken(Fault::SlowFirstByte { ms: 100_000 }).await;
    let mut sent = post_open(&engine, CHAT, &stream()).await;
    let head = sent.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"));
    until(&engine, "running", |s| s.running == 1).await;
}

#[tokio::test]
async fn slow_headers_and_slow_first_bytes_come_in_the_end() {
    for fault in [Fault::SlowHeaders { ms: 30 }, Fault::SlowFirstByte { ms: 30 }] {
        let engine = broken(fault).await;
        for body in [chat("hello"), stream()] {
            let begin = std::time::Instant::now();
            assert!(post(&engine, CHAT, &body).await.body().is_some());
            assert!(begin.elapsed() >= std::time::Duration::from_millis(30));
        }
    }
}

#[tokio::test]
async fn comments_come_while_waiting() {
    let engine = broken(Fault::KeepAlive { every_ms: 5 }).await;
    engine.faults().add(FaultRule::always(Fault::SlowFirstByte { ms: 200 }));
    let raw = post(&engine, CHAT, &stream()).await;
    let body = String::from_utf8(raw.body().unwrap()).unwrap();
    assert!(body.starts_with(": keep-alive\n\n: keep-alive\n\n"), "{body}");
    assert_eq!(raw.events().len(), 6);
}

#[tokio::test]
async fn null_comes_first() {
    let engine = broken(Fault::NullFirst).await;
    assert_eq!(post(&engine, CHAT, &stream()).await.events()[0], "null");
}

#[tokio::test]
async fn single_bytes_add_up() {
    let engine = broken(Fault::OneBytePerWrite).await;
    for body in [chat("hello"), stream()] {
        let raw = post(&engine, CHAT, &body).await;
        assert!(raw.body().is_some_and(|body| !body.is_empty()));
    }
}

#[tokio::test]
async fn gzip_is_gzip_and_says_so() {
    let engine = broken(Fault::Gzip).await;
    for body in [chat("hello"), stream()] {
        let raw = post(&engine, CHAT, &body).await;
        assert!(raw.head().contains("content-encoding: gzip"));
        assert_eq!(raw.body().unwrap()[..3], [0x1f, 0x8b, 8]);
    }
}

#[tokio::test]
async fn redirects_and_hop_by_hop_headers() {
    let engine = broken(Fault::Redirect { code: 307, location: "/elsewhere".to_owned() }).await;
    let raw = post(&engine, CHAT, &chat("hello")).await;
    assert_eq!(raw.status(), 307);
    assert!(raw.head().contains("location: /elsewhere"));
    engine.faults().set([FaultRule::always(Fault::HopByHop)]);
    let raw = post(&engine, CHAT, &chat("hello")).await;
    let head = raw.head();
    for line in
        ["connection: x-engine-hop", "x-engine-hop: only", "keep-alive: timeout=5", "proxy-authenticate"]
    {
        assert!(head.contains(line), "{line} in {head}");
    }
}

#[tokio::test]
async fn gauges_freeze() {
    let engine = broken(Fault::FreezeGauges { running: 7, waiting: 3, usage: 0.5 }).await;
    post(&engine, CHAT, &chat("hello")).await;
    let text = get(&engine, "/metrics").await.text();
    assert!(text.contains("vllm:num_requests_running{engine=\"0\",model_name=\"mock-model\"} 7.0"));
    assert!(text.contains("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"mock-model\"} 0.5"));
}

#[tokio::test]
async fn rules_are_set_over_http() {
    let engine = instant().await;
    let rules = json!([{ "kind": "status", "code": 503, "next": 1 }, { "kind": "hang", "path": "/ping" }]);
    assert_eq!(post(&engine, "/faults", &rules).await.json(), rules);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 503);
    assert_eq!(post(&engine, CHAT, &chat("hello")).await.status(), 200);
    assert_eq!(get(&engine, "/faults").await.json().as_array().unwrap().len(), 1);
    let cleared = send(&engine, "DELETE", "/faults", "", b"").await.finish().await;
    assert_eq!(cleared.json(), json!([]));
    let wrong = post(&engine, "/faults", &json!({ "kind": "stahl" })).await;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().contains("stahl"));
}

#[tokio::test]
async fn an_engine_that_lingers_goes_silent_then_ends_without_an_end() {
    let engine = broken(Fault::Linger { after_events: 2, ms: 30 }).await;
    let raw = post(&engine, CHAT, &stream()).await;
    assert_eq!((raw.events().len(), raw.error, raw.body()), (2, None, None));
    let comment = raw.text().rfind("\r\n:\n\n").expect("a comment");
    assert!(comment > raw.text().rfind("data: ").expect("events"), "{}", raw.text());
    let half = post(&engine, CHAT, &chat("hello")).await;
    assert_eq!((half.status(), half.body()), (200, None), "a whole answer breaks off too");
    until(&engine, "freed", |s| s.running == 0 && s.aborted == 0).await;
}

#[tokio::test]
async fn a_stream_may_end_without_done() {
    let engine = broken(Fault::NoDone).await;
    let raw = post(&engine, CHAT, &stream()).await;
    assert!(raw.body().is_some(), "a clean end");
    assert!(raw.events().iter().all(|event| event != "[DONE]") && raw.events().len() > 2);
}

#[tokio::test]
async fn a_deaf_engine_works_on_for_a_client_that_left() {
    let time = std::time::Duration::from_millis(20);
    let slow = EngineConfig { base: time * 10, ..EngineConfig::instant() };
    for (deaf, finished) in [(false, 0), (true, 1)] {
        let engine = start(slow.clone()).await;
        if deaf {
            engine.faults().add(FaultRule::always(Fault::Deaf));
        }
        let sent = post_open(&engine, CHAT, &chat("hello")).await;
        until(&engine, "running", |s| s.running == 1).await;
        drop(sent);
        until(&engine, "free", |s| s.running == 0).await;
        assert_eq!(engine.stats().finished_length, finished, "deaf: {deaf}");
    }
}

#[tokio::test]
async fn any_name_may_be_answered_to() {
    let engine = instant().await;
    let ask = with(chat("hello"), &json!({ "model": "gpt-4" }));
    assert_eq!(post(&engine, CHAT, &ask).await.status(), 404);
    engine.faults().add(FaultRule::always(Fault::AnyModel));
    let raw = post(&engine, CHAT, &ask).await;
    assert_eq!((raw.status(), &raw.json()["model"]), (200, &json!("gpt-4")));
}
