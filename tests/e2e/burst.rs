//! Many equal cold prompts at the same moment.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::process::{Engine, LIMIT, Router, routers};

const REQUESTS: usize = 32;
const ROUTERS: usize = 2;
const ENGINES: usize = 4;

/// What the imbalance guard lets one router have in flight on one replica here: the mean and 8 more, and
/// the request that is being placed. Of each other's load the routers hear a quarter second later.
const SHARE: usize = REQUESTS / ROUTERS / ENGINES + 8 + 1;

/// 2,000 tokens: 167 ms of prefill, so that most are sent before the first is prefilled.
const PROMPT_BYTES: usize = 8 * 1_024;

/// Who answered, and whether it had to prefill most of the prompt.
struct Answer {
    replica: String,
    prefilled: bool,
}

/// All requests at once, from one task each.
fn burst(routers: &[Router], prompt: &str) -> Vec<Answer> {
    let messages = json!([{"role": "user", "content": prompt}]);
    let body = json!({"model": "mock-model", "messages": messages, "max_tokens": 4}).to_string();
    let client = grapevine_testkit::load::http_client(REQUESTS, LIMIT).unwrap();
    let ask = |router: &Router| {
        let url = format!("{}/v1/chat/completions", router.url);
        let request = client.post(url).header("content-type", "application/json").body(body.clone());
        async move {
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200);
            let replica = answer.headers()["x-grapevine-replica"].to_str().unwrap().to_owned();
            let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
            let tokens = |at: &str| body.pointer(at).and_then(Value::as_u64).unwrap();
            let cached = tokens("/usage/prompt_tokens_details/cached_tokens");
            Answer { replica, prefilled: cached * 2 < tokens("/usage/prompt_tokens") }
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(join_all(routers.iter().cycle().take(REQUESTS).map(ask)))
}

#[test]
fn a83_a_burst_of_equal_cold_prompts_is_prefilled_on_few_replicas_and_floods_none() {
    // Two seconds for each answer: all are in flight together.
    let engines: Vec<_> = (0..ENGINES).map(|_| Engine::start(&["--decode-ms-per-token", "500"])).collect();
    let urls: Vec<_> = engines.iter().map(|engine| engine.url.clone()).collect();
    // Where tests share two cores a tree may need longer than a request waits for it, and then load alone decides.
    let fleet = routers(ROUTERS, &urls, &[("GRAPEVINE_LOOKUP_TIMEOUT", "1s".to_owned())]);
    let prompt = "all at once ".repeat(PROMPT_BYTES / 12 + 1);
    let answers = burst(&fleet, &prompt);
    let mut served = BTreeMap::<&str, usize>::new();
    for answer in &answers {
        *served.entry(&answer.replica).or_default() += 1;
    }
    let prefills = answers.iter().filter(|answer| answer.prefilled).count();
    assert!(prefills <= 3, "prefilled {prefills} times: {served:?}");
    let most = served.values().max().copied().unwrap_or_default();
    assert!(most <= ROUTERS * SHARE, "one replica got {most}: {served:?}");
}
