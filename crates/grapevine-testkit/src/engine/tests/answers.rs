//! What a healthy engine says.

use serde_json::{Value, json};

use super::super::{EngineConfig, answer};
use super::client::*;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Field names in the order in which they stand, to compare with what vLLM was recorded to send.
fn keys(json: &str) -> Vec<&str> {
    json.split('"').skip(1).step_by(2).collect()
}

#[tokio::test]
async fn a_chat_answer_has_vllms_fields_and_follows_from_the_prompt() {
    let engine = instant().await;
    let raw = post(&engine, CHAT, &chat("hello")).await;
    let body = raw.json();
    assert_eq!(raw.status(), 200);
    let said = answer(b"<|user|>\nhello\n", 0, 4);
    assert_eq!(body["choices"][0]["message"]["content"], said.as_str());
    assert_eq!(body["choices"][0]["finish_reason"], "length");
    assert_eq!(body["usage"]["prompt_tokens"], 3);
    assert_eq!(body["usage"]["total_tokens"], 7);
    let recorded = r#"{"id":"chatcmpl-be04e85c243ec8b5","object":"chat.completion","created":1795974718,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"put >= userKINGive} he","refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,"system_fingerprint":"vllm-0.32.0-6e9f305b","usage":{"prompt_tokens":32,"total_tokens":40,"completion_tokens":8,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":32,"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#;
    let text = String::from_utf8(raw.body().unwrap()).unwrap();
    let values = |s: &str| s.len() > 14 || s.contains(' ') || s == "tiny" || s == "mock-model";
    let shape = |s| keys(s).into_iter().filter(|s| !values(s)).map(str::to_owned).collect::<Vec<_>>();
    let known = |s: &str| s.starts_with("chatcmpl") || s.starts_with("vllm");
    let plain = |s| shape(s).into_iter().filter(|s| !known(s)).collect::<Vec<_>>();
    assert_eq!(plain(&text), plain(recorded));
}

