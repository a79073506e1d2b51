//! `grapevine top --once` and `grapevine explain` against a fleet.

use std::process::{Command, Output};

use super::process::{Engine, chat, free_tcp, routers};

const TOKEN: &str = "an admin token, long enough";

fn grapevine(args: &[&str], token: Option<&str>) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grapevine"));
    command.args(args).env_clear();
    command.envs(token.map(|token| ("GRAPEVINE_ADMIN_TOKEN", token)));
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// The cells of the row that begins with `name`.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no row {name} in\n{table}")).split_whitespace().collect()
}

#[test]
fn any_router_tells_of_all_of_them() {
    let engine = Engine::start(&["--base-ms", "0"]);
    let routers = routers(2, std::slice::from_ref(&engine.url), &[]);
    let messages = serde_json::json!([{"role": "user", "content": "hello"}]);
    assert_eq!(chat(&routers[0].url, &messages).0.status, 200);
    let (code, table, said) = grapevine(&["top", "--once", &routers[1].admin], None);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(row(&table, "r1")[..3], ["r1", "serving", "1"], "{table}");
    assert_eq!(row(&table, "r2")[..3], ["r2", "serving", "0"], "{table}");
    assert_eq!(row(&table, engine.url.trim_start_matches("http://"))[1], "up", "{table}");

    let gone = free_tcp();
    let (code, table, said) = grapevine(&["top", "--once", &gone, &routers[0].admin], None);
    assert_eq!((code, row(&table, "asked")[1]), (Some(0), "r1"), "the second answers: {said}");
}

#[test]
fn it_says_why_there_is_nothing_to_see() {
    let engine = Engine::start(&["--base-ms", "0"]);
    let settings = [("GRAPEVINE_ADMIN_TOKEN", TOKEN.to_owned())];
    let router = super::process::Router::start(std::slice::from_ref(&engine.url), &settings);
    let (code, table, said) = grapevine(&["top", "--once", &router.admin], None);
    assert_eq!((code, table.as_str()), (Some(1), ""));
    assert!(said.contains("wants a token: set GRAPEVINE_ADMIN_TOKEN"), "{said}");
    assert_eq!(grapevine(&["top", "--once", &router.admin], Some(TOKEN)).0, Some(0));

    let gone = free_tcp();
    let (code, _, said) = grapevine(&["top", "--once", &gone], None);
    assert_eq!(code, Some(1));
    assert!(said.starts_with(&format!("grapevine: http://{gone} does not answer")), "{said}");
    let (code, _, said) = grapevine(&["top", &router.admin], Some(TOKEN));
    assert_eq!(code, Some(1));
    assert!(said.contains("--once"), "a pipe is no terminal: {said}");
}

#[test]
fn explain_prints_the_votes_and_sends_nothing() {
    let engine = Engine::start(&["--base-ms", "0"]);
    let router = super::process::Router::start(std::slice::from_ref(&engine.url), &[]);
    let file = std::env::temp_dir().join(format!("grapevine-explain-{}.json", std::process::id()));
    let body = serde_json::json!({"model": "mock-model", "messages": [{"role": "user", "content": "hello"}]});
    std::fs::write(&file, body.to_string()).unwrap();
    let asked = ["explain", "--admin", &router.admin, file.to_str().unwrap()];
    let (code, text, said) = grapevine(&asked, None);
    assert_eq!(code, Some(0), "{said}");
    let name = engine.url.trim_start_matches("http://");
    assert!(text.starts_with(&format!("{name}: it was the only candidate")), "{text}");
    assert!(text.contains(&format!("> {name}")), "{text}");
    assert_eq!(router.status().replicas[0].picks, 0);
    std::fs::remove_file(&file).unwrap();
    let (code, _, said) = grapevine(&asked, None);
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("cannot read {}: No such file", file.display())), "{said}");
}

#[test]
fn a_request_that_cannot_go_anywhere_is_named_with_its_model() {
    let engine = Engine::start(&["--base-ms", "0"]);
    let router = super::process::Router::start(std::slice::from_ref(&engine.url), &[]);
    let known = || router.status().replicas[0].models.is_some().then_some(());
    super::process::wait_for("the engine's models", known);
    let file = std::env::temp_dir().join(format!("grapevine-no-model-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"model":"no-such","messages":[]}"#).unwrap();
    let (code, _, said) = grapevine(&["explain", "--admin", &router.admin, file.to_str().unwrap()], None);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code, Some(1));
    let named = said.starts_with(&format!("grapevine: {}: http://", file.display()));
    assert!(named && said.contains("answered 404: model_not_found: no replica serves `no-such`"), "{said}");
}

/// One router was asked for, so nobody is missed.
#[test]
fn up_tells_how_to_watch_it_and_one_router_warns_of_nothing() {
    let args = ["up", "--routers", "1", "--engines", "1", "--seconds", "60", "--plain"];
    let mut up = super::process::Process::start(&args, &[]);
    let admin = up.line(|line| line.split_once("grapevine top ").map(|(_, admin)| admin.to_owned()));
    let (code, table, said) = grapevine(&["top", "--once", &admin], None);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(row(&table, "r1")[1], "serving", "{table}");
    assert!(!table.contains("GRAPEVINE_GOSSIP_SEEDS"), "{table}");
    up.signal("INT");
    assert!(up.end().success());
}
