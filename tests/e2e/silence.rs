//! What no log may hold, however much is logged.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use super::process::{Engine, Process, binary, exchange, free_tcp, free_udp, get, wait_for};

/// In every text that is nobody's business: found anywhere, it was said.
const MARK: &str = "xyzzy";

/// Files that go with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("grapevine-silence-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The router's libraries included: they log in this process too.
#[test]
fn at_trace_level_neither_prompts_nor_answers_nor_secrets_are_logged() {
    let (engine, dir) = (Engine::start(&["--base-ms", "0", "--prefill-us-per-block", "0"]), Dir::new());
    let (listen, admin, log) = (free_tcp(), free_tcp(), dir.path("log"));
    let secret = |of: &str| format!("{of}-{MARK}-0123456789abcdef");
    let settings = [
        ("GRAPEVINE_LISTEN", listen.clone()),
        ("GRAPEVINE_ADMIN_LISTEN", admin.clone()),
        ("GRAPEVINE_GOSSIP_LISTEN", free_udp()),
        ("GRAPEVINE_REPLICAS", engine.url),
        ("GRAPEVINE_CLUSTER_SECRET", secret("fleet")),
        ("GRAPEVINE_ADMIN_TOKEN", secret("admin")),
        ("GRAPEVINE_ENGINE_KEY", secret("engine")),
        ("GRAPEVINE_DECISION_LOG", dir.path("decisions")),
        ("GRAPEVINE_LOG", "trace".to_owned()),
        ("GRAPEVINE_DRAIN_DELAY", "0s".to_owned()),
    ];
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" serve 2> \"$1\"", &binary(), &log]);
    let mut router = Process::spawn(command, &settings);
    wait_for("the router to be ready", || (get(&format!("http://{admin}/readyz")).0 == 200).then_some(()));
    let words = format!("{MARK} {}", "words of a prompt ".repeat(20));
    let body = json!({ "model": "mock-model", "max_tokens": 2,
        "messages": [{ "role": "user", "content": words }] });
    let key = format!("Bearer {}", secret("client"));
    let headers = [("authorization", key.as_str()), ("x-tenant", MARK)];
    // As it should be, as nobody understands it, and where it goes by load alone.
    for (path, body) in [
        ("/v1/chat/completions", body.to_string()),
        ("/v1/chat/completions", format!("{{\"messages\": [\"{words}\"")),
        ("/v1/chat/completions", format!("{{\"model\":\"no-such-model\",\"prompt\":\"{words}\"}}")),
        ("/v1/embeddings", json!({ "model": "mock-model", "input": words }).to_string()),
        ("/sleep", words),
    ] {
        exchange(&format!("http://{listen}{path}"), "POST", &headers, body.as_bytes());
    }
    let operator = format!("Bearer {}", secret("admin"));
    for (method, path, body) in
        [("POST", "/api/v1/explain", body.to_string()), ("GET", "/api/v1/fleet", String::new())]
    {
        let (head, _) = exchange(
            &format!("http://{admin}{path}"),
            method,
            &[("authorization", operator.as_str())],
            body.as_bytes(),
        );
        assert_eq!(head.status, 200, "{path}");
    }
    router.signal("TERM");
    router.end();
    for file in ["log", "decisions"] {
        let text = fs::read_to_string(dir.path(file)).unwrap();
        assert!(!text.is_empty(), "{file}");
        let said = text.lines().find(|line| line.contains(MARK));
        assert_eq!(said, None, "in the {file}");
    }
    assert!(fs::read_to_string(&log).unwrap().contains("TRACE"), "libraries log too");
}