#[tokio::test]
async fn the_second_of_two_equal_heads_is_cached() {
    let engine = instant().await;
    let prompt = "x".repeat(1000);
    let ask = |tail: &str| chat(&format!("{prompt}{tail}"));
    let cached = |raw: &Value| raw["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&post(&engine, CHAT, &ask("one")).await.json()), 0);
    // 9 bytes of role and 1000 of head are 15 whole blocks of 16 tokens.
    assert_eq!(cached(&post(&engine, CHAT, &ask("two")).await.json()), 15 * 16);
    let salted = with(ask("three"), &json!({ "cache_salt": "tenant" }));
    assert_eq!(cached(&post(&engine, CHAT, &salted).await.json()), 0, "another tenant's cache");
    let stats = engine.stats();
    assert_eq!((stats.requests, stats.completed, stats.blocks_hit), (3, 3, 15));
}

#[tokio::test]
async fn the_next_turn_of_a_conversation_finds_the_answer_cached() {
    let engine = instant().await;
    let first = with(chat(&"x".repeat(100)), &json!({ "max_tokens": 200 }));
    let body = post(&engine, CHAT, &first).await.json();
    let said = body["choices"][0]["message"]["content"].clone();
    let mut messages = first["messages"].as_array().unwrap().clone();
    messages.push(json!({ "role": "assistant", "content": said }));
    messages.push(json!({ "role": "user", "content": "and then?" }));
    let body = post(&engine, CHAT, &with(first, &json!({ "messages": messages }))).await.json();
    // 110 bytes of question, 14 + 800 + 1 of answer: 14 whole blocks.
    assert_eq!(body["usage"]["prompt_tokens_details"]["cached_tokens"], 14 * 16);
}

#[tokio::test]
async fn a_stream_is_role_tokens_finish_usage_done() {
    let engine = instant().await;
    let options = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let raw = post(&engine, CHAT, &with(chat("hello"), &options)).await;
    assert!(raw.head().contains("content-type: text/event-stream; charset=utf-8"));
    assert!(raw.body().is_some(), "a clean end");
    let events = raw.events();
    assert_eq!(events.len(), 7, "{events:?}");
    let event: Vec<Value> = events[..6].iter().map(|e| serde_json::from_str(e).unwrap()).collect();
    assert_eq!(event[0]["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let text: String = (1..5).map(|i| event[i]["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, answer(b"<|user|>\nhello\n", 0, 4));
    assert_eq!(event[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(event[5]["choices"], json!([]));
    assert_eq!(event[5]["usage"]["completion_tokens"], 4);
    assert_eq!(event[5]["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(events[6], "[DONE]");
}

#[tokio::test]
async fn events_have_vllms_fields() {
    let engine = instant().await;
    let id = "content-type: application/json\r\nx-request-id: my-req-123\r\n";
    let body = with(chat("hello"), &json!({ "stream": true, "max_tokens": 2 })).to_string();
    let raw = send(&engine, "POST", CHAT, id, body.as_bytes()).await.finish().await;
    let created = serde_json::from_str::<Value>(&raw.events()[0]).unwrap()["created"].to_string();
    let said = answer(b"<|user|>\nhello\n", 0, 2);
    let recorded = [
        r#"{"id":"chatcmpl-my-req-123","object":"chat.completion.chunk","created":1795974720,"model":"mock-model","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#.to_owned(),
        r#"{"id":"chatcmpl-my-req-123","object":"chat.completion.chunk","created":1795974720,"model":"mock-model","choices":[{"index":0,"delta":{"content":"T"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#.replace("\"T\"", &format!("\"{}\"", &said[..4])),
        r#"{"id":"chatcmpl-my-req-123","object":"chat.completion.chunk","created":1795974720,"model":"mock-model","choices":[{"index":0,"delta":{"content":"T"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}],"system_fingerprint":"vllm-0.32.0-grapevine"}"#.replace("\"T\"", &format!("\"{}\"", &said[4..])),
        "[DONE]".to_owned(),
    ];
    let expected: Vec<String> = recorded.iter().map(|e| e.replace("1795974720", &created)).collect();
    assert_eq!(raw.events(), expected);
}

#[tokio::test]
async fn completions_take_every_form_of_prompt() {
    let engine = instant().await;
    let ask = |prompt: Value, n: u32| json!({ "prompt": prompt, "max_tokens": 3, "n": n });
    let cases = [
        (json!("Once"), 1, 1, 1),
        (json!(["Once upon", "In the end"]), 1, 2, 4),
        (json!([300, 301, 302]), 1, 1, 3),
        (json!([[300, 301], [302]]), 2, 4, 3),
    ];
    for (prompt, n, choices, prompt_tokens) in cases {
        let body = post(&engine, COMPLETIONS, &ask(prompt.clone(), n)).await.json();
        assert_eq!(body["choices"].as_array().unwrap().len(), choices, "{prompt}");
        assert_eq!(body["usage"]["prompt_tokens"], prompt_tokens, "{prompt}");
        assert_eq!(body["usage"]["completion_tokens"], 3 * choices, "{prompt}");
        let stream = with(ask(prompt, n), &json!({ "stream": true }));
        let events = post(&engine, COMPLETIONS, &stream).await.events();
        assert_eq!(events.len(), 3 * choices + 1);
    }
    let echo = with(ask(json!("Once"), 1), &json!({ "echo": true }));
    let body = post(&engine, COMPLETIONS, &echo).await.json();
    assert_eq!(body["choices"][0]["text"], format!("Once{}", answer(b"Once", 0, 3)));
}

#[tokio::test]
async fn the_engines_other_paths() {
    let engine = instant().await;
    assert_eq!(get(&engine, "/health").await.body(), Some(Vec::new()));
    assert_eq!(get(&engine, "/version").await.json(), json!({ "version": "0.32.0" }));
    assert_eq!(get(&engine, "/v1/models").await.json()["data"][0]["id"], "mock-model");
    assert_eq!(get(&engine, "/load").await.json(), json!({ "server_load": 0 }));
    assert_eq!(post(&engine, "/tokenize", &json!({ "prompt": "12345678" })).await.json()["count"], 2);
    assert_eq!(get(&engine, "/nope").await.json(), json!({ "detail": "Not Found" }));
    let wrong = get(&engine, CHAT).await;
    assert_eq!((wrong.status(), wrong.json()), (405, json!({ "detail": "Method Not Allowed" })));
    assert!(wrong.head().contains("allow: post"));
    post(&engine, CHAT, &chat("hello")).await;
    let metrics = get(&engine, "/metrics").await;
    assert!(metrics.head().contains("content-type: text/plain; version=1.0.0; charset=utf-8"));
    assert!(
        metrics.text().contains("vllm:generation_tokens_total{engine=\"0\",model_name=\"mock-model\"} 4.0")
    );
}

#[tokio::test]
async fn an_echo_shows_what_arrived() {
    let engine = instant().await;
    let raw = send(&engine, "PUT", "/echo/a?b=c%20d", "x-one: 1\r\nX-Two: zwei\r\n", b"body").await;
    let body = raw.finish().await.json();
    assert_eq!((&body["method"], &body["target"]), (&json!("PUT"), &json!("/echo/a?b=c%20d")));
    assert!(body["headers"].as_array().unwrap().contains(&json!(["x-two", "zwei"])));
    assert_eq!(body["body_bytes"], 4);
    assert_eq!(body["body_digest"], super::super::digest(b"body"));
}

#[tokio::test]
async fn requests_are_recorded_on_demand() {
    let engine = start(EngineConfig { record_requests: 2, ..EngineConfig::instant() }).await;
    for content in ["a", "b", "c"] {
        post(&engine, CHAT, &chat(content)).await;
    }
    let received = engine.received();
    let digests: Vec<&str> = received.iter().map(|r| r.body_digest.as_str()).collect();
    let expected = ["b", "c"].map(|c| super::super::digest(chat(c).to_string().as_bytes()));
    assert_eq!(digests, expected);
}

#[tokio::test]
async fn a_key_is_asked_for_below_v1_only() {
    let engine = start(EngineConfig { api_key: Some("k".into()), ..EngineConfig::instant() }).await;
    let without = post(&engine, CHAT, &chat("hello")).await;
    assert_eq!((without.status(), without.json()), (401, json!({ "error": "Unauthorized" })));
    let headers = "content-type: application/json\r\nauthorization: Bearer k\r\n";
    let body = chat("hello").to_string();
    assert_eq!(send(&engine, "POST", CHAT, headers, body.as_bytes()).await.finish().await.status(), 200);
    assert_eq!(get(&engine, "/health").await.status(), 200);
}

#[tokio::test]
async fn details_can_be_left_out_as_vllm_does() {
    let engine = start(EngineConfig { prompt_tokens_details: false, ..EngineConfig::instant() }).await;
    let body = post(&engine, CHAT, &chat("hello")).await.json();
    assert_eq!(body["usage"]["prompt_tokens_details"], Value::Null);
}
