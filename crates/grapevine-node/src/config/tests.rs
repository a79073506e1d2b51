//! The configuration as a whole: defaults, mistakes, masks, rules between settings, documentation.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::*;

const KEY: &str = "0123456789abcdef";

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// With one good replica, as every case needs.
fn parse(pairs: &[(&str, &str)]) -> Result<Config, Vec<String>> {
    let mut env = env(pairs);
    env.entry("GRAPEVINE_REPLICAS".to_owned()).or_insert_with(|| "http://a:8000".to_owned());
    Config::from_env(&env).map_err(|mistakes| mistakes.0.iter().map(Mistake::to_string).collect())
}

fn mistakes(pairs: &[(&str, &str)]) -> Vec<String> {
    parse(pairs).expect_err("a mistake")
}

#[test]
fn replicas_alone_are_enough() {
    let config = parse(&[("PATH", "/bin"), ("OTEL_PROPAGATORS", "b3")]).expect("defaults");
    assert!(config.router_id.ends_with(":8080"), "{}", config.router_id);
    let expected = Config {
        replicas: vec![ReplicaSpec::new("a:8000", "http://a:8000")],
        router_id: config.router_id.clone(),
        ..Config::default()
    };
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
}

#[test]
fn every_default_reads_back_as_itself() {
    for setting in sections().iter().flat_map(|s| &s.settings) {
        let mut config = Config::default();
        if setting.secret || matches!(setting.default.as_str(), "none") || setting.default.contains(' ') {
            continue;
        }
        setting.apply(&mut config, &setting.default).unwrap_or_else(|e| panic!("{}: {e}", setting.name));
        assert_eq!(format!("{config:?}"), format!("{:?}", Config::default()), "{}", setting.name);
    }
}

