//! Keeps the last minutes: notes every two seconds what has been counted.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use grapevine_route::Reason;

use super::survey::Observatory;
use crate::clock::unix_ms;
use crate::observe::history::{STEP_MS, Totals};

impl Observatory {
    /// Notes totals at multiples of the step, so that routers' points add up. Never ends.
    pub async fn keep_history(&self) {
        loop {
            let now = unix_ms();
            let next = (now / STEP_MS + 1) * STEP_MS;
            self.note_totals(now / STEP_MS * STEP_MS);
            self.watch();
            tokio::time::sleep(Duration::from_millis(next - now)).await;
        }
    }

    fn note_totals(&self, at_ms: u64) {
        let set = self.replicas.replicas().load();
        let picks = set.replicas.iter().map(|r| (r.id, r.counters.picks.load(Relaxed))).collect();
        self.history.sample(at_ms, self.totals(), picks);
    }

    fn totals(&self) -> Totals {
        let metrics = &self.proxy.metrics;
        let guarded = metrics.decisions().filter(|(name, _)| *name == Reason::Guard.name()).map(|(_, n)| n);
        Totals {
            requests: metrics.requests().map(|(_, n)| n).sum(),
            tokens: metrics.tokens(),
            decisions: metrics.decisions().map(|(_, n)| n).sum(),
            guarded: guarded.sum(),
            lookups: metrics.lookups.get(),
            late: metrics.lookups_missed.get(),
            mailbox_drops: self.tree.mailbox().dropped + self.replicas.mailbox().dropped,
            telemetry_drops: self.exports.read().map(|(_, counts)| counts.dropped + counts.failed).sum(),
            log_drops: self.proxy.log.as_ref().map_or(0, |log| log.counts().dropped()),
            evicted: self.tree.stats().evicted,
            foreign: self.mesh.status().totals.traffic.foreign(),
        }
    }
}
