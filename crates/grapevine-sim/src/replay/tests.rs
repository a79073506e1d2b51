//! Replays from end to end: small traces with known answers, every format, every policy.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    replay: ReplayArgs,
}

fn args(path: &std::path::Path, flags: &str) -> ReplayArgs {
    let head = ["replay".to_owned(), path.display().to_string()];
    Cli::try_parse_from(head.into_iter().chain(flags.split_whitespace().map(str::to_owned))).unwrap().replay
}

/// A file that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn of(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("grapevine-replay-{}-{number}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn run(bytes: &[u8], flags: &str) -> (Result<String, ReplayError>, String) {
    let file = Scratch::of(bytes);
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let result = run_replay(&args(&file.0, flags), &mut out, &mut err);
    (result.map(|()| String::from_utf8(out).unwrap()), String::from_utf8(err).unwrap())
}

fn json(bytes: &[u8], flags: &str) -> Value {
    let (result, _) = run(bytes, &format!("--json {flags}"));
    serde_json::from_str(&result.unwrap()).unwrap()
}

/// Sessions of growing prompts: every turn adds four blocks to what the session had.
fn sessions(sessions: u32, turns: u32) -> String {
    let mut text = String::from("{\"meta\":{\"block_tokens\":64}}\n");
    for turn in 0..turns {
        for session in 0..sessions {
            let blocks = (turn + 1) * 4;
            let first = 10 + session * turns * 4;
            let at = match turn {
                0 => format!("\"t\":{}", f64::from(session) * 0.7),
                turn => {
                    format!("\"parent\":{},\"gate\":\"finish\",\"delay\":3", (turn - 1) * sessions + session)
                }
            };
            text += &format!(
                "{{\"sess\":{session},\"in\":{},\"out\":20,\"runs\":[[0,8],[{first},{blocks}]],{at}}}\n",
                (blocks + 8) * 64 + 30
            );
        }
    }
    text
}

/// An engine with round numbers: 1,000 tokens a second and 10 ms a token.
const PLAIN: &str = "--prefill-rate 1000 --prefill-fixed 0s --decode-token 10ms --decode-share 0s";

#[test]
fn a_trace_of_two_equal_prompts_has_a_known_answer() {
    let trace = concat!(
        "{\"meta\":{\"block_tokens\":16}}\n",
        "{\"in\":160,\"out\":11,\"runs\":[[0,10]],\"t\":0}\n",
        "{\"in\":160,\"out\":11,\"runs\":[[0,10]],\"t\":1}\n",
    );
    let report = json(trace.as_bytes(), &format!("--replicas 1 --cache 1000 {PLAIN}"));
    // The second finds nine of its ten blocks: the last one's last token must be computed.
    assert_eq!(report["hit_rate"], json!(0.45));
    assert_eq!(report["bound"], json!(0.45));
    assert_eq!(report["ttft_mean_s"], json!(0.088));
    assert_eq!(report["ttft_p99_s"], json!(0.16));
    assert_eq!(report["virtual_s"], json!(1.116));
    assert_eq!(report["requests"], json!(2));
    assert_eq!(report["decisions"]["only"], json!(2));
}

#[test]
fn prefills_wait_for_each_other_and_children_for_their_parents() {
    let trace = concat!(
        "{\"meta\":{\"block_tokens\":16}}\n",
        "{\"in\":100,\"out\":11,\"runs\":[],\"t\":0}\n",
        "{\"in\":100,\"out\":1,\"runs\":[],\"parent\":0,\"gate\":\"arrival\",\"delay\":0.05}\n",
        "{\"in\":100,\"out\":1,\"runs\":[],\"parent\":0,\"gate\":\"finish\",\"delay\":1}\n",
    );
    let report = json(trace.as_bytes(), &format!("--replicas 1 --cache 1000 {PLAIN}"));
    // 0.1 s; 0.05 s of waiting and 0.1 s; 0.1 s, from 0.1 + 0.1 + 1 on.
    assert_eq!(report["ttft_mean_s"], json!((0.35f64 / 3.0 * 1e6).round() / 1e6));
    assert_eq!(report["virtual_s"], json!(1.3));
}

