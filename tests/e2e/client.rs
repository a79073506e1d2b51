//! A client that has a list of routers and asks who of them is ready, as whatever stands before a fleet does.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::process::{LIMIT, Router};

/// Time between two looks who is ready.
const LOOK: Duration = Duration::from_millis(50);

/// A router's public and admin address.
#[derive(Clone, Debug)]
struct Target {
    url: String,
    admin: String,
}

/// The routers that are ready, as of the last look.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    ready: Arc<Mutex<Vec<String>>>,
}

impl Resolver {
    /// Looks for as long as it is not dropped with its runtime.
    pub(crate) fn start(routers: &[Router], client: &reqwest::Client) -> Self {
        let target = |r: &Router| Target { url: r.url.clone(), admin: r.admin.clone() };
        let targets: Vec<_> = routers.iter().map(target).collect();
        let ready = Arc::new(Mutex::new(targets.iter().map(|target| target.url.clone()).collect()));
        let (seen, client) = (Arc::clone(&ready), client.clone());
        tokio::spawn(async move {
            loop {
                let mut found = Vec::new();
                for target in &targets {
                    let asked = client.get(format!("{}/readyz", target.admin)).timeout(LIMIT).send();
                    if asked.await.is_ok_and(|answer| answer.status() == 200) {
                        found.push(target.url.clone());
                    }
                }
                *seen.lock().unwrap() = found;
                sleep(LOOK).await;
            }
        });
        Self { ready }
    }

    fn pick(&self, turn: usize) -> Option<String> {
        let ready = self.ready.lock().unwrap();
        ready.get(turn % ready.len().max(1)).cloned()
    }
}

/// Clients that send one stream after the other until told to stop.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<(usize, Vec<String>)>>,
}

impl Traffic {
    /// `count` clients; each stream has `tokens` tokens.
    pub(crate) fn start(count: usize, tokens: u32, resolver: &Resolver, client: &reqwest::Client) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let run = |number: usize| {
            let (stop, resolver, client) = (Arc::clone(&stop), resolver.clone(), client.clone());
            tokio::spawn(async move {
                let (mut done, mut failed) = (0, Vec::new());
                while !stop.load(Relaxed) {
                    let Some(url) = resolver.pick(number + done) else {
                        failed.push("no router is ready".to_owned());
                        sleep(LOOK).await;
                        continue;
                    };
                    match stream(&client, &url, number, tokens).await {
                        Ok(()) => done += 1,
                        Err(why) => failed.push(format!("{url}: {why}")),
                    }
                }
                (done, failed)
            })
        };
        let tasks = (0..count).map(run).collect();
        Self { stop, tasks }
    }

    /// Lets every client finish its stream: how many were whole, and what failed.
    pub(crate) async fn end(self) -> (usize, Vec<String>) {
        self.stop.store(true, Relaxed);
        let (mut done, mut failed) = (0, Vec::new());
        for task in self.tasks {
            let (whole, errors) = timeout(LIMIT, task).await.expect("a stream that never ends").unwrap();
            done += whole;
            failed.extend(errors);
        }
        (done, failed)
    }
}

/// One stream, read to its end.
async fn stream(client: &reqwest::Client, url: &str, number: usize, tokens: u32) -> Result<(), String> {
    let messages = json!([{"role": "user", "content": format!("client {number}")}]);
    let body = json!({"model": "mock-model", "stream": true, "max_tokens": tokens, "messages": messages});
    let request =
        client.post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
    let answer = request.body(body.to_string()).send().await.map_err(|error| format!("{error:?}"))?;
    let status = answer.status();
    let text = answer.text().await.map_err(|error| format!("cut: {error:?}"))?;
    match status.is_success() && text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\"") {
        true => Ok(()),
        false => Err(format!("{status}: {}", text.chars().take(300).collect::<String>())),
    }
}