#[test]
fn every_setting_sets_one_field_of_its_own() {
    let values = [
        ("GRAPEVINE_REPLICAS", "x=http://b:1,http://c:2"),
        ("GRAPEVINE_REPLICAS_FILE", "/etc/grapevine/replicas.yaml"),
        ("GRAPEVINE_REPLICAS_DNS", "srv+http://_http._tcp.engines.example"),
        ("GRAPEVINE_DNS_SERVERS", "127.0.0.1:8600"),
        ("GRAPEVINE_REPLICAS_KUBERNETES", "inference/vllm:http"),
        ("GRAPEVINE_MODELS_INTERVAL", "5s"),
        ("GRAPEVINE_ENGINE_KIND", "llama.cpp"),
        ("GRAPEVINE_METRIC_NAMES", "waiting=my:queue"),
        ("GRAPEVINE_POLICY", "least-loaded"),
        ("GRAPEVINE_MODE", "shadow"),
        ("GRAPEVINE_REPLICA_CAPACITY", "1000"),
        ("GRAPEVINE_LISTEN", "127.0.0.1:1"),
        ("GRAPEVINE_ADMIN_LISTEN", "127.0.0.1:2"),
        ("GRAPEVINE_GOSSIP_LISTEN", "10.0.0.1:3"),
        ("GRAPEVINE_GOSSIP_ADVERTISE", "10.0.0.1:4"),
        ("GRAPEVINE_GOSSIP_SEEDS", "b:1,10.0.0.2:7946"),
        ("GRAPEVINE_GOSSIP_INTERVAL", "50ms"),
        ("GRAPEVINE_JOIN_TIMEOUT", "1s"),
        ("GRAPEVINE_ROUTER_ID", "r1"),
        ("GRAPEVINE_CLUSTER_ID", "blue"),
        ("GRAPEVINE_CLUSTER_SECRET", KEY),
        ("GRAPEVINE_CLUSTER_SECRET_PREVIOUS", "another secret, also long"),
        ("GRAPEVINE_BODY_LIMIT", "1KiB"),
        ("GRAPEVINE_CLIENT_TIMEOUT", "1s"),
        ("GRAPEVINE_CONNECT_TIMEOUT", "10ms"),
        ("GRAPEVINE_FIRST_BYTE_TIMEOUT", "24h"),
        ("GRAPEVINE_STREAM_FIRST_BYTE_TIMEOUT", "1min"),
        ("GRAPEVINE_IDLE_TIMEOUT", "1s"),
        ("GRAPEVINE_POOL_IDLE_TIMEOUT", "100ms"),
        ("GRAPEVINE_STREAM_KEEPALIVE", "15s"),
        ("GRAPEVINE_ENGINE_HTTP2", "true"),
        ("GRAPEVINE_DEBUG_HEADERS", "true"),
        ("GRAPEVINE_MAX_INFLIGHT", "0"),
        ("GRAPEVINE_MAX_INFLIGHT_PER_REPLICA", "7"),
        ("GRAPEVINE_QUEUE_LIMIT", "100"),
        ("GRAPEVINE_QUEUE_TIMEOUT", "1min"),
        ("GRAPEVINE_PRIORITY_HEADER", "x-priority"),
        ("GRAPEVINE_RETRY_RATIO", "0.5"),
        ("GRAPEVINE_SLOW_START", "0s"),
        ("GRAPEVINE_CLIENT_KEYS", "/etc/grapevine/keys"),
        ("GRAPEVINE_ENGINE_KEY", "EMPTY"),
        ("GRAPEVINE_ADMIN_TOKEN", "an admin token, long enough"),
        ("GRAPEVINE_TLS_CERT", "/etc/grapevine/tls.crt"),
        ("GRAPEVINE_TLS_KEY", "/etc/grapevine/tls.key"),
        ("GRAPEVINE_ENGINE_CA", "/etc/grapevine/ca.crt"),
        ("GRAPEVINE_HEALTH_INTERVAL", "1h"),
        ("GRAPEVINE_HEALTH_TIMEOUT", "10min"),
        ("GRAPEVINE_METRICS_INTERVAL", "0s"),
        ("GRAPEVINE_WEIGHT_PREFIX", "0"),
        ("GRAPEVINE_WEIGHT_QUEUE", "2.5"),
        ("GRAPEVINE_WEIGHT_INFLIGHT", "10000"),
        ("GRAPEVINE_WEIGHT_KV", "0.25"),
        ("GRAPEVINE_WEIGHT_HOME", "0"),
        ("GRAPEVINE_WEIGHT_SPREAD", "0.5"),
        ("GRAPEVINE_GUARD_ABS", "64"),
        ("GRAPEVINE_GUARD_REL", "1"),
        ("GRAPEVINE_TREE_MAX_BOUNDARIES", "100000000"),
        ("GRAPEVINE_COUNT_HALF_LIFE", "1s"),
        ("GRAPEVINE_IDLE_TTL", "1h"),
        ("GRAPEVINE_GRACE", "1ms"),
        ("GRAPEVINE_BYTES_PER_TOKEN", "3.5"),
        ("GRAPEVINE_LOOKUP_TIMEOUT", "100us"),
        ("GRAPEVINE_DECISION_LOG", "/tmp/decisions.jsonl"),
        ("GRAPEVINE_DECISION_LOG_SIZE", "1MiB"),
        ("GRAPEVINE_DECISION_LOG_FILES", "3"),
        ("GRAPEVINE_DRAIN_DELAY", "0s"),
        ("GRAPEVINE_DRAIN_TIMEOUT", "1s"),
        ("GRAPEVINE_WORKERS", "3"),
        ("GRAPEVINE_LOG_FORMAT", "json"),
        ("GRAPEVINE_LOG", "debug"),
    ];
    let names: Vec<_> = sections().iter().flat_map(|s| &s.settings).map(|s| s.name).collect();
    let mut tested: Vec<_> = values.iter().map(|(name, _)| *name).collect();
    assert_eq!(tested.len(), names.len());
    tested.retain(|name| !names.contains(name));
    assert_eq!(tested, [""; 0], "a setting without a case here");

    let config = parse(&values).expect("all settings");
    let default = Config::default();
    for (setting, (name, text)) in names.iter().zip(&values) {
        assert_eq!(setting, name, "in the order of the table");
        let setting = sections().iter().flat_map(|s| &s.settings).find(|s| s.name == *name).expect("a row");
        let shown = setting.show(&config);
        assert_ne!(shown, setting.show(&default), "{name} changes nothing");
        if setting.secret {
            assert_eq!(shown, "(secret)");
        } else if *name != "GRAPEVINE_REPLICAS" {
            let mut again = Config::default();
            setting.apply(&mut again, &shown).expect("what is shown reads back");
            assert_eq!(setting.show(&again), shown);
            assert!(shown == *text || shown.len() <= text.len() + 3, "{name}: {shown}");
        }
    }
    assert_eq!(config.cluster_secret.expect("set").expose(), KEY.as_bytes());
    assert_eq!(config.tree.idle_ttl_ms, 3_600_000);
    assert_eq!(config.lookup_timeout, Duration::from_micros(100));
    assert_eq!(config.replicas.len(), 2);
}