#[test]
fn a_replica_whose_cache_is_in_use_makes_the_next_one_wait() {
    let trace = concat!(
        "{\"meta\":{\"block_tokens\":10}}\n",
        "{\"in\":100,\"out\":101,\"runs\":[[0,10]],\"t\":0}\n",
        "{\"in\":100,\"out\":1,\"runs\":[[10,10]],\"t\":0.2}\n",
    );
    // Room for one of them: the second starts when the first ends, at 0.1 + 1.0.
    let report = json(trace.as_bytes(), &format!("--replicas 1 --cache 150 {PLAIN}"));
    assert_eq!(report["ttft_p99_s"], json!(1.0));
    let roomy = json(trace.as_bytes(), &format!("--replicas 1 --cache 200 {PLAIN}"));
    assert_eq!(roomy["ttft_p99_s"], json!(0.1));
}

#[test]
fn one_seed_gives_one_output_byte_for_byte() {
    let trace = sessions(20, 5);
    let flags = "--json --routers 3 --loss 0.3 --cache 20%";
    let (first, second) = (run(trace.as_bytes(), flags).0.unwrap(), run(trace.as_bytes(), flags).0.unwrap());
    assert_eq!(first, second);
    let other = run(trace.as_bytes(), &format!("{flags} --seed 2")).0.unwrap();
    assert_ne!(first, other, "the seed has no effect");
}

#[test]
fn affinity_reaches_the_bound_where_there_is_room_and_random_does_not() {
    let trace = sessions(24, 6);
    let hit = |flags: &str| {
        let report = json(trace.as_bytes(), flags);
        report["hit_rate"].as_f64().unwrap() / report["bound"].as_f64().unwrap()
    };
    assert!(hit("--cache 100%") > 0.95);
    assert!(hit("--cache 100% --policy random") < 0.7);
    assert!(hit("--cache 100% --routers 4") > 0.95, "routers share what they know");
    assert!(hit("--cache 100% --routers 4 --policy sglang") < hit("--cache 100% --routers 4"));
}

#[test]
fn every_policy_answers_every_request() {
    let trace = sessions(12, 3);
    let report = json(trace.as_bytes(), "--policy all --routers 2");
    let policies = report["policies"].as_array().unwrap();
    assert_eq!(policies.len(), RuleName::ALL.len());
    for policy in policies {
        assert_eq!(policy["requests"], json!(36), "{policy}");
        let decisions = policy["decisions"].as_object().unwrap().values();
        assert_eq!(decisions.map(|n| n.as_u64().unwrap()).sum::<u64>(), 36);
        for name in ["hit_rate", "bound"] {
            assert!((0.0..=1.0).contains(&policy[name].as_f64().unwrap()), "{name} of {policy}");
        }
        for name in ["work_imbalance", "request_imbalance"] {
            assert!(policy[name].as_f64().unwrap() >= 1.0, "{name} of {policy}");
        }
    }
    assert_eq!(report["policy"], json!("affinity"));
}

#[test]
fn bad_lines_are_counted_and_named_and_only_bad_lines_are_an_error() {
    let mut trace = sessions(3, 1);
    trace.push_str("garbage\n");
    let (result, err) = run(trace.as_bytes(), "--json");
    assert!(err.contains("1 bad lines; line 5: "), "{err}");
    assert!(result.unwrap().contains("\"bad_lines\":1"));
    for bad in ["garbage\n", "", "{\"meta\":{\"block_tokens\":16}}\nno\n"] {
        let (result, _) = run(bad.as_bytes(), "");
        assert!(matches!(result, Err(ReplayError::Trace(TraceError::Empty { .. }))), "{bad:?}");
    }
}

