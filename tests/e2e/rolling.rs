//! Routers are replaced under load, and nobody notices.

use std::time::Duration;

use super::client::{Resolver, Traffic};
use super::process::{Engine, LIMIT, Router, free_udp, wait_for};
use super::seat::{Seat, retire};

const ROUTERS: usize = 3;

/// One second and a half of generation: longer than the delay, so that streams outlive it.
const STREAM_TOKENS: u32 = 75;

#[test]
fn a116_a_rolling_restart_under_load_with_long_streams_fails_no_request() {
    let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--decode-ms-per-token", "20"])).collect();
    let replicas: Vec<_> = engines.iter().map(|engine| engine.url.clone()).collect();
    let seeds: Vec<_> = (0..ROUTERS).map(|_| free_udp()).collect();
    let seats: Vec<_> = (0..ROUTERS).map(|number| Seat::new(number, &seeds)).collect();
    let mut routers: Vec<_> = seats.iter().map(|seat| seat.start(Router::command(), &replicas)).collect();

    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = grapevine_testkit::load::http_client(64, LIMIT).unwrap();
    let traffic = {
        let _inside = runtime.enter();
        Traffic::start(24, STREAM_TOKENS, &Resolver::start(&routers, &client), &client)
    };
    for (seat, router) in seats.iter().zip(&mut routers) {
        wait_for("it to carry load", || (router.status().inflight > 0).then_some(()));
        retire(router);
        *router = seat.start(Router::command(), &replicas);
        wait_for("it to be met again", || (router.status().gossip.live_peers == ROUTERS - 1).then_some(()));
    }
    let last = routers.last().unwrap();
    wait_for("the last one to carry load again", || (last.status().inflight > 0).then_some(()));
    let (done, failed) = runtime.block_on(traffic.end());
    assert_eq!(failed, Vec::<String>::new(), "{done} were whole");
    assert!(done >= 24, "{done} streams");
    runtime.shutdown_timeout(Duration::from_secs(1));
    for router in &routers {
        wait_for("nothing in flight", || (router.status().inflight == 0).then_some(()));
    }
}

#[test]
fn a114_a_stream_that_outlives_the_drain_ends_in_an_error_event_and_the_router_in_0() {
    let engine = Engine::start(&["--decode-ms-per-token", "200"]);
    let settings =
        [("GRAPEVINE_DRAIN_DELAY", "100ms".to_owned()), ("GRAPEVINE_DRAIN_TIMEOUT", "300ms".to_owned())];
    let mut router = Router::start(std::slice::from_ref(&engine.url), &settings);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = grapevine_testkit::load::http_client(1, LIMIT).unwrap();
    let traffic = {
        let _inside = runtime.enter();
        Traffic::start(1, 10_000, &Resolver::start(std::slice::from_ref(&router), &client), &client)
    };
    wait_for("the stream to run", || (router.status().inflight == 1).then_some(()));
    router.process.signal("TERM");
    assert_eq!(router.process.end().code(), Some(0), "{}", router.process.log());
    let (done, failed) = runtime.block_on(traffic.end());
    assert_eq!(done, 0);
    assert!(failed[0].contains("cut"), "the connection broke after the error event: {failed:?}");
    wait_for("the engine to be let go", || (engine.stats().running == 0).then_some(()));
}
