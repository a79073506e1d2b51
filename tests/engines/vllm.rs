//! vLLM: how it is started, and what it says of prompts.

use std::process::Command;

use serde_json::Value;

use super::pairs::Request;
use super::server::{self, Server, free_port};

/// Tokens in a block of its cache: the least that its CPU kernel takes.
pub(crate) const BLOCK: u64 = 32;

/// `VENV:MODEL`, or the URL of one that runs with the arguments below.
pub(crate) const SETTING: &str = "GRAPEVINE_TEST_VLLM";

const ARGS: &[&str] = &[
    "--served-model-name",
    "m",
    "--host",
    "127.0.0.1",
    "--dtype",
    "bfloat16",
    "--enforce-eager",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--max-model-len",
    "16384",
    "--block-size",
    "32",
    "--num-gpu-blocks-override",
    "4096",
    "--kv-cache-memory-bytes",
    "268435456",
    "--max-num-seqs",
    "4",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
    "--enable-scale-out",
];

const SETTINGS: [(&str, &str); 6] = [
    ("VLLM_NO_USAGE_STATS", "1"),
    ("DO_NOT_TRACK", "1"),
    ("HF_HUB_OFFLINE", "1"),
    ("TRANSFORMERS_OFFLINE", "1"),
    ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
    ("OMP_NUM_THREADS", "1"),
];

/// What it says of a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

/// One that is ready, if the setting names any.
pub(crate) fn from_env() -> Option<Server> {
    let named = server::named(SETTING)?;
    if named.starts_with("http://") {
        return Some(Server::at(named));
    }
    let vllm = start(&named, free_port(), &[]);
    vllm.wait_until_ready();
    Some(vllm)
}

/// Starts one from `VENV:MODEL`; it is ready later. Later arguments go before earlier ones.
pub(crate) fn start(named: &str, port: u16, args: &[&str]) -> Server {
    let (venv, model) = named.split_once(':').expect("GRAPEVINE_TEST_VLLM is VENV:MODEL or a URL");
    let mut command = Command::new(format!("{venv}/bin/python"));
    command
        .args(["-m", "vllm.entrypoints.openai.api_server", "--model", model, "--port", &port.to_string()])
        .args(ARGS)
        .args(args)
        .envs(SETTINGS);
    Server::start(&mut command, port)
}

/// Sends a request and reads what the answer, or the metrics, say of its prompt.
pub(crate) fn ask(vllm: &Server, request: &Request) -> Usage {
    let before = counted(vllm);
    let url = format!("{}{}", vllm.url(), request.path);
    let asked = vllm.client.post(url).header("content-type", "application/json").body(request.body.clone());
    let (status, text) = vllm.runtime.block_on(async {
        let answer = asked.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    });
    assert_eq!(status, 200, "{}: {text}", request.path);
    let answer: Value = serde_json::from_str(&text).unwrap();
    usage(&answer["usage"]).unwrap_or_else(|| counted(vllm).since(before))
}

/// Prompt tokens looked up and found in its cache since it started.
fn counted(vllm: &Server) -> Usage {
    Usage {
        prompt_tokens: vllm.metric("vllm:prefix_cache_queries_total") as u64,
        cached_tokens: vllm.metric("vllm:prefix_cache_hits_total") as u64,
    }
}

impl Usage {
    fn since(self, before: Self) -> Self {
        Self {
            prompt_tokens: self.prompt_tokens - before.prompt_tokens,
            cached_tokens: self.cached_tokens - before.cached_tokens,
        }
    }
}

/// In the forms of chat and completions, responses, and messages.
fn usage(usage: &Value) -> Option<Usage> {
    let number = |at: &str| usage.pointer(at).and_then(Value::as_u64);
    if let Some(cached_tokens) = number("/cache_read_input_tokens") {
        let created = number("/cache_creation_input_tokens").unwrap_or(0);
        return Some(Usage {
            prompt_tokens: number("/input_tokens")? + cached_tokens + created,
            cached_tokens,
        });
    }
    let cached =
        number("/prompt_tokens_details/cached_tokens").or(number("/input_tokens_details/cached_tokens"));
    Some(Usage {
        prompt_tokens: number("/prompt_tokens").or(number("/input_tokens"))?,
        cached_tokens: cached?,
    })
}
