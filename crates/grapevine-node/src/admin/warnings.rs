//! What somebody should know of a router, made from its status. Every code has an entry in
//! docs/operations.md; a test holds that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use super::status::{Level, ReplicaStatus, Status, Warning};
use crate::observe::history::Totals;

/// A lost cache is worth a warning for so long, ms: about what a cache takes to fill again.
const CACHE_LOST_MS: u64 = 300_000;

/// A warning that holds for so long is written to the log, ms: a fleet that starts is alone for a moment.
const TELL_AFTER_MS: u64 = 10_000;

/// Codes of what the log says in other words when it begins.
const TOLD_ELSEWHERE: [&str; 4] = ["all_replicas_down", "replica_down", "gossip_down", "name_conflict"];

/// Warnings of one code, at most: two hundred replicas that are down are one piece of news.
const PER_CODE: usize = 20;

/// Events in the last minute below which a share of them says nothing.
const FEW: u64 = 5;

/// All codes.
pub const CODES: [&str; 20] = [
    "all_replicas_down",
    "replica_down",
    "cache_lost",
    "capacity_unknown",
    "no_reports",
    "guard_firing",
    "lookups_late",
    "tree_full",
    "mailbox_drops",
    "gossip_down",
    "name_conflict",
    "no_secret",
    "alone",
    "peer_lost",
    "peer_incompatible",
    "gossip_foreign",
    "gossip_strained",
    "telemetry_drops",
    "log_drops",
    "shadow",
];

/// What warnings depend on besides the status.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// What happened in the last minute.
    pub minute: Totals,
    /// Peers are configured: seeds that are not all this router itself.
    pub has_seeds: bool,
    /// Another router has this one's name.
    pub name_conflict: bool,
}

/// Remembers since when each warning holds, and when caches were lost.
#[derive(Debug, Default)]
pub struct Watchman(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    since: BTreeMap<(String, Option<String>), u64>,
    /// Those that the log was told of.
    told: BTreeSet<(String, Option<String>)>,
    /// Each replica's cache generation, and when it last grew.
    epochs: BTreeMap<String, (u32, Option<u64>)>,
}

impl Watchman {
    /// All warnings that hold now, the most serious first.
    pub fn warnings(&self, status: &Status, facts: &Facts) -> Vec<Warning> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = Found { router: &status.router.id, warnings: Vec::new() };
        memory.lost_caches(status, &mut found);
        replicas(&status.replicas, &mut found);
        traffic(status, &facts.minute, &mut found);
        fleet(status, facts, &mut found);
        let mut warnings = found.warnings;
        warnings.sort_by(|a, b| {
            b.level.cmp(&a.level).then_with(|| (&a.code, &a.subject).cmp(&(&b.code, &b.subject)))
        });
        memory.date(&mut warnings, status.at_ms);
        warnings
    }

    /// Those that people should read in the log: each once, until it ends and comes again.
    pub fn news<'a>(&self, warnings: &'a [Warning], at_ms: u64) -> Vec<&'a Warning> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.told.retain(|told| warnings.iter().any(|w| key(w) == *told));
        let lasts =
            |w: &Warning| w.since_ms.is_some_and(|since| at_ms.saturating_sub(since) >= TELL_AFTER_MS);
        let said = |w: &Warning| w.level > Level::Info && !TOLD_ELSEWHERE.contains(&w.code.as_str());
        warnings.iter().filter(|w| lasts(w) && said(w) && memory.told.insert(key(w))).collect()
    }
}

impl Memory {
    fn lost_caches(&mut self, status: &Status, found: &mut Found<'_>) {
        self.epochs.retain(|name, _| status.replicas.iter().any(|r| r.name == *name));
        for replica in &status.replicas {
            let (epoch, lost) = self.epochs.entry(replica.name.clone()).or_insert((replica.epoch, None));
            if replica.epoch > *epoch {
                (*epoch, *lost) = (replica.epoch, Some(status.at_ms));
            }
            if lost.is_some_and(|at| status.at_ms.saturating_sub(at) < CACHE_LOST_MS) {
                found.of(
                    Level::Warn,
                    "cache_lost",
                    &replica.name,
                    "lost its cache: hits come back as it fills",
                );
            }
        }
    }

    fn date(&mut self, warnings: &mut [Warning], now: u64) {
        self.since.retain(|known, _| warnings.iter().any(|w| key(w) == *known));
        for warning in warnings {
            warning.since_ms = Some(*self.since.entry(key(warning)).or_insert(now));
        }
    }
}

/// What tells one warning from another.
fn key(warning: &Warning) -> (String, Option<String>) {
    (warning.code.clone(), warning.subject.clone())
}

/// What was found so far.
struct Found<'a> {
    router: &'a str,
    warnings: Vec<Warning>,
}

