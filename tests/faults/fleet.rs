//! The fleet that is made to suffer, and its surroundings.

use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex};

use grapevine_testkit::workload::{Order, Workload, WorkloadConfig};
use tokio::runtime::Runtime;

use super::collector::Collector;
use super::dns::Dns;
use super::files::Files;
use super::process::{Process, wait_for};
use super::seats::{EngineSeat, RouterSeat};
use super::traffic::{Balancer, Traffic};

pub(crate) const ROUTERS: u8 = 3;
pub(crate) const ENGINES: u8 = 4;

/// Engines as routers call them: two by the names in the file, two by their addresses.
pub(crate) const NAMES: [&str; ENGINES as usize] = ["e1", "e2", "10.77.0.13:8000", "10.77.0.14:8000"];

/// Hosts of engines come after those of routers.
const FIRST_ENGINE: u8 = 11;

/// Prefixes of 4 KiB that are asked for in turn; see the engines' caches.
const PREFIXES: usize = 30;

/// What is broken is put here, and taken away when it is mended.
#[derive(Default)]
pub(crate) struct Debris {
    /// Connections of clients that say nothing.
    pub(crate) idlers: Vec<TcpStream>,
    /// Processes that compute for nothing.
    pub(crate) burners: Vec<Process>,
}

/// Two engines are listed in a file, and two are found by DNS, as the routers find each other.
pub(crate) struct Fleet {
    pub(crate) engines: Vec<EngineSeat>,
    pub(crate) routers: Vec<RouterSeat>,
    pub(crate) dns: Dns,
    pub(crate) collector: Collector,
    pub(crate) files: Files,
    pub(crate) debris: Debris,
    pub(crate) runtime: Runtime,
    balancer: Balancer,
    asks: Arc<Mutex<Workload>>,
}

impl Fleet {
    /// One whose routers have met.
    pub(crate) fn start() -> Self {
        let engines: Vec<EngineSeat> = (0..ENGINES).map(|i| EngineSeat::new(FIRST_ENGINE + i)).collect();
        let listed =
            |(engine, name): (&EngineSeat, &&str)| format!("- {{url: \"{}\", name: {name}}}\n", engine.url());
        let files = Files::new(engines.iter().zip(&NAMES[..2]).map(listed).collect());
        let ip = |number: u8| format!("10.77.0.{number}").parse().unwrap();
        let dns = Dns::start(vec![
            ("engines.fleet.test".to_owned(), (2..ENGINES).map(|i| ip(FIRST_ENGINE + i)).collect()),
            ("routers.fleet.test".to_owned(), (1..=ROUTERS).map(ip).collect()),
        ]);
        let collector = Collector::well();
        let routers: Vec<RouterSeat> = (1..=ROUTERS).map(|number| RouterSeat::new(number, &files)).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let targets = routers.iter().map(|router| (router.url(), router.admin())).collect();
        let balancer = Balancer::start(targets, runtime.handle());
        let asks = WorkloadConfig {
            prefixes: PREFIXES,
            order: Order::Rounds,
            endless: true,
            ..WorkloadConfig::default()
        };
        let asks = Arc::new(Mutex::new(Workload::new(asks)));
        let debris = Debris::default();
        let fleet = Self { engines, routers, dns, collector, files, debris, runtime, balancer, asks };
        wait_for("the fleet to be whole", || fleet.is_whole().then_some(()));
        fleet
    }

    /// Clients begin to ask.
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic::start(&self.balancer, &self.asks, self.runtime.handle())
    }

    /// Every router is ready, sees both others, and counts every engine as good.
    pub(crate) fn is_whole(&self) -> bool {
        self.routers.iter().all(|router| {
            router.is_ready()
                && router.status().is_some_and(|status| {
                    status.gossip.live_peers == usize::from(ROUTERS) - 1
                        && status.replicas.len() == usize::from(ENGINES)
                        && status.replicas.iter().all(|replica| replica.health == "up")
                })
        })
    }

    /// Nothing is in flight, and nothing is believed to be.
    pub(crate) fn is_idle(&self) -> bool {
        self.routers.iter().all(RouterSeat::is_idle) && self.engines.iter().all(EngineSeat::is_idle)
    }

    /// Resident memory of the largest router, MiB.
    pub(crate) fn memory(&self) -> u64 {
        self.routers.iter().map(RouterSeat::memory).max().unwrap_or_default()
    }

    /// The routers are replaced one after the other, by such as have these settings.
    pub(crate) fn roll(&mut self, settings: &[(&'static str, Option<&str>)]) {
        for router in &mut self.routers {
            router.retire();
            settings.iter().for_each(|(name, value)| router.set(name, *value));
            router.start();
            router.becomes_ready();
        }
    }

    /// Nothing that this router and that engine send each other arrives.
    pub(crate) fn cut_engine(&self, router: usize, engine: usize) {
        self.routers[router].host.lose(&self.engines[engine].host);
        self.engines[engine].host.lose(&self.routers[router].host);
    }

    pub(crate) fn join_engine(&self, router: usize, engine: usize) {
        self.routers[router].host.find(&self.engines[engine].host);
        self.engines[engine].host.find(&self.routers[router].host);
    }

    /// Nothing that router `from` sends to router `to` arrives.
    pub(crate) fn cut(&self, from: usize, to: usize) {
        self.routers[from].host.lose(&self.routers[to].host);
    }

    pub(crate) fn join(&self, from: usize, to: usize) {
        self.routers[from].host.find(&self.routers[to].host);
    }

    /// So many clients of this router connect and say nothing.
    pub(crate) fn idle_at(&mut self, router: usize, count: usize) {
        let addr = self.routers[router].url().trim_start_matches("http://").to_owned();
        self.debris.idlers = (0..count).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    }

    /// So many processes compete for the first core.
    pub(crate) fn burn(&mut self, count: usize) {
        let burner = |_| {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "nice", "-n", "5", "sh", "-c", "while :; do :; done"]);
            Process::spawn(command, &[])
        };
        self.debris.burners = (0..count).map(burner).collect();
    }
}
