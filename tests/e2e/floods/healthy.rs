//! Clients that do nothing wrong, while others do.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use grapevine_testkit::load::{HttpClient, http_client};

use super::super::process::{LIMIT, Router};

/// Clients at a time.
const CLIENTS: usize = 4;

/// Ends what runs beside a flood, also when the flood fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `flood`. Every request of those who do nothing wrong is answered with 200 meanwhile, and right after it.
/// Says how long they took.
pub(super) fn served_during<T>(what: &str, router: &Router, flood: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients = scope.spawn(|| ask_until(router, &over));
        let end = End(&over);
        let result = flood();
        drop(end);
        let mut times = clients.join().unwrap();
        times.sort();
        let at = |share: usize| times[(times.len() - 1) * share / 100];
        println!("{what}: {} healthy requests, p50 {:?}, p99 {:?}", times.len(), at(50), at(99));
        result
    })
}

/// How long each request took, at least one of each client after it is `over`.
fn ask_until(router: &Router, over: &AtomicBool) -> Vec<Duration> {
    let client = http_client(CLIENTS, LIMIT).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asks = (0..CLIENTS).map(|_| async {
        let mut times = Vec::new();
        loop {
            let last = over.load(Relaxed);
            times.push(ask(&client, router).await);
            if last {
                return times;
            }
        }
    });
    runtime.block_on(futures_util::future::join_all(asks)).concat()
}

async fn ask(client: &HttpClient, router: &Router) -> Duration {
    let began = Instant::now();
    let request = client.post(format!("{}/v1/completions", router.url));
    let request = request.header("content-type", "application/json");
    let answer = request.body(r#"{"model":"m","prompt":"hello"}"#).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.bytes().await.unwrap(), "{}");
    began.elapsed()
}
