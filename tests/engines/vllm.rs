//! A vLLM server on loopback, for as long as the test runs.

use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Runtime;

use super::pairs::Request;

/// Tokens in a block of its cache: the least that its CPU kernel takes.
pub(crate) const BLOCK: u64 = 32;

/// It starts in about 90 s, on a busy machine in several minutes.
const START_LIMIT: Duration = Duration::from_secs(600);

/// One answer takes milliseconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);

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

pub(crate) struct Vllm {
    process: Option<Child>,
    url: String,
    client: reqwest::Client,
    runtime: Runtime,
}

/// What it says of a prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

impl Vllm {
    /// The server that `GRAPEVINE_TEST_VLLM` names: `VENV:MODEL` starts one, a URL is one that runs.
    pub(crate) fn from_env() -> Option<Self> {
        let named = named()?;
        if named.starts_with("http://") {
            return Some(Self::at(named, None));
        }
        let vllm = Self::start(&named, free_port(), &[]);
        vllm.wait_until_ready();
        Some(vllm)
    }

    /// Starts one from `VENV:MODEL`; it is ready later. Later arguments go before earlier ones.
    pub(crate) fn start(named: &str, port: u16, args: &[&str]) -> Self {
        let (venv, model) = named.split_once(':').expect("GRAPEVINE_TEST_VLLM is VENV:MODEL or a URL");
        let port = port.to_string();
        // All processes of one server, low in priority, in a group of their own.
        let process = Command::new("nice")
            .args(["-n", "10", &format!("{venv}/bin/python"), "-m", "vllm.entrypoints.openai.api_server"])
            .args(["--model", model, "--port", &port])
            .args(ARGS)
            .args(args)
            .envs(SETTINGS)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self::at(format!("http://127.0.0.1:{port}"), Some(process))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a signal to the server's first process alone, as supervisors do.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), pid]).status().unwrap().success());
    }

    /// Waits for its end, and ends what it left behind.
    pub(crate) fn ended(mut self) {
        let mut process = self.process.take().unwrap();
        process.wait().unwrap();
        kill_group(process.id());
    }

    /// The sum of all samples of a metric.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").unwrap_or_default();
        let of = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        text.lines().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    fn at(url: String, process: Option<Child>) -> Self {
        let client = grapevine_testkit::load::http_client(1, ANSWER_LIMIT).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { process, url, client, runtime }
    }

    pub(crate) fn wait_until_ready(&self) {
        let deadline = Instant::now() + START_LIMIT;
        while self.get("/health").is_none() {
            assert!(Instant::now() < deadline, "vLLM did not start in {START_LIMIT:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    fn get(&self, path: &str) -> Option<String> {
        let url = format!("{}{path}", self.url);
        self.runtime.block_on(async {
            let answer = self.client.get(url).send().await.ok()?;
            if answer.status() == 200 { answer.text().await.ok() } else { None }
        })
    }

    /// Sends a request and reads what the answer, or the metrics, say of its prompt.
    pub(crate) fn ask(&self, request: &Request) -> Usage {
        let before = self.counted();
        let url = format!("{}{}", self.url, request.path);
        let asked =
            self.client.post(url).header("content-type", "application/json").body(request.body.clone());
        let (status, text) = self.runtime.block_on(async {
            let answer = asked.send().await.unwrap();
            (answer.status(), answer.text().await.unwrap())
        });
        assert_eq!(status, 200, "{}: {text}", request.path);
        let answer: Value = serde_json::from_str(&text).unwrap();
        usage(&answer["usage"]).unwrap_or_else(|| self.counted().since(before))
    }

    /// Prompt tokens looked up and found in its cache since it started.
    fn counted(&self) -> Usage {
        let metrics = self.get("/metrics").unwrap();
        let total = |name: &str| {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap() as u64
        };
        Usage {
            prompt_tokens: total("vllm:prefix_cache_queries_total"),
            cached_tokens: total("vllm:prefix_cache_hits_total"),
        }
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

impl Drop for Vllm {
    /// SIGTERM ends all of its processes; SIGKILL of the first would leave the engine's behind.
    fn drop(&mut self) {
        let Some(process) = &mut self.process else { return };
        let _ = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
        let _ = process.wait();
        kill_group(process.id());
    }
}

fn kill_group(leader: u32) {
    let group = format!("-{leader}");
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}

/// What `GRAPEVINE_TEST_VLLM` says, if anything.
pub(crate) fn named() -> Option<String> {
    std::env::var("GRAPEVINE_TEST_VLLM").ok().filter(|named| !named.is_empty())
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
