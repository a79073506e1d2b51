//! Names of metrics, attributes, alerts and warnings: what the code says is what the documents, the dashboard
//! and the alerts say.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use grapevine_node::admin::warnings::CODES;

use crate::support::*;

fn repository(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Words of `text` that begin with `prefix` and go on with `more`.
fn words(text: &str, prefix: &str, more: fn(char) -> bool) -> BTreeSet<String> {
    let begins =
        text.match_indices(prefix).filter(|(at, _)| !text[..*at].ends_with(|c: char| more(c) || c == '/'));
    begins
        .map(|(at, _)| text[at..].split(|c: char| !more(c)).next().unwrap().trim_end_matches('.').to_owned())
        .filter(|word| word.len() > prefix.len())
        .collect()
}

fn metric_letter(c: char) -> bool {
    c.is_ascii_lowercase() || c == '_'
}

/// `/metrics` of a router that has served something.
async fn scraped() -> String {
    let engine = RawEngine::json("200 OK", "{}").await;
    let mut config = config(&[engine.addr]);
    config.decision_log = Some(std::env::temp_dir().join(format!("grapevine-names-{}", std::process::id())));
    let log = config.decision_log.clone().unwrap();
    let router = TestRouter::start(config).await;
    http().post(router.url("/v1/completions")).body(r#"{"prompt":"hello"}"#).send().await.unwrap();
    router.ended("ok", 1).await;
    let (status, text) = router.admin_get("/metrics").await;
    assert_eq!(status, 200);
    let _ = std::fs::remove_file(log);
    text
}

/// Names as a query uses them: counters with `_total`, histograms with their parts.
fn queried(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let name = name.strip_suffix("_total").unwrap_or(name);
        match kind {
            "counter" => _ = names.insert(format!("{name}_total")),
            "histogram" => names.extend(["_bucket", "_sum", "_count"].map(|part| format!("{name}{part}"))),
            _ => _ = names.insert(name.to_owned()),
        }
    }
    names
}

#[tokio::test]
async fn every_metric_is_documented_and_no_other() {
    let text = scraped().await;
    let doc = repository("docs/observability.md");
    let (_, table) = doc.split_once("\n| metric | type |").unwrap();
    let table = table.split("\n\n").next().unwrap();
    let rows: BTreeSet<_> = table
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect();
    let real: BTreeSet<_> = queried(&text)
        .into_iter()
        .filter(|name| !name.ends_with("_bucket") && !name.ends_with("_count"))
        .map(|name| name.trim_end_matches("_sum").to_owned())
        .collect();
    assert_eq!(rows, real);
}

#[tokio::test]
async fn dashboard_and_alerts_ask_for_metrics_that_exist() {
    let known = queried(&scraped().await);
    for path in ["deploy/grafana/grapevine.json", "deploy/prometheus/rules.yaml"] {
        let text = repository(path);
        let asked =
            ["grapevine_", "gen_ai_server_", "http_server_"].map(|ours| words(&text, ours, metric_letter));
        let asked: BTreeSet<_> = asked.into_iter().flatten().collect();
        assert!(asked.len() > 10, "{path}");
        let unknown: Vec<_> = asked.difference(&known).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
}

#[test]
fn every_alert_and_every_warning_has_its_entry() {
    let (rules, doc) = (repository("deploy/prometheus/rules.yaml"), repository("docs/operations.md"));
    let alerts: Vec<_> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10);
    for alert in alerts {
        assert!(doc.contains(&format!("### {alert}\n")), "{alert}");
        assert!(rules.contains(&format!("docs/operations.md#{}\n", alert.to_lowercase())), "{alert}");
    }
    for code in CODES {
        assert!(doc.contains(&format!("`{code}`")), "{code}");
    }
}

#[test]
fn every_attribute_of_spans_is_documented_and_no_other() {
    let code = repository("crates/grapevine-node/src/telemetry/spans.rs");
    let quoted = code.split('"').skip(1).step_by(2);
    let prefixes = ["http.", "url.", "network.", "server.", "error.", "gen_ai.", "grapevine."];
    let is_name = |text: &&str| {
        prefixes.iter().any(|prefix| text.starts_with(prefix))
            && text.chars().all(|c| metric_letter(c) || c == '.')
    };
    let real: BTreeSet<_> = quoted.filter(is_name).collect();
    let doc = repository("docs/observability.md");
    let (_, spans) = doc.split_once("## Spans").unwrap();
    let (spans, _) = spans.split_once("\n## ").unwrap();
    let documented: BTreeSet<_> = spans.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert_eq!(documented, real);
}

/// Runs promtool with `input`; `None`, and says so, where it is not installed.
fn promtool(arguments: &[&str], input: &str) -> Option<(bool, String)> {
    let started = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        eprintln!("SKIPPED: promtool is not installed (Debian: apt install prometheus)");
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    Some((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[tokio::test]
async fn promtool_finds_nothing_wrong() {
    let rules = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus/rules.yaml");
    let checks = [
        (vec!["check", "metrics"], scraped().await),
        (vec!["check", "rules", rules.to_str().unwrap()], String::new()),
    ];
    for (arguments, input) in checks {
        if let Some((good, said)) = promtool(&arguments, &input) {
            assert!(good, "{arguments:?}: {said}");
        }
    }
}
