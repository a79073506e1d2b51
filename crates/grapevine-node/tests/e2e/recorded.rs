//! What real engines answered, byte for byte, served again: a client must get the same through the router, and
//! the router must make of it what it is.

use std::path::{Path, PathBuf};

use crate::support::*;

const KINDS: [&str; 2] = ["vllm", "llama.cpp"];

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/recorded").join(kind)
}

fn recorded(kind: &str, name: &str) -> Vec<u8> {
    std::fs::read(folder(kind).join(format!("{name}.raw"))).unwrap()
}

/// Answers every connection with these bytes and closes it, as it was recorded.
async fn saying(bytes: Vec<u8>) -> RawEngine {
    RawEngine::start(move |mut conn| {
        let bytes = bytes.clone();
        async move {
            if conn.request().await.is_some() {
                conn.write(&bytes).await;
            }
        }
    })
    .await
}

async fn engine(kind: &str, name: &str) -> RawEngine {
    saying(recorded(kind, name)).await
}

/// Status, content type and body of a chat request's answer.
async fn ask(base: &str) -> (u16, Option<String>, Vec<u8>) {
    let request = http().post(format!("{base}/v1/chat/completions")).body("{}");
    let answer = request.header("content-type", "application/json").send().await.unwrap();
    let content_type = answer.headers().get("content-type").map(|value| value.to_str().unwrap().to_owned());
    (answer.status().as_u16(), content_type, answer.bytes().await.unwrap().to_vec())
}

#[tokio::test]
async fn every_recorded_answer_passes_unchanged() {
    let mut passed = 0;
    for kind in KINDS {
        for file in std::fs::read_dir(folder(kind)).unwrap() {
            let path = file.unwrap().path();
            let engine = saying(std::fs::read(&path).unwrap()).await;
            let router = TestRouter::before(&[&engine]).await;
            let direct = ask(&format!("http://{}", engine.addr)).await;
            assert_eq!(ask(&router.url("")).await, direct, "{}", path.display());
            passed += 1;
        }
    }
    assert!(passed > 40, "{passed}");
}

#[tokio::test]
async fn streams_of_every_api_are_seen_to_be_complete() {
    const STREAMS: [(&str, &str); 12] = [
        ("vllm", "chat_stream"),
        ("vllm", "chat_n2_stream"),
        ("vllm", "chat_tools_named_stream"),
        ("vllm", "comp_stream"),
        ("vllm", "comp_stream_list"),
        ("vllm", "messages_stream"),
        ("vllm", "responses_stream"),
        ("llama.cpp", "chat_stream"),
        ("llama.cpp", "comp_stream"),
        // Begins with `data: null`.
        ("llama.cpp", "comp_stream_list"),
        // Neither of these ends with [DONE].
        ("llama.cpp", "messages_stream"),
        ("llama.cpp", "responses_stream"),
    ];
    for (kind, name) in STREAMS {
        let engine = engine(kind, name).await;
        let router = TestRouter::before(&[&engine]).await;
        assert_eq!(ask(&router.url("")).await.0, 200);
        router.ended("ok", 1).await;
        assert_eq!(router.status().replicas[0].health, "up", "{kind} {name}");
    }
}

#[tokio::test]
async fn what_each_kind_says_of_its_cache_is_read() {
    for (kind, name, prompt, cached) in [
        ("vllm", "chat_stream_long_cached_usage", 1_279, 1_248),
        // Without `include_usage`: llama.cpp's timings say it.
        ("llama.cpp", "chat_stream", 32, 31),
    ] {
        let engine = engine(kind, name).await;
        let router = TestRouter::before(&[&engine]).await;
        ask(&router.url("")).await;
        router.ended("ok", 1).await;
        let tokens = router.status().tokens;
        assert_eq!((tokens.reported_prompt, tokens.reported_cached), (prompt, cached), "{kind}");
    }
}

#[tokio::test]
async fn an_image_that_llama_cannot_read_is_a_500_that_ejects_nobody_by_itself() {
    let engine = engine("llama.cpp", "err_image_part").await;
    let router = TestRouter::before(&[&engine]).await;
    for _ in 0..2 {
        assert_eq!(ask(&router.url("")).await.0, 500);
    }
    assert_eq!(router.status().replicas[0].health, "up");
    assert_eq!(engine.seen().len(), 2, "and it is not tried elsewhere");
}