#[test]
fn packed_traces_are_read_like_plain_ones() {
    let trace = sessions(6, 2);
    let mut packed = Vec::new();
    lzma_rs::xz_compress(&mut trace.as_bytes(), &mut packed).unwrap();
    assert_eq!(json(&packed, ""), json(trace.as_bytes(), ""));
    let broken = run(&packed[..packed.len() / 2], "").0;
    assert!(matches!(broken, Err(ReplayError::Trace(TraceError::Unpack { .. }))));
}

#[test]
fn agents_calls_come_as_lines_or_as_a_tar_of_sessions() {
    let line = |at: u64, session: &str, text: &str| {
        format!(
            "{{\"timestamp\":{at},\"input\":\"{}\",\"output\":\"ok\",\"session_id\":\"{session}\"}}\n",
            text.repeat(200)
        )
    };
    let (a, b) = (line(1_000_000, "a", "one"), line(3_000_000, "b", "one"));
    let late = line(2_000_000, "a", "two");
    let mut tar = tar::Builder::new(Vec::new());
    for (name, text) in [("x/b.jsonl", b.clone()), ("x/a.jsonl", format!("{a}{late}"))] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        tar.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    let tar = tar.into_inner().unwrap();
    let lines = json(format!("{a}{late}{b}").as_bytes(), "--replicas 2 --cache 100%");
    assert_eq!(lines, json(&tar, "--replicas 2 --cache 100%"));
    assert_eq!(lines["requests"], json!(3));
    // b's prompt equals a's first: 600 bytes, of which 9 blocks of 64.
    assert_eq!(lines["hit_rate"], json!((144.0f64 / 450.0 * 1e6).round() / 1e6));
}

#[test]
fn request_logs_go_through_the_real_extractor() {
    let body = |question: &str| {
        let system = "You are a careful assistant. ".repeat(40);
        format!(
            r#"{{"model":"m","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{question}"}}]}}"#
        )
    };
    let log = format!("{}\n{}\n{}\n", body("one"), body("two"), body("one"));
    let report = json(log.as_bytes(), "--cache 100% --rate 1");
    assert_eq!((report["requests"].as_u64(), report["bad_lines"].as_u64()), (Some(3), Some(0)));
    assert!(report["hit_rate"].as_f64().unwrap() > 0.5, "{report}");
    let decisions = &report["decisions"];
    assert_eq!(decisions["affinity"], json!(2), "{decisions}");
    assert!(report["overpredicted"].as_f64().unwrap() < 0.01);
}

#[test]
fn a_limit_and_a_speed_do_what_they_say() {
    let trace = sessions(10, 1);
    assert_eq!(json(trace.as_bytes(), "--limit 4")["requests"], json!(4));
    let slow = json(trace.as_bytes(), "")["virtual_s"].as_f64().unwrap();
    let fast = json(trace.as_bytes(), "--speed 10")["virtual_s"].as_f64().unwrap();
    assert!(fast < slow / 3.0, "{fast} against {slow}");
}

#[test]
fn plots_are_well_formed_and_name_every_policy() {
    let trace = sessions(4, 2);
    let image = Scratch::of(b"");
    let (result, _) = run(trace.as_bytes(), &format!("--policy all --plot {}", image.0.display()));
    let table = result.unwrap();
    let svg = std::fs::read_to_string(&image.0).unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for rule in RuleName::ALL {
        assert!(svg.contains(&format!(">{rule}<")) && table.contains(rule.name()), "{rule}");
    }
}

#[test]
fn affinity_stands_beside_the_plain_policies_unless_one_is_named() {
    let trace = sessions(8, 3);
    let names = |flags: &str| {
        let report = json(trace.as_bytes(), flags);
        let policies = report["policies"].as_array().cloned().unwrap_or_default();
        let names: Vec<String> =
            policies.iter().filter_map(|p| p["policy"].as_str().map(str::to_owned)).collect();
        (report["policy"].as_str().unwrap().to_owned(), names)
    };
    let beside = ["random", "round-robin", "least-loaded", "affinity"].map(str::to_owned).to_vec();
    assert_eq!(names(""), ("affinity".to_owned(), beside));
    assert_eq!(names("--policy sticky"), ("sticky".to_owned(), vec![]));
    assert_eq!(names("--policy sticky,random,sticky").1, ["sticky", "random"]);
    assert!(Cli::try_parse_from(["replay", "x", "--policy", "best"]).is_err());
}