#[test]
fn all_mistakes_come_at_once() {
    let found = mistakes(&[
        ("GRAPEVINE_REPLICAS", "a:8000"),
        ("GRAPEVINE_BODY_LIMIT", "64"),
        ("GRAPEVINE_HEALTH_INTERVALL", "1s"),
        ("GRAPEVINE_LISTEN", "127.0.0.1:9090"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
    ]);
    let expected = [
        "GRAPEVINE_REPLICAS: `a:8000` has no scheme: write `http://host:port` or `https://host:port`",
        "GRAPEVINE_BODY_LIMIT: `64` has no unit: write it with one of B, KiB, MiB, GiB",
        "GRAPEVINE_HEALTH_INTERVALL: is not a setting: did you mean GRAPEVINE_HEALTH_INTERVAL?",
        "OTEL_EXPORTER_OTLP_PROTOCOL: `http/json` is not supported: use `http/protobuf` or `grpc`",
        "GRAPEVINE_ADMIN_LISTEN: 127.0.0.1:9090 is GRAPEVINE_LISTEN's address too: give it a port of its own",
    ];
    assert_eq!(found, expected);
}

#[test]
fn no_replicas_is_one_mistake() {
    for (env, name) in [(env(&[]), "unset"), (env(&[("GRAPEVINE_REPLICAS", " ")]), "empty")] {
        let mistakes = Config::from_env(&env).expect_err("no replicas").0;
        assert_eq!(mistakes.len(), 1, "{name}");
        assert!(mistakes[0].problem.starts_with("no replica is given: list"), "{name}");
    }
}

#[test]
fn unknown_names_get_the_nearest() {
    for (name, answer) in [
        ("GRAPEVINE_REPLICA", "did you mean GRAPEVINE_REPLICAS?"),
        ("GRAPEVINE_ADMIN_LISTENER", "did you mean GRAPEVINE_ADMIN_LISTEN?"),
        ("GRAPEVINE_CLUSTER_SECRETFILE", "did you mean GRAPEVINE_CLUSTER_SECRET_FILE?"),
        ("GRAPEVINE_", "`grapevine serve --help` lists them"),
        ("GRAPEVINE_SOMETHING_ELSE_ENTIRELY", "`grapevine serve --help` lists them"),
    ] {
        let found = mistakes(&[(name, "x")]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(name) && found[0].ends_with(answer), "{found:?}");
    }
}

#[test]
fn variables_of_kubernetes_services_and_of_scripts_are_left_alone() {
    let links = [
        ("GRAPEVINE_SERVICE_HOST", "10.0.0.1"),
        ("GRAPEVINE_SERVICE_PORT", "8080"),
        ("GRAPEVINE_SERVICE_PORT_HTTP", "8080"),
        ("GRAPEVINE_PORT", "tcp://10.0.0.1:8080"),
        ("GRAPEVINE_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("GRAPEVINE_PORT_8080_TCP_PROTO", "tcp"),
        ("GRAPEVINE_PORT_8080_TCP_PORT", "8080"),
        ("GRAPEVINE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("GRAPEVINE_GOSSIP_PORT_7946_UDP_ADDR", "10.0.0.1"),
        ("GRAPEVINE_GOSSIP_SERVICE_HOST", "10.0.0.1"),
        ("GRAPEVINE_BIN", "target/release/grapevine"),
    ];
    assert!(parse(&links).is_ok(), "{:?}", parse(&links));
    for name in ["GRAPEVINE_PORT", "GRAPEVINE_PORT_X_TCP", "GRAPEVINE_PORT_80_TCP_HOST"] {
        assert_eq!(mistakes(&[(name, "8080")]).len(), 1, "{name} is a mistake, not a link");
    }
}

#[test]
fn secrets_never_print() {
    let secret = "correct horse battery staple";
    let env = env(&[("GRAPEVINE_REPLICAS", "http://a:8000"), ("GRAPEVINE_CLUSTER_SECRET", secret)]);
    let config = Config::from_env(&env).expect("good");
    let rows = effective(&config, &env);
    let row = rows.iter().find(|row| row.name == "GRAPEVINE_CLUSTER_SECRET").expect("a row");
    assert_eq!((row.value.as_str(), row.source), ("(secret)", Source::Env));
    assert!(!format!("{config:?} {rows:?}").contains("horse"));
    let found = mistakes(&[("GRAPEVINE_CLUSTER_SECRET", "short horse")]);
    assert!(!found.concat().contains("horse"), "{found:?}");
}

#[test]
fn an_endpoint_is_shown_without_its_query() {
    let shown = |endpoint: &str| {
        let env =
            env(&[("GRAPEVINE_REPLICAS", "http://a:8000"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)]);
        let rows = effective(&Config::from_env(&env).unwrap(), &env);
        rows.into_iter().find(|row| row.name == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").unwrap().value
    };
    assert_eq!(shown("https://c.example/v1/traces"), "https://c.example/v1/traces");
    assert_eq!(shown("https://c.example/v1/traces?token=geheim"), "https://c.example/v1/traces?(secret)");
}

#[test]
fn secrets_have_limits() {
    const NAME: &str = "GRAPEVINE_CLUSTER_SECRET";
    assert!(parse(&[(NAME, &KEY[1..])]).is_err());
    assert!(parse(&[(NAME, KEY)]).is_ok());
    assert!(parse(&[(NAME, &"x".repeat(4096))]).is_ok());
    assert_eq!(
        mistakes(&[(NAME, &"x".repeat(4097))]),
        ["GRAPEVINE_CLUSTER_SECRET: is too long: at most 4096 bytes"]
    );
    assert_eq!(
        mistakes(&[(NAME, "")]),
        [
            "GRAPEVINE_CLUSTER_SECRET: is empty: unset it, or give a random key such as `openssl rand -hex 32` prints"
        ]
    );
    let line_ends = format!("{}\r\n", &KEY[1..]);
    assert_eq!(
        mistakes(&[(NAME, &line_ends), ("GRAPEVINE_GOSSIP_LISTEN", "10.0.0.1:1")]),
        ["GRAPEVINE_CLUSTER_SECRET: is too short: at least 16 bytes, such as `openssl rand -hex 32` prints"],
        "one mistake, not also the missing secret"
    );
    assert_eq!(
        mistakes(&[("GRAPEVINE_CLUSTER_SECRET_PREVIOUS", KEY)]),
        [
            "GRAPEVINE_CLUSTER_SECRET_PREVIOUS: is set without a current secret: set GRAPEVINE_CLUSTER_SECRET or \
          GRAPEVINE_CLUSTER_SECRET_FILE, the same on every router"
        ]
    );
}

#[test]
fn secrets_come_from_files() {
    let path = std::env::temp_dir().join(format!("grapevine-secret-{}", std::process::id()));
    fs::write(&path, format!(" {KEY}\n")).expect("a writable temporary directory");
    let path = path.to_str().expect("a UTF-8 path");
    let env = env(&[("GRAPEVINE_REPLICAS", "http://a:8000"), ("GRAPEVINE_CLUSTER_SECRET_FILE", path)]);
    let config = Config::from_env(&env).expect("good");
    let secret = config.cluster_secret.as_ref().expect("read");
    assert_eq!(secret.expose(), format!(" {KEY}").as_bytes(), "only the line end goes");
    let source =
        |name| effective(&config, &env).into_iter().find(|row| row.name == name).map(|row| row.source);
    assert_eq!(source("GRAPEVINE_CLUSTER_SECRET"), Some(Source::File));
    assert_eq!(source("GRAPEVINE_LISTEN"), Some(Source::Default));

    let both = mistakes(&[("GRAPEVINE_CLUSTER_SECRET_FILE", path), ("GRAPEVINE_CLUSTER_SECRET", KEY)]);
    let expected =
        "GRAPEVINE_CLUSTER_SECRET: is set and GRAPEVINE_CLUSTER_SECRET_FILE too: unset one of them";
    assert_eq!(both, [expected]);
    fs::write(path, "x".repeat(100_000)).expect("writable");
    let large = mistakes(&[("GRAPEVINE_CLUSTER_SECRET_FILE", path)]);
    assert!(large[0].contains("larger than 64KiB"), "{large:?}");
    fs::remove_file(path).expect("removable");
    let gone =
        mistakes(&[("GRAPEVINE_CLUSTER_SECRET_FILE", path), ("GRAPEVINE_GOSSIP_LISTEN", "10.0.0.1:1")]);
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert!(gone[0].contains("cannot be read (No such file"), "{gone:?}");
}

#[test]
fn gossip_leaves_loopback_only_sealed_and_reachable() {
    let secret = ("GRAPEVINE_CLUSTER_SECRET", KEY);
    let listen = |text| ("GRAPEVINE_GOSSIP_LISTEN", text);
    let advertise = |text| ("GRAPEVINE_GOSSIP_ADVERTISE", text);
    let good: &[&[(&str, &str)]] = &[
        &[listen("127.0.0.1:0")],
        &[listen("127.0.0.1:7946"), advertise("127.0.0.1:7000")],
        &[listen("10.0.0.1:7946"), secret],
        &[listen("0.0.0.0:7946"), secret],
        &[listen("0.0.0.0:7946"), advertise("10.0.0.1:7946"), secret],
        &[listen("[::]:7946"), advertise("10.0.0.1:7946"), secret],
        &[listen("[::1]:7946"), ("GRAPEVINE_GOSSIP_SEEDS", "[::1]:7947,localhost:7948")],
    ];
    for pairs in good {
        assert!(parse(pairs).is_ok(), "{pairs:?} {:?}", parse(pairs));
    }
    let bad: &[(&[(&str, &str)], &str)] = &[
        (
            &[listen("10.0.0.1:7946")],
            "GRAPEVINE_GOSSIP_LISTEN: 10.0.0.1:7946 is open to the network, so gossip must be sealed: set \
             GRAPEVINE_CLUSTER_SECRET or GRAPEVINE_CLUSTER_SECRET_FILE, the same on every router",
        ),
        (
            &[listen("10.0.0.1:7946"), secret, advertise("0.0.0.0:7946")],
            "GRAPEVINE_GOSSIP_ADVERTISE: peers cannot send to 0.0.0.0: give this machine's own address",
        ),
        (
            &[listen("10.0.0.1:7946"), secret, advertise("10.0.0.1:0")],
            "GRAPEVINE_GOSSIP_ADVERTISE: 10.0.0.1:0 has port 0: give the port that peers send to",
        ),
        (
            &[secret, advertise("10.0.0.1:7946")],
            "GRAPEVINE_GOSSIP_ADVERTISE: 10.0.0.1:7946 does not lead to 127.0.0.1:7946, which is loopback: set \
             GRAPEVINE_GOSSIP_LISTEN too",
        ),
        (
            &[listen("0.0.0.0:7946"), secret, advertise("[fd00::1]:7946")],
            "GRAPEVINE_GOSSIP_ADVERTISE: [fd00::1]:7946 and GRAPEVINE_GOSSIP_LISTEN 0.0.0.0:7946 are of different \
             IP versions",
        ),
        (
            &[("GRAPEVINE_GOSSIP_SEEDS", "10.0.0.2:7946")],
            "GRAPEVINE_GOSSIP_SEEDS: 10.0.0.2:7946 cannot be reached from 127.0.0.1:7946: set \
             GRAPEVINE_GOSSIP_LISTEN too",
        ),
    ];
    for (pairs, error) in bad {
        assert_eq!(mistakes(pairs), [*error]);
    }
}

#[test]
fn the_two_listeners_may_not_meet() {
    let listen = |a, b| parse(&[("GRAPEVINE_LISTEN", a), ("GRAPEVINE_ADMIN_LISTEN", b)]);
    assert!(listen("127.0.0.1:1", "127.0.0.1:1").is_err());
    assert!(listen("0.0.0.0:1", "127.0.0.1:1").is_err());
    assert!(listen("127.0.0.2:1", "127.0.0.1:1").is_ok());
    assert!(listen("127.0.0.1:0", "127.0.0.1:0").is_ok());
}

#[test]
fn port_0_gives_a_router_id_of_its_own() {
    let config = parse(&[("GRAPEVINE_LISTEN", "127.0.0.1:0")]).expect("good");
    assert!(config.router_id.ends_with(&format!("-{}", std::process::id())), "{}", config.router_id);
}

#[test]
fn values_that_are_not_text_are_refused() {
    struct Broken;
    impl Strings for Broken {
        fn get(&self, name: &str) -> Result<Option<String>, NotUnicode> {
            if name == "GRAPEVINE_REPLICAS" { Err(NotUnicode) } else { Ok(None) }
        }
        fn names(&self) -> Vec<String> {
            vec!["GRAPEVINE_REPLICAS".to_owned()]
        }
    }
    let error = Config::from_env(&Broken).expect_err("not text").to_string();
    assert_eq!(error, "GRAPEVINE_REPLICAS: is not valid UTF-8");
}

#[test]
fn help_names_every_setting() {
    let help = help();
    for setting in sections().iter().flat_map(|s| &s.settings) {
        assert!(help.contains(&format!("  {}", setting.name)), "{}", setting.name);
        assert!(setting.doc.ends_with('.'), "{}: {}", setting.name, setting.doc);
    }
    assert!(help.lines().all(|line| line.len() <= 100));
}

#[test]
fn the_documentation_is_fresh() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let fresh = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &fresh).expect("docs/ is writable");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == fresh,
        "docs/configuration.md is stale: UPDATE_DOCS=1 cargo test -p grapevine-node config writes it"
    );
}