#[tokio::test]
async fn a_busy_or_loading_or_leaving_engine_is_passed_over() {
    let leaving = r#"{"error":{"message":"cannot schedule new futures after shutdown","type":"Internal Server Error","param":null,"code":500}}"#;
    let refusals = [
        recorded("vllm", "err_admission_max_num_queued_reqs"),
        recorded("llama.cpp", "loading_chat_503"),
        json_response("500 Internal Server Error", leaving),
    ];
    for refusal in refusals {
        let refusing = saying(refusal).await;
        let other = engine("vllm", "chat_basic").await;
        let mut config = config(&[refusing.addr, other.addr]);
        config.policy = grapevine_route::Policy::RoundRobin;
        let router = TestRouter::start(config).await;
        for _ in 0..4 {
            assert_eq!(ask(&router.url("")).await.0, 200);
        }
        assert!(!refusing.seen().is_empty() && other.seen().len() == 4);
    }
}

#[tokio::test]
async fn recorded_metrics_and_pages_say_what_an_engine_is() {
    let pages = |name: &str| recorded("llama.cpp", name);
    let (metrics, props, models) = (pages("get_metrics"), pages("get_props"), pages("get_v1_models"));
    for with_metrics in [true, false] {
        let (metrics, props, models) = (metrics.clone(), props.clone(), models.clone());
        let engine = RawEngine::start(move |mut conn| {
            let (metrics, props, models) = (metrics.clone(), props.clone(), models.clone());
            async move {
                let Some(head) = conn.head().await else { return };
                let missing = json_response("501 Not Implemented", r#"{"error":{"code":501}}"#);
                conn.write(match head.split(' ').nth(1) {
                    Some("/metrics") if with_metrics => &metrics,
                    Some("/props") => &props,
                    Some("/v1/models") => &models,
                    _ => &missing,
                })
                .await;
            }
        })
        .await;
        let mut config = config(&[engine.addr]);
        config.metrics_interval = std::time::Duration::from_millis(100);
        config.models_interval = std::time::Duration::from_secs(60);
        let router = TestRouter::start(config).await;
        let known = || {
            let replica = router.status().replicas.remove(0);
            let kind = replica.engine.kind == "llama.cpp" && replica.engine.cache_tokens.is_some();
            kind && replica.models.is_some()
        };
        until("its kind, its cache and its models are known", known).await;
        assert_eq!(router.status().replicas[0].engine.running.is_some(), with_metrics);
    }
}

/// An answer that begins so and never ends.
async fn endless(mut conn: Conn, head: &[u8]) {
    conn.write(head).await;
    let block = vec![b'x'; 1 << 16];
    while conn.write(&block).await {}
}

#[tokio::test]
async fn engines_that_lie_about_themselves_cost_little_and_disturb_nobody() {
    let engine = RawEngine::start(move |mut conn| async move {
        let Some(head) = conn.head().await else { return };
        match head.split(' ').nth(1) {
            Some("/metrics" | "/prometheus/metrics") => {
                endless(conn, b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n# HELP ").await;
            }
            Some("/v1/models") => endless(conn, b"HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"").await,
            path => {
                let body = if path == Some("/v1/chat/completions") { "{}" } else { "<html>" };
                conn.write(&json_response("200 OK", body)).await;
            }
        }
    })
    .await;
    let mut config = config(&[engine.addr]);
    config.metrics_interval = std::time::Duration::from_millis(50);
    config.models_interval = std::time::Duration::from_secs(60);
    let router = TestRouter::start(config).await;
    until("it was looked at", || {
        engine.connections() >= 3 && !router.status().replicas[0].engine.kind.is_empty()
    })
    .await;
    for _ in 0..5 {
        assert_eq!(ask(&router.url("")).await.0, 200);
    }
    let replica = router.status().replicas.remove(0);
    assert_eq!(
        (replica.health.as_str(), replica.engine.kind.as_str(), replica.models),
        ("up", "plain", None)
    );
}
