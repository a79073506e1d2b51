//! The binary as a user meets it: exit codes, help, effective settings, start and end.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A command that sees `env` and no other settings.
fn grapevine(args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grapevine"));
    command.args(args).env_clear().envs(env.iter().copied());
    command
}

fn run(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = grapevine(args, env).output().expect("it starts");
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

const REPLICA: (&str, &str) = ("GRAPEVINE_REPLICAS", "http://127.0.0.1:9");

#[test]
fn a_wrong_configuration_is_exit_code_64_everywhere() {
    let env = [("GRAPEVINE_BODY_LIMIT", "64"), ("GRAPEVINE_REPLICA", "http://a")];
    for args in [&["serve"][..], &["config"], &["config", "--check"], &["health"]] {
        let (code, stdout, stderr) = run(args, &env);
        assert_eq!((code, stdout.as_str()), (Some(64), ""), "{args:?}");
        let lines: Vec<_> = stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{stderr}");
        assert_eq!(lines[0], "grapevine: 2 mistakes in the configuration");
        assert!(lines[1].starts_with("GRAPEVINE_BODY_LIMIT: `64` has no unit"), "{stderr}");
        assert!(lines[2].starts_with("GRAPEVINE_REPLICA: is not a setting: did you mean"), "{stderr}");
    }
}

#[test]
fn an_address_that_is_no_base_url_is_said_at_once() {
    for (address, why) in [
        ("127.0.0.1:9", "`127.0.0.1:9` has no scheme: write `http://host:port`"),
        ("http://", "`http://` is not a URL: empty host"),
        ("http://user:hunter2@127.0.0.1:9", "has credentials in it"),
        ("http://127.0.0.1:9/?x=1", "has a query or fragment"),
        ("http://127.0.0.1:0", "has port 0"),
    ] {
        for args in [&["load", address][..], &["up", "--replicas", address]] {
            let (code, _, stderr) = run(args, &[]);
            assert_eq!(code, Some(2), "{args:?}: {stderr}");
            // What was written is shown by clap before the reason.
            assert!(stderr.contains(why), "{args:?}: {stderr}");
        }
    }
}

#[test]
fn up_says_at_once_which_engine_it_cannot_reach() {
    let (code, stdout, stderr) = run(&["up", "--replicas", "http://127.0.0.1:1/,http://127.0.0.1:2"], &[]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "nothing was started");
    for said in ["http://127.0.0.1:1: ", "http://127.0.0.1:2: ", "refused", "leave them out of --replicas"] {
        assert!(stderr.contains(said), "no {said} in {stderr}");
    }
}

#[test]
fn load_tells_a_failure_once() {
    let (code, stdout, stderr) = run(&["load", "http://127.0.0.1:1", "--seconds", "1", "--rate", "20"], &[]);
    assert_eq!(code, Some(1));
    assert!(!stdout.contains("refused") && stdout.contains(" failed"), "{stdout}");
    assert!(stderr.contains("no request got a good answer; the first failure: "), "{stderr}");
    assert_eq!(stderr.matches("refused").count(), 1, "{stderr}");
}

#[test]
fn who_is_asked_where_nobody_is_says_how_to_say_where() {
    let env = [("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:1")];
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (args, flag) in [(&["top", "--once"][..], "top HOST:PORT"), (&["explain", file], "--admin HOST:PORT")]
    {
        let (code, _, stderr) = run(args, &env);
        assert_eq!(code, Some(1), "{args:?}");
        for said in
            ["http://127.0.0.1:1 does not answer: ", flag, "GRAPEVINE_ADMIN_LISTEN", "`grapevine up` prints"]
        {
            assert!(stderr.contains(said), "{args:?}: no {said} in {stderr}");
        }
    }
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let (absent, below) = ("/no/such/file.json", "/dev/null/pages");
    for args in [&["explain", absent][..], &["replay", absent], &["man", "--dir", below]] {
        let (code, _, stderr) = run(args, &[]);
        assert_eq!(code, Some(1), "{args:?}");
        assert!(stderr.contains(args[args.len() - 1]), "{args:?}: {stderr}");
    }
}

/// Another test holds that the legend has every column.
#[test]
fn the_help_of_top_explains_its_columns() {
    for help in ["-h", "--help"] {
        let (code, text, _) = run(&["top", help], &[]);
        assert_eq!(code, Some(0));
        assert!(text.contains("BELIEVED, believed") && text.contains("-` is unknown, not zero"), "{text}");
    }
}

/// `serve` logs the same sentence: it is one function.
#[test]
fn a_closed_admin_listener_is_warned_of() {
    let wide = ("GRAPEVINE_ADMIN_LISTEN", "0.0.0.0:9090");
    let token = ("GRAPEVINE_ADMIN_TOKEN", "correct horse battery");
    for args in [&["config"][..], &["config", "--check"], &["config", "--json"]] {
        let (code, stdout, stderr) = run(args, &[REPLICA, wide]);
        assert_eq!(code, Some(0), "{args:?}: it is allowed");
        assert!(
            stderr.starts_with("grapevine: warning: GRAPEVINE_ADMIN_LISTEN: 0.0.0.0:9090 is open"),
            "{stderr}"
        );
        assert!(!stdout.contains("warning"), "{stdout}");
        assert_eq!(run(args, &[REPLICA, wide, token]).2, "");
    }
}

#[test]
fn config_shows_what_serve_would_run_with() {
    let secret = "correct horse battery staple";
    let env = [REPLICA, ("GRAPEVINE_CLUSTER_SECRET", secret), ("GRAPEVINE_LISTEN", "127.0.0.1:1234")];
    assert_eq!(
        run(&["config", "--check"], &env),
        (Some(0), "the configuration is good\n".into(), String::new())
    );

    let (code, stdout, _) = run(&["config"], &env);
    assert_eq!(code, Some(0));
    let row = |name: &str| {
        let line = stdout.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.expect(name).split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("GRAPEVINE_LISTEN"), "env 127.0.0.1:1234");
    assert_eq!(row("GRAPEVINE_ADMIN_LISTEN"), "default 127.0.0.1:9090");
    assert_eq!(row("GRAPEVINE_CLUSTER_SECRET"), "env (secret)");
    assert!(row("GRAPEVINE_ROUTER_ID").ends_with(":1234"));
    assert_eq!(row("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), "default none");

    let (code, json, _) = run(&["config", "--json"], &env);
    assert_eq!(code, Some(0));
    assert!(!stdout.contains("horse") && !json.contains("horse"));
    let rows: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), stdout.lines().count());
    let listen = rows.iter().find(|row| row["name"] == "GRAPEVINE_LISTEN").unwrap();
    assert_eq!((&listen["value"], &listen["source"]), (&"127.0.0.1:1234".into(), &"env".into()));
}

#[test]
fn help_is_enough_to_start() {
    let (code, help, _) = run(&["--help"], &[]);
    assert_eq!(code, Some(0));
    for word in ["serve", "config", "engine", "health", "version", "GRAPEVINE_REPLICAS=http://"] {
        assert!(help.contains(word), "{word}");
    }
    let (code, help, _) = run(&["serve", "--help"], &[]);
    assert_eq!(code, Some(0));
    assert!(
        help.contains("GRAPEVINE_REPLICAS\n") && help.contains("[address: IP:port; default: 127.0.0.1:8080]"),
        "{help}"
    );
    assert_eq!(run(&["serv"], &[]).0, Some(2));
    assert_eq!(run(&[], &[]).0, Some(2));
}

#[test]
fn versions_read_by_people_and_programs() {
    let (_, text, _) = run(&["version"], &[]);
    assert!(text.starts_with(concat!("grapevine ", env!("CARGO_PKG_VERSION"), " (")), "{text}");
    let (_, json, _) = run(&["version", "--json"], &[]);
    let facts: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["wire_version"].is_u64() && facts["hash_scheme"].is_u64(), "{facts}");
    assert_eq!(run(&["--version"], &[]).1, concat!("grapevine ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn completions_and_pages_know_every_subcommand() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, text, _) = run(&["completions", shell], &[]);
        assert_eq!(code, Some(0), "{shell}");
        assert!(text.contains("serve") && text.contains("completions"), "{shell}");
    }
    let (code, page, _) = run(&["man"], &[]);
    assert_eq!(code, Some(0));
    assert!(page.starts_with(".ie") && page.contains("GRAPEVINE_REPLICAS="), "{page}");

    let dir = std::env::temp_dir().join(format!("grapevine-man-{}", std::process::id()));
    assert_eq!(run(&["man", "--dir", dir.to_str().unwrap()], &[]).0, Some(0));
    let serve = std::fs::read_to_string(dir.join("grapevine-serve.1")).unwrap();
    assert!(serve.contains("GRAPEVINE_DRAIN_TIMEOUT"), "the settings are part of the page");
    std::fs::remove_dir_all(dir).unwrap();
}

/// A router as a child process; killed when the test ends, whatever happens.
struct Router {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Router {
    fn start(env: &[(&str, &str)]) -> Self {
        let json = [REPLICA, ("GRAPEVINE_LOG_FORMAT", "json"), ("GRAPEVINE_GOSSIP_LISTEN", "127.0.0.1:0")];
        let env: Vec<_> = json.iter().chain(env).copied().collect();
        let mut child = grapevine(&["serve"], &env).stderr(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next log line with `message`.
    fn logged(&mut self, message: &str) -> serde_json::Value {
        for line in self.lines.by_ref() {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).expect("a JSON log line");
            if line["message"].as_str().is_some_and(|text| text.contains(message)) {
                return line;
            }
        }
        panic!("it ended without logging `{message}`");
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("kill exists").success());
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sigterm_drains_and_ends_well() {
    let mut router = Router::start(&[
        ("GRAPEVINE_LISTEN", "127.0.0.1:0"),
        ("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:0"),
        ("GRAPEVINE_DRAIN_DELAY", "0s"),
        ("GRAPEVINE_WORKERS", "1"),
    ]);
    let up = router.logged("router is up");
    for listener in ["listen", "admin_listen", "gossip_listen"] {
        assert!(!up[listener].as_str().unwrap().ends_with(":0"), "the bound port of {listener}: {up}");
    }
    router.signal("-TERM");
    router.logged("draining");
    router.logged("stopped");
    assert_eq!(router.end().code(), Some(0));
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut router = Router::start(&[
        ("GRAPEVINE_LISTEN", "127.0.0.1:0"),
        ("GRAPEVINE_ADMIN_LISTEN", "0.0.0.0:0"),
        ("GRAPEVINE_DRAIN_DELAY", "10min"),
    ]);
    router.logged("router is up");
    let warned = router.logged("GRAPEVINE_ADMIN_LISTEN: 0.0.0.0:0 is open to the network");
    assert_eq!(warned["level"], "WARN", "{warned}");
    router.signal("-INT");
    router.logged("draining");
    router.signal("-TERM");
    router.logged("second signal");
    assert_eq!(router.end().code(), Some(130));
}

#[test]
fn a_taken_port_is_said_by_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let env = [REPLICA, ("GRAPEVINE_LISTEN", &listen), ("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:0")];
    let (code, _, stderr) = run(&["serve"], &env);
    assert_eq!(code, Some(1));
    assert!(stderr.contains(&listen) && stderr.contains("in use"), "{stderr}");
}

#[test]
fn health_is_what_readyz_says() {
    let admin = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = admin.local_addr().unwrap().to_string();
    let env = [REPLICA, ("GRAPEVINE_ADMIN_LISTEN", addr.as_str())];
    for (answer, code) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 0),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", 1),
        ("no HTTP", 1),
    ] {
        let child = grapevine(&["health"], &env).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stream, _) = admin.accept().unwrap();
        let mut asked = [0; 20];
        stream.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"GET /readyz HTTP/1.1");
        stream.write_all(answer.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
    // A port that nobody takes: one just given back may be another test's by now.
    let (code, _, stderr) = run(&["health"], &[REPLICA, ("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:1")]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("not ready") && stderr.contains("refused"), "{stderr}");
}

/// Reads one HTTP/1.1 request or response with a Content-Length, head included.
fn read_message(stream: &mut impl Read) -> Vec<u8> {
    let (mut message, mut byte) = (Vec::new(), [0]);
    while !message.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("a head");
        message.push(byte[0]);
    }
    let head = String::from_utf8(message.clone()).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).expect("a length");
    let mut body = vec![0; length.trim().parse().unwrap()];
    stream.read_exact(&mut body).expect("a body");
    message.extend(body);
    message
}

