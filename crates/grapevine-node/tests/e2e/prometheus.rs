//! A real Prometheus scrapes a router and takes the alerts. Skipped, and said so, where it is not installed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::*;

/// A running Prometheus and its directory; both go with the test.
struct Prometheus {
    process: Child,
    addr: SocketAddr,
    dir: PathBuf,
}

impl Prometheus {
    /// One that scrapes `router` every second.
    fn start(router: SocketAddr) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("grapevine-prometheus-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/rules.yaml");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: ['{}']\n\
             scrape_configs:\n- job_name: grapevine\n  static_configs: [{{ targets: ['{router}'] }}]\n",
            rules.display()
        );
        std::fs::write(dir.join("prometheus.yml"), config).unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = free.local_addr().unwrap();
        drop(free);
        let started = Command::new("prometheus")
            .arg(format!("--config.file={}", dir.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = started else {
            eprintln!("SKIPPED: prometheus is not installed (Debian: apt install prometheus)");
            let _ = std::fs::remove_dir_all(&dir);
            return None;
        };
        Some(Self { process, addr, dir })
    }

    /// The answer of its API; nothing while it starts.
    async fn ask(&self, path: &str) -> Option<Value> {
        let answer = http().get(format!("http://{}{path}", self.addr)).send().await.ok()?;
        serde_json::from_slice(&answer.bytes().await.ok()?).ok()
    }

    /// Asks until the answer is as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        soon(async {
            loop {
                if let Some(answer) = self.ask(path).await.filter(&wanted) {
                    return answer;
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        })
        .await
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[tokio::test]
async fn a_prometheus_scrapes_a_router_and_evaluates_its_alerts() {
    let engine = RawEngine::json("200 OK", "{}").await;
    let router = TestRouter::before(&[&engine]).await;
    http().post(router.url("/v1/completions")).body(r#"{"prompt":"hello"}"#).send().await.unwrap();
    router.ended("ok", 1).await;
    let Some(prometheus) = Prometheus::start(router.admin) else { return };
    let has_result = |answer: &Value| answer["data"]["result"].as_array().is_some_and(|all| !all.is_empty());
    let query = "/api/v1/query?query=grapevine_requests_total%7Boutcome%3D%22ok%22%7D";
    let scraped = prometheus.until(query, has_result).await;
    assert_eq!(scraped["data"]["result"][0]["value"][1], "1");
    let query = "/api/v1/query?query=gen_ai_server_request_duration_seconds_count%7Bgen_ai_operation_name%3D%22text_completion%22%7D";
    assert_eq!(prometheus.until(query, has_result).await["data"]["result"][0]["value"][1], "1");
    let evaluated = |answer: &Value| {
        let groups = answer["data"]["groups"].as_array().and_then(|groups| groups.first());
        let rules = groups.and_then(|group| group["rules"].as_array());
        rules.is_some_and(|rules| rules.iter().all(|rule| rule["health"] == "ok"))
    };
    prometheus.until("/api/v1/rules", evaluated).await;
}