#[test]
fn gzip_directories_and_empty_files() {
    let trace = sessions(6, 2);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(trace.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(json(&gzip, ""), json(trace.as_bytes(), ""));
    let broken = run(&gzip[..gzip.len() / 2], "").0;
    assert!(matches!(broken, Err(ReplayError::Trace(TraceError::Unpack { .. }))));

    let folder = Scratch::of(b"");
    std::fs::remove_file(&folder.0).unwrap();
    std::fs::create_dir(&folder.0).unwrap();
    let half = trace.match_indices('\n').nth(5).unwrap().0 + 1;
    std::fs::write(folder.0.join("b.jsonl"), &trace[half..]).unwrap();
    std::fs::write(folder.0.join("a.jsonl"), &trace[..half]).unwrap();
    std::fs::write(folder.0.join(".hidden"), "garbage").unwrap();
    let mut out = Vec::new();
    run_replay(&args(&folder.0, "--json"), &mut out, &mut Vec::new()).unwrap();
    std::fs::remove_dir_all(&folder.0).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), json(trace.as_bytes(), ""));
}

#[test]
fn routers_learn_what_caches_hold() {
    let trace = sessions(200, 8);
    let wrong = |flags: &str| {
        let flags = format!("--cache 12% --replicas 2 --policy affinity --grace 0s {flags}");
        let report = json(trace.as_bytes(), &flags);
        report["underpredicted"].as_f64().unwrap() + report["overpredicted"].as_f64().unwrap()
    };
    let (known, told) = (wrong(""), wrong("--capacity-error 0.1"));
    assert!(told > known + 0.2, "the error has no effect: {told}, {known}");
    for error in ["0.1", "0.5", "8"] {
        let learnt = wrong(&format!("--capacity learn --capacity-error {error}"));
        assert!(learnt < known + (told - known) / 4.0, "{error}: {learnt}, not {known} but {told}");
    }
}

#[test]
fn a_lost_cache_is_noticed_by_answers_and_told_to_peers() {
    // A chat begins every 0.7 s, says something every 3.5 s or so, and ends after eight turns.
    let trace = sessions(200, 8);
    let flags = "--replicas 2 --cache 100% --policy affinity --routers 3 --reset 80s";
    let with = json(trace.as_bytes(), flags);
    let without = json(trace.as_bytes(), &format!("{flags} --no-feedback"));
    let over = |report: &Value| report["after_loss"]["overpredicted"].as_f64().unwrap();
    assert!((1..=3).contains(&with["verdicts"].as_u64().unwrap()), "{with}");
    assert_eq!(without["verdicts"], json!(0));
    assert!(over(&with) < over(&without), "{with} against {without}");
}

#[test]
fn a_burst_of_equal_cold_prompts_is_neither_prefilled_everywhere_nor_on_one_replica() {
    let mut trace = String::from("{\"meta\":{\"block_tokens\":64}}\n");
    for n in 0..32 {
        trace += &format!(
            "{{\"sess\":{n},\"in\":2048,\"out\":200,\"runs\":[[0,32]],\"t\":{}}}\n",
            f64::from(n) * 0.0003
        );
    }
    // Within 10 ms a router knows only what it sent itself: the guard holds each one's own excess.
    for (routers, most) in [(1, 15.0), (4, 32.0)] {
        let flags = format!("--policy affinity --cache 1000000 --routers {routers}");
        let report = json(trace.as_bytes(), &flags);
        let prefilled = (1.0 - report["hit_rate"].as_f64().unwrap()) * 32.0;
        let on_one = report["request_imbalance"].as_f64().unwrap() * 32.0 / 8.0;
        assert!(prefilled < 4.5, "{routers} routers: prefilled {prefilled} times");
        assert!(on_one <= most, "{routers} routers: {on_one} on one replica");
    }
}
