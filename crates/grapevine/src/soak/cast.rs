//! The processes: routers of a fleet, simulated engines, and the file that tells the first of the second.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::fleet::Fleet;
use crate::local::{Process, free_tcp_ports};

/// Most boundaries that a router remembers here. Reached in the first minute, so that what grows
/// afterwards is no knowledge.
const TREE_BOUNDARIES: &str = "5000";

/// A simulated engine: a cache for about 20 of the prefixes, 8,000 tokens of prefill a second.
const ENGINE: [&str; 8] = [
    "--cache-blocks",
    "1340",
    "--prefill-us-per-block",
    "2000",
    "--base-ms",
    "5",
    "--decode-ms-per-token",
    "5",
];

/// Between two looks whether an engine listens.
const LOOK: Duration = Duration::from_millis(20);

/// Everything that runs.
pub(super) struct Cast {
    pub(super) fleet: Fleet,
    pub(super) engines: Vec<Engine>,
    list: PathBuf,
    /// Engines that are not listed now.
    unlisted: BTreeSet<usize>,
}

/// One engine.
pub(super) struct Engine {
    /// `host:port`, as routers call it.
    pub(super) name: String,
    pub(super) process: Process,
}

impl Cast {
    /// Starts engines, then routers that read of them in a file.
    pub(super) async fn start(routers: usize, engines: usize) -> Result<Self, Box<dyn Error>> {
        let mut started = Vec::new();
        for number in 1..=engines {
            started.push(Engine::start(number).await?);
        }
        let list = std::env::temp_dir().join(format!("grapevine-soak-{}.json", std::process::id()));
        write_list(&list, &started, &BTreeSet::new())?;
        let settings = [
            ("GRAPEVINE_REPLICAS_FILE", list.display().to_string()),
            ("GRAPEVINE_TREE_MAX_BOUNDARIES", TREE_BOUNDARIES.to_owned()),
            ("GRAPEVINE_DRAIN_DELAY", "500ms".to_owned()),
        ];
        let fleet = Fleet::start(routers, "r", &settings).await?;
        Ok(Self { fleet, engines: started, list, unlisted: BTreeSet::new() })
    }

    /// The routers' public addresses.
    pub(super) fn urls(&self) -> Vec<String> {
        self.fleet.routers.iter().map(|router| router.url.clone()).collect()
    }

    /// Takes an engine off the list, or puts it back.
    pub(super) fn list(&mut self, engine: usize, listed: bool) -> io::Result<()> {
        if listed {
            self.unlisted.remove(&engine)
        } else {
            self.unlisted.insert(engine)
        };
        write_list(&self.list, &self.engines, &self.unlisted)
    }

    /// Lets what was stopped go on and starts what has ended: the next look is at a whole fleet.
    pub(super) async fn mend(&mut self) -> Result<(), Box<dyn Error>> {
        for engine in &mut self.engines {
            engine.process.signal(Signal::CONT);
            if engine.process.has_ended() {
                engine.restart().await?;
            }
        }
        for at in 0..self.fleet.routers.len() {
            let Some(router) = self.fleet.routers.get_mut(at) else { continue };
            router.process.signal(Signal::CONT);
            if router.process.has_ended() {
                self.fleet.restart(at).await?;
            }
        }
        Ok(())
    }

    /// Ends everything.
    pub(super) async fn stop(mut self) {
        for engine in &mut self.engines {
            engine.process.kill().await;
        }
        // The next run writes its own.
        let _ = fs::remove_file(&self.list);
        self.fleet.stop().await;
    }
}

impl Engine {
    async fn start(number: usize) -> io::Result<Self> {
        let [port] = free_tcp_ports()?;
        let text = port.to_string();
        let args = [&["engine", "--port", text.as_str()], &ENGINE[..]].concat();
        let process = Process::start(&format!("e{number}"), &args, [])?;
        let engine = Self { name: format!("127.0.0.1:{port}"), process };
        engine.listens().await;
        Ok(engine)
    }

    /// Starts it again when it has ended, with nothing in its cache.
    pub(super) async fn restart(&mut self) -> io::Result<()> {
        self.process.ended().await;
        self.process.start_again()?;
        self.listens().await;
        Ok(())
    }

    async fn listens(&self) {
        while TcpStream::connect(&self.name).await.is_err() {
            sleep(LOOK).await;
        }
    }
}

/// Writes the list beside its place and moves it there, so that nobody reads half of it.
fn write_list(path: &PathBuf, engines: &[Engine], unlisted: &BTreeSet<usize>) -> io::Result<()> {
    let listed = engines.iter().enumerate().filter(|(at, _)| !unlisted.contains(at));
    let urls: Vec<String> = listed.map(|(_, engine)| format!("http://{}", engine.name)).collect();
    let beside = path.with_extension("new");
    fs::write(&beside, serde_json::json!({ "replicas": urls }).to_string())?;
    fs::rename(beside, path)
}
