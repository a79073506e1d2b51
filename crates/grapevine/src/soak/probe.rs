//! What the fleet is made of at a moment: memory, descriptors, tasks, tree, gossip.

use std::fs;
use std::time::Duration;

use grapevine_node::admin::status::Status;
use tokio::time::{Instant, sleep};

use super::cast::Cast;
use super::ledger::{Counts, Ledger};
use crate::admin::AdminClient;
use crate::figures::{bytes, or_unknown, percent};

/// After the traffic's end nothing may be in flight any more after this: longer than a hung engine's
/// probes take, shorter than any limit of a request.
const REST_LIMIT: Duration = Duration::from_secs(30);

/// Idle connections to engines are closed after `GRAPEVINE_POOL_IDLE_TIMEOUT`, 3 s by default, and the
/// clients' after 4 s.
const IDLE: Duration = Duration::from_secs(6);

/// What the spared router is made of. Absent: this system does not say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    pub(super) memory: Option<f64>,
    pub(super) descriptors: Option<f64>,
    pub(super) tasks: Option<f64>,
    pub(super) boundaries: Option<f64>,
    /// Gossip that it sent in this step, bytes for each request of the fleet.
    pub(super) gossip: Option<f64>,
    /// Token hit rate of all requests of this step.
    pub(super) hit_rate: Option<f64>,
}

/// What is left when the traffic has ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Rest {
    /// Routers that still had requests in flight or waiting, and how many.
    pub(super) inflight: Vec<(String, usize)>,
    pub(super) figures: Figures,
}

/// Looks at the fleet.
pub(super) struct Probe {
    admin: AdminClient,
    /// Names and admin addresses, the spared router first.
    routers: Vec<(String, String)>,
    /// Process of the spared router.
    pid: Option<u32>,
    start: Instant,
    series: Vec<Figures>,
    counts: Counts,
    gossip_bytes: u64,
}

impl Probe {
    pub(super) fn start(cast: &Cast) -> Self {
        let routers = &cast.fleet.routers;
        Self {
            admin: cast.fleet.admin.clone(),
            routers: routers.iter().map(|router| (router.name.clone(), router.admin.clone())).collect(),
            pid: routers.first().and_then(|router| router.process.id()),
            start: Instant::now(),
            series: Vec::new(),
            counts: Counts::default(),
            gossip_bytes: 0,
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.start
    }

    /// One look for each step, oldest first; the first is before the traffic.
    pub(super) fn series(&self) -> &[Figures] {
        &self.series
    }

    /// Looks once more.
    pub(super) async fn look(&mut self, ledger: &Ledger) {
        let counts = ledger.counts();
        let step = counts.since(self.counts);
        let status = self.status(0).await;
        let sent = status.as_ref().map_or(self.gossip_bytes, |status| status.gossip.bytes_sent);
        let gossip = sent.saturating_sub(self.gossip_bytes) as f64 / step.requests.max(1) as f64;
        let figures = Figures {
            gossip: (step.requests > 0 && status.is_some()).then_some(gossip),
            hit_rate: step.hit_rate(),
            ..self.figures(status.as_ref())
        };
        self.series.push(figures);
        (self.counts, self.gossip_bytes) = (counts, sent);
    }

    /// The last look, for a person.
    pub(super) fn line(&self) -> String {
        let last = self.series.last().copied().unwrap_or_default();
        let seconds = self.start.elapsed().as_secs();
        let count = |value: Option<f64>| or_unknown(value, |value| format!("{value:.0}"));
        format!(
            "{seconds:>5} s  {} requests, {} failed  hit {}  {}: {}, {} descriptors, {} tasks, {} boundaries",
            self.counts.requests,
            self.counts.failed,
            or_unknown(last.hit_rate, percent),
            self.routers.first().map_or("", |(name, _)| name.as_str()),
            or_unknown(last.memory, bytes),
            count(last.descriptors),
            count(last.tasks),
            count(last.boundaries),
        )
    }

    /// Waits until nothing is in flight, then looks at what is left.
    pub(super) async fn at_rest(&self) -> Rest {
        let deadline = Instant::now() + REST_LIMIT;
        let mut inflight = self.inflight().await;
        while !inflight.is_empty() && Instant::now() < deadline {
            sleep(Duration::from_millis(200)).await;
            inflight = self.inflight().await;
        }
        sleep(IDLE).await;
        Rest { inflight, figures: self.figures(self.status(0).await.as_ref()) }
    }

    async fn inflight(&self) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for (at, (name, _)) in self.routers.iter().enumerate() {
            let busy = self.status(at).await.map_or(0, |status| status.inflight + status.waiting);
            if busy > 0 {
                found.push((name.clone(), busy));
            }
        }
        found
    }

    async fn status(&self, router: usize) -> Option<Status> {
        let (_, base) = self.routers.get(router)?;
        self.admin.get(base, "/api/v1/status").await.ok()
    }

    fn figures(&self, status: Option<&Status>) -> Figures {
        Figures {
            memory: self.pid.and_then(resident_bytes),
            descriptors: self.pid.and_then(open_descriptors),
            tasks: status.map(|status| status.router.tasks as f64),
            boundaries: status.map(|status| status.tree.boundaries as f64),
            ..Figures::default()
        }
    }
}

/// Memory of a process, where there is a `/proc`.
fn resident_bytes(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024.0)
}

fn open_descriptors(pid: u32) -> Option<f64> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as f64)
}