/// Answers every export that reaches `listener`, of whatever signal, and hands it on.
fn collect(listener: TcpListener) -> mpsc::Receiver<Vec<u8>> {
    let (exports, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let exports = exports.clone();
            thread::spawn(move || answer_exports(stream.unwrap(), &exports));
        }
    });
    received
}

fn answer_exports(mut stream: TcpStream, exports: &mpsc::Sender<Vec<u8>>) {
    while stream.peek(&mut [0]).is_ok_and(|bytes| bytes > 0) {
        exports.send(read_message(&mut stream)).ok();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
}

/// Also the proof that spans of the last requests leave before the process does. Strings and ids
/// stand in protobuf as they are, so no decoder is needed.
#[test]
fn spans_reach_the_collector_before_the_end() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let exports = collect(collector);
    let mut router = Router::start(&[
        ("GRAPEVINE_LISTEN", "127.0.0.1:0"),
        ("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:0"),
        ("GRAPEVINE_DRAIN_DELAY", "0s"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        // Nobody waits for the timer: the end sends them.
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ("HTTP_PROXY", "http://127.0.0.1:9"),
    ]);
    let listen = router.logged("router is up")["listen"].as_str().unwrap().to_owned();
    let mut client = TcpStream::connect(listen).unwrap();
    let body = r#"{"model":"llama-3","messages":[{"role":"user","content":"a secret prompt"}]}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         traceparent: 00-{TRACE}-b7ad6b7169203331-01\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).unwrap();
    let answer = String::from_utf8(read_message(&mut client)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 50"), "no engine listens: {answer}");
    drop(client);
    router.signal("-TERM");
    assert_eq!(router.end().code(), Some(0));

    // What had been sent by the end of the process was read by `collect`, or is about to be.
    let mut exports = std::iter::from_fn(|| exports.recv_timeout(Duration::from_secs(30)).ok());
    let of_traces = |export: &Vec<u8>| export.starts_with(b"POST /v1/traces HTTP/1.1\r\n");
    let export = exports.find(of_traces).expect("an export of spans");
    let has = |needle: &[u8]| export.windows(needle.len()).any(|window| window == needle);
    for text in
        ["POST /v1/chat/completions", "route", "chat llama-3", "grapevine.reason", "service.instance.id"]
    {
        assert!(has(text.as_bytes()), "{text}");
    }
    let trace: Vec<u8> = (0..16).map(|i| u8::from_str_radix(&TRACE[2 * i..2 * i + 2], 16).unwrap()).collect();
    assert!(has(&trace), "the client's trace goes on");
    assert!(!has(b"secret prompt"), "prompts are never recorded");
}
