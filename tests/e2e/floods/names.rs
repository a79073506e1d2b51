//! Names that nobody has heard of: models, paths, header values, prompts.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures_util::future::join_all;
use grapevine_testkit::load::http_client;

use super::super::process::{LIMIT, Router, get, wait_for};
use super::healthy::served_during;
use super::{engine, quiet_settings};

/// Boundaries that the tree may have: fewer than the flood brings.
const TREE: usize = 5_000;

/// What may be allocated by chance between two looks.
const NOISE_BYTES: usize = 24 << 20;

/// Clients of the flood at a time.
const CLIENTS: usize = 16;

/// Sends the requests of the numbers `from` up to `to`: each has a model, a path, header values and a prompt of its own.
fn send(router: &Router, from: usize, to: usize) {
    let client = http_client(CLIENTS, LIMIT).unwrap();
    let next = AtomicUsize::new(from);
    let clients = (0..CLIENTS).map(|_| async {
        loop {
            let i = next.fetch_add(1, Relaxed);
            if i >= to {
                return;
            }
            let path =
                if i.is_multiple_of(2) { "/v1/completions".to_owned() } else { format!("/v1/unknown/{i}") };
            let prompt = format!("{i} lorem ipsum dolor sit amet ").repeat(20);
            let body = format!("{{\"model\":\"fake-{i}\",\"prompt\":\"{prompt}\"}}");
            let request =
                client.post(format!("{}{path}", router.url)).header("x-tenant", format!("fake-{i}"));
            let answer = request.header("user-agent", format!("fake-{i}")).body(body).send().await.unwrap();
            assert_eq!(answer.status().as_u16(), if i.is_multiple_of(2) { 200 } else { 404 });
            answer.bytes().await.unwrap();
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(join_all(clients));
}

/// Names and labels of a router's metrics.
fn series(router: &Router) -> Vec<String> {
    let text = String::from_utf8(get(&format!("{}/metrics", router.admin)).1).unwrap();
    text.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
}

/// Sends `count` requests, half of them before the first look.
fn flood(count: usize) {
    let mut settings = quiet_settings();
    settings.push(("GRAPEVINE_TREE_MAX_BOUNDARIES", TREE.to_string()));
    let router = Router::start(&[engine::start()], &settings);
    served_during("names", &router, || {
        send(&router, 0, count / 2);
        let (series_before, before) = (series(&router), router.process.memory("VmRSS"));
        send(&router, count / 2, count);
        let grown = router.process.memory("VmRSS").saturating_sub(before);
        println!("names: {} MiB, {} KiB more in the second half", before >> 20, grown >> 10);
        assert!(grown < NOISE_BYTES, "{} KiB grown", grown >> 10);
        assert_eq!(series(&router), series_before, "no series comes from a request");
    });
    assert!(!series(&router).iter().any(|name| name.contains("fake")));
    wait_for("the tree to be swept", || (router.status().tree.boundaries <= TREE).then_some(()));
    assert!(router.status().tree.evicted > 0, "it was full");
}

#[test]
fn a108_a109_names_that_nobody_knows_cost_nothing_that_lasts() {
    flood(6_000);
}

#[test]
#[ignore = "measures"]
fn names_at_full_size() {
    flood(100_000);
}