impl Found<'_> {
    fn add(&mut self, level: Level, code: &str, subject: Option<&str>, text: String) {
        if self.warnings.iter().filter(|w| w.code == code).count() >= PER_CODE {
            return;
        }
        self.warnings.push(Warning {
            code: code.to_owned(),
            level,
            router: self.router.to_owned(),
            subject: subject.map(str::to_owned),
            since_ms: None,
            text,
        });
    }

    fn say(&mut self, level: Level, code: &str, text: &str) {
        self.add(level, code, None, text.to_owned());
    }

    fn of(&mut self, level: Level, code: &str, subject: &str, text: &str) {
        self.add(level, code, Some(subject), format!("{subject} {text}"));
    }
}

fn replicas(replicas: &[ReplicaStatus], found: &mut Found<'_>) {
    let down = |r: &&ReplicaStatus| matches!(r.health.as_str(), "unreachable" | "not_ready");
    if replicas.iter().all(|r| down(&r)) {
        found.say(Level::Error, "all_replicas_down", "no replica can be reached: requests fail");
    }
    for replica in replicas.iter().filter(down) {
        let what =
            if replica.health == "not_ready" { "says that it is not ready" } else { "cannot be reached" };
        found.of(Level::Warn, "replica_down", &replica.name, what);
    }
    let unknown = |r: &&ReplicaStatus| r.capacity_source == "default" && r.picks > 0 && !down(r);
    let unknown = replicas.iter().filter(unknown).count();
    if unknown > 0 {
        let text = format!(
            "the cache size of {unknown} of {} replicas is not known: set GRAPEVINE_REPLICA_CAPACITY to what they hold",
            replicas.len()
        );
        found.add(Level::Info, "capacity_unknown", None, text);
    }
}

fn traffic(status: &Status, minute: &Totals, found: &mut Found<'_>) {
    if status.router.mode == "shadow" {
        found.say(Level::Info, "shadow", "requests are routed by load alone: GRAPEVINE_MODE is shadow");
    }
    let many = |some: u64, all: u64| some >= FEW && some * 100 > all;
    if many(minute.guarded, minute.decisions) {
        let text = format!(
            "the imbalance guard fired {} times in the last minute: a favourite is too busy",
            minute.guarded
        );
        found.add(Level::Warn, "guard_firing", None, text);
    }
    if many(minute.late, minute.lookups) {
        let text =
            format!("{} lookups of the last minute came too late: this router needs more CPU", minute.late);
        found.add(Level::Warn, "lookups_late", None, text);
    }
    if minute.tokens.prompt > 0 && minute.requests >= FEW && status.tokens.reported_prompt == 0 {
        found.say(
            Level::Info,
            "no_reports",
            "no answer says what was cached: engines must be told to report it",
        );
    }
    for (count, code, what) in [
        (minute.mailbox_drops, "mailbox_drops", "messages between actors were dropped in the last minute"),
        (
            minute.telemetry_drops,
            "telemetry_drops",
            "spans, log records or pushes of metrics were not exported in the last minute",
        ),
        (minute.log_drops, "log_drops", "decisions were not written to the decision log in the last minute"),
    ] {
        if count > 0 {
            found.add(Level::Warn, code, None, format!("{count} {what}"));
        }
    }
    if minute.evicted > 0 {
        found.say(
            Level::Info,
            "tree_full",
            "prefixes are forgotten early: raise GRAPEVINE_TREE_MAX_BOUNDARIES",
        );
    }
}

