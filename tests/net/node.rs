//! Routers in namespaces of their own.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::hub::{HUB, HUB_V6, sh};
use super::process::{Engine, Head, Process, chat, exchange, get, wait_for};

/// Long enough for the secret's check; sealing is not optional off loopback.
const SECRET: &str = "a secret of the network tests";

/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:00:99";

/// A namespace with one interface on the bridge.
pub(crate) struct Host {
    holder: Child,
    number: u8,
}

impl Host {
    /// Host `number` at 10.77.0.`number` and fd77::`number`.
    pub(crate) fn new(number: u8) -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "3600"]).stdin(Stdio::null()).spawn();
        let host = Self { holder: holder.unwrap(), number };
        let pid = host.holder.id();
        let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = namespace("self");
        wait_for("a namespace", || (namespace(&pid.to_string())? != own.clone()?).then_some(()));
        sh(&format!(
            "ip link add h{number} type veth peer name e{number} netns {pid} \
             && ip link set h{number} master br0 up"
        ));
        host.sh(&format!(
            "ip link set lo up && ip addr add 10.77.0.{number}/24 dev e{number} \
             && ip addr add fd77::{number}/64 dev e{number} nodad && ip link set e{number} up"
        ));
        host
    }

    /// Its address.
    pub(crate) fn ip(&self) -> String {
        format!("10.77.0.{}", self.number)
    }

    pub(crate) fn ip_v6(&self) -> String {
        format!("fd77::{}", self.number)
    }

    /// Nothing that this host sends to `other` arrives any more.
    pub(crate) fn cut(&self, other: &Self) {
        self.sh(&format!("ip route add blackhole {}/32", other.ip()));
    }

    /// It does again.
    pub(crate) fn mend(&self, other: &Self) {
        self.sh(&format!("ip route del blackhole {}/32", other.ip()));
    }

    /// What this host sends to `other` is lost on the way, and nobody says so: as when a machine has lost its
    /// power, or a firewall drops.
    pub(crate) fn lose(&self, other: &Self) {
        let number = self.number;
        self.sh(&format!("ip neigh replace {} lladdr {NOBODY} dev e{number} nud permanent", other.ip()));
    }

    /// It arrives again.
    pub(crate) fn find(&self, other: &Self) {
        self.sh(&format!("ip neigh del {} dev e{}", other.ip(), self.number));
    }

    /// A command that runs on this host; what it runs comes as further arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.holder.id().to_string(), "-n", "--"]);
        command
    }

    fn sh(&self, script: &str) {
        sh(&format!("nsenter -t {} -n -- sh -c '{script}'", self.holder.id()));
    }

    /// A router on this host.
    pub(crate) fn router(&self, replicas: &str, seeds: &str, settings: &[(&str, String)]) -> Router {
        Router::start(self, &self.ip(), replicas, seeds, settings)
    }

    /// A router on this host's IPv6 address.
    pub(crate) fn router_v6(&self, replicas: &str, seeds: &str) -> Router {
        Router::start(self, &self.ip_v6(), replicas, seeds, &[])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// A router that was started on some host.
pub(crate) struct Router {
    pub(crate) process: Process,
    pub(crate) url: String,
    admin: String,
}

impl Router {
    fn start(host: &Host, ip: &str, replicas: &str, seeds: &str, settings: &[(&str, String)]) -> Self {
        let at = |port: u16| match ip.parse().unwrap() {
            IpAddr::V4(_) => format!("{ip}:{port}"),
            IpAddr::V6(_) => format!("[{ip}]:{port}"),
        };
        let mut all = vec![
            ("GRAPEVINE_LISTEN", at(8080)),
            ("GRAPEVINE_ADMIN_LISTEN", at(9091)),
            ("GRAPEVINE_GOSSIP_LISTEN", at(7946)),
            ("GRAPEVINE_GOSSIP_SEEDS", seeds.to_owned()),
            ("GRAPEVINE_ROUTER_ID", format!("r{}", host.number)),
            ("GRAPEVINE_REPLICAS", replicas.to_owned()),
            ("GRAPEVINE_CLUSTER_SECRET", SECRET.to_owned()),
            ("GRAPEVINE_ADMIN_TOKEN", SECRET.to_owned()),
            ("GRAPEVINE_DEBUG_HEADERS", "true".to_owned()),
            ("GRAPEVINE_LOG_FORMAT", "json".to_owned()),
        ];
        for (name, value) in settings {
            all.retain(|(other, _)| other != name);
            all.push((name, value.clone()));
        }
        let port_of = |name: &str| all.iter().find(|(n, _)| *n == name).map(|(_, v)| format!("http://{v}"));
        let (url, admin) = (port_of("GRAPEVINE_LISTEN").unwrap(), port_of("GRAPEVINE_ADMIN_LISTEN").unwrap());
        let mut command = host.command();
        command.args([env!("CARGO_BIN_EXE_grapevine"), "serve"]);
        let process = Process::spawn(command, &all);
        wait_for("a router to be ready", || (get(&format!("{admin}/readyz")).0 == 200).then_some(()));
        Self { process, url, admin }
    }

    /// What it says of itself.
    pub(crate) fn status(&self) -> Value {
        let token = format!("Bearer {SECRET}");
        let url = format!("{}/api/v1/status", self.admin);
        serde_json::from_slice(&exchange(&url, "GET", &[("authorization", &token)], b"").1).unwrap()
    }

    pub(crate) fn live_peers(&self) -> u64 {
        self.status()["gossip"]["live_peers"].as_u64().unwrap()
    }

    /// Waits until it sees so many live peers.
    pub(crate) fn meets(&self, peers: u64) {
        wait_for(&format!("{} to see {peers} peers", self.url), || {
            (self.live_peers() == peers).then_some(())
        });
    }

    /// Asks with a long prompt of its own; which replica answered, and why that one.
    pub(crate) fn ask(&self, tag: &str) -> (String, String) {
        let text = format!("{tag} ").repeat(700);
        let messages = json!([{"role": "system", "content": text}, {"role": "user", "content": "hi"}]);
        let (head, _): (Head, _) = chat(&self.url, &messages);
        assert_eq!(head.status, 200, "{}", self.url);
        let header = |name: &str| head.header(name).unwrap_or_default().to_owned();
        (header("x-grapevine-replica"), header("x-grapevine-reason"))
    }

    /// Prefixes that it has heard of the router on host `number`.
    pub(crate) fn heard_of(&self, number: u8) -> u64 {
        let status = self.status();
        let peers = status["peers"].as_array().unwrap();
        let of_name = peers.iter().find(|peer| peer["name"] == format!("r{number}"));
        of_name.map_or(0, |peer| peer["entries"].as_u64().unwrap())
    }

    /// Waits until it has heard more than `before` of the router on host `number`. To ask it earlier
    /// would teach it a place of its own.
    pub(crate) fn hears_of(&self, number: u8, before: u64) {
        let what = format!("{} to hear of r{number}", self.url);
        wait_for(&what, || (self.heard_of(number) > before).then_some(()));
    }

    /// Waits until it sends this prompt to `replica`, because it knows that it is there.
    pub(crate) fn comes_to_know(&self, tag: &str, replica: &str) {
        wait_for(&format!("{} to know {tag}", self.url), || {
            let (chosen, reason) = self.ask(tag);
            (chosen == replica && reason == "affinity").then_some(())
        });
    }
}

/// Engines beside the bridge, and their addresses as routers are told.
pub(crate) fn engines(count: usize, v6: bool) -> (Vec<Engine>, String) {
    let listen = if v6 { format!("[{HUB_V6}]:0") } else { format!("{HUB}:0") };
    let args = ["--listen", &listen, "--base-ms", "0", "--prefill-us-per-block", "0"];
    let engines: Vec<Engine> = (0..count).map(|_| Engine::start(&args)).collect();
    let urls: Vec<String> = engines.iter().map(|engine| engine.url.clone()).collect();
    (engines, urls.join(","))
}

/// Hosts 1 to `count`, and their gossip addresses as seeds.
pub(crate) fn hosts(count: u8) -> (Vec<Host>, String) {
    let hosts: Vec<Host> = (1..=count).map(Host::new).collect();
    let seeds: Vec<String> = hosts.iter().map(|host| format!("{}:7946", host.ip())).collect();
    (hosts, seeds.join(","))
}