fn fleet(status: &Status, facts: &Facts, found: &mut Found<'_>) {
    let gossip = &status.gossip;
    if facts.name_conflict {
        found.say(Level::Error, "name_conflict", "another live router has this one's GRAPEVINE_ROUTER_ID");
    }
    if !gossip.running {
        found.say(
            Level::Warn,
            "gossip_down",
            "gossip does not run, GRAPEVINE_GOSSIP_LISTEN may be taken: this router serves alone and keeps trying",
        );
    } else if facts.has_seeds && gossip.live_peers == 0 && !status.peers.iter().any(|peer| peer.draining) {
        let text = "no peer is heard though GRAPEVINE_GOSSIP_SEEDS names some: they are down or cut off, or their \
             GRAPEVINE_CLUSTER_SECRET is another";
        found.say(Level::Warn, "alone", text);
    }
    if !gossip.sealed {
        found.say(Level::Info, "no_secret", "gossip is not sealed: set GRAPEVINE_CLUSTER_SECRET");
    }
    if facts.minute.foreign >= FEW {
        let text = format!(
            "{} gossip datagrams of the last minute have another secret, cluster or version: some router's \
             GRAPEVINE_CLUSTER_SECRET or GRAPEVINE_CLUSTER_ID differs",
            facts.minute.foreign
        );
        found.add(Level::Warn, "gossip_foreign", None, text);
    }
    if gossip.strained {
        found.say(Level::Warn, "gossip_strained", "gossip is behind: peers ask for what they miss");
    }
    for peer in &status.peers {
        if !peer.live && !peer.draining {
            found.of(Level::Warn, "peer_lost", &peer.name, "is not heard any more");
        } else if peer.live && !peer.compatible {
            let what = "speaks another version or hash scheme: nothing is learnt from it";
            found.of(Level::Warn, "peer_incompatible", &peer.name, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::{peer, replica, status};
    use super::*;

    fn codes(watchman: &Watchman, status: &Status, facts: &Facts) -> Vec<String> {
        let warnings = watchman.warnings(status, facts);
        assert!(warnings.iter().all(|w| CODES.contains(&w.code.as_str())), "{warnings:?}");
        warnings.into_iter().map(|w| w.code).collect()
    }

    #[test]
    fn a_fleet_that_is_well_warns_of_nothing() {
        let mut status = status("a");
        status.replicas.push(replica("r0"));
        status.peers.push(peer("b"));
        let facts = Facts { has_seeds: true, ..Facts::default() };
        assert_eq!(codes(&Watchman::default(), &status, &facts), [""; 0]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_subject_and_since_when() {
        let mut status = status("a");
        status.replicas = vec![replica("r0"), replica("r1")];
        status.replicas[1].health = "unreachable".to_owned();
        status.peers.push(peer("b"));
        status.peers[0].live = false;
        let (watchman, facts) = (Watchman::default(), Facts::default());
        let first = watchman.warnings(&status, &facts);
        let said: Vec<_> = first.iter().map(|w| (w.code.as_str(), w.subject.as_deref())).collect();
        assert_eq!(said, [("peer_lost", Some("b")), ("replica_down", Some("r1"))]);
        let began = status.at_ms;
        status.at_ms += 9_000;
        assert!(watchman.warnings(&status, &facts).iter().all(|w| w.since_ms == Some(began)));
        status.replicas[0].health = "not_ready".to_owned();
        let all = watchman.warnings(&status, &facts);
        assert_eq!((all[0].code.as_str(), all[0].level), ("all_replicas_down", Level::Error));
    }

    #[test]
    fn a_lost_cache_is_news_for_a_while() {
        let mut status = status("a");
        status.replicas = vec![replica("r0")];
        status.replicas[0].epoch = 3;
        let (watchman, facts) = (Watchman::default(), Facts::default());
        assert_eq!(codes(&watchman, &status, &facts), [""; 0], "lost before anybody looked");
        status.replicas[0].epoch = 4;
        assert_eq!(codes(&watchman, &status, &facts), ["cache_lost"]);
        status.at_ms += CACHE_LOST_MS;
        assert_eq!(codes(&watchman, &status, &facts), [""; 0]);
    }

    #[test]
    fn the_last_minute_counts() {
        let status = Status { replicas: vec![replica("r0")], ..status("a") };
        let minute = Totals {
            decisions: 100,
            guarded: 6,
            mailbox_drops: 1,
            evicted: 9,
            foreign: 5,
            ..Totals::default()
        };
        let facts = Facts { minute, ..Facts::default() };
        assert_eq!(
            codes(&Watchman::default(), &status, &facts),
            ["gossip_foreign", "guard_firing", "mailbox_drops", "tree_full"]
        );
    }

    #[test]
    fn a_warning_that_lasts_is_told_once_each_time() {
        let mut status = status("a");
        status.gossip.live_peers = 0;
        let (watchman, facts) = (Watchman::default(), Facts { has_seeds: true, ..Facts::default() });
        let told = |status: &Status| {
            let warnings = watchman.warnings(status, &facts);
            watchman.news(&warnings, status.at_ms).into_iter().map(|w| w.code.clone()).collect::<Vec<_>>()
        };
        assert_eq!(told(&status), [""; 0], "it may be over in a moment");
        status.at_ms += TELL_AFTER_MS;
        assert_eq!((told(&status), told(&status)), (vec!["alone".to_owned()], vec![]));
        status.peers.push(peer("b"));
        status.peers[0].draining = true;
        assert_eq!(told(&status), [""; 0], "a peer that drains is still heard");
        status.peers.clear();
        assert_eq!(told(&status), [""; 0]);
        status.at_ms += TELL_AFTER_MS;
        assert_eq!(told(&status), ["alone"]);
    }

    #[test]
    fn many_of_a_kind_are_cut() {
        let mut status = status("a");
        status.replicas = (0..200).map(|i| replica(&format!("r{i}"))).collect();
        status.replicas.iter_mut().skip(1).for_each(|r| r.health = "unreachable".to_owned());
        assert_eq!(codes(&Watchman::default(), &status, &Facts::default()).len(), PER_CODE);
    }
}
