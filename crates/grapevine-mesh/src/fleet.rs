//! What this router has heard of each other one. Pure: time and input are arguments.
//!
//! A router is known by its name. Each start of its gossip is a new generation, and only the newest
//! generation of a name counts: an older one may still be relayed for minutes. Within a
//! generation segments are numbered, so each is handed on exactly once in whatever order and how
//! often it arrives; vitals replace one another, the latest wins, and epochs never go back.
//!
//! A router that falls silent keeps its record: death is a rumour, and its name may return.

use std::collections::BTreeMap;
use std::sync::Arc;

use grapevine_tree::{Millis, RouterId};

use crate::codec::{Segment, Vitals};
use crate::{Incoming, LoadReport, ReplicaEpoch};

mod lag;
mod sequence;

use lag::LagMeter;
pub use sequence::Sequence;

/// Routers remembered by name, the silent ones included: a fleet of 100 replaced ten times over.
pub const MAX_ROUTERS: usize = 1024;

/// News of one router, as its published state had it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// The router's name.
    pub name: Arc<str>,
    /// The generation that the state belongs to.
    pub generation: u64,
    /// Its vitals, when they changed. A generation is listened to from its first vitals on.
    pub vitals: Option<Vitals>,
    /// Segments that changed.
    pub segments: Vec<Segment>,
}

/// How a generation of a name relates to what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The newest known, or newer.
    Current,
    /// A newer one of the same name was heard: to be forgotten.
    Old,
}

/// What is known of one router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its newest generation.
    pub generation: u64,
    /// It said that it is going away.
    pub draining: bool,
    /// Segments and entries handed on, all generations.
    pub segments: u64,
    /// See `segments`.
    pub entries: u64,
    /// New segments that arrived together with the latest one, less one: about how many ticks the
    /// oldest of them was late.
    pub lag_segments: u64,
    /// Extra delay of the latest segments over the fastest of the last minute or two.
    pub lag_ms: u64,
    /// When something of it last arrived.
    pub heard_at: Millis,
    boot: u64,
    restarted: bool,
    vitals_seq: u64,
    epochs: Vec<ReplicaEpoch>,
    sequence: Sequence,
    missed_before: u64,
    lag: LagMeter,
}

impl Router {
    /// Segments that were overwritten before they were seen here, all generations.
    pub fn missed(&self) -> u64 {
        self.missed_before.saturating_add(self.sequence.missed())
    }

    /// Segments skipped that may still come.
    pub fn open(&self) -> u64 {
        self.sequence.open()
    }
}

/// The other routers.
#[derive(Clone, Debug)]
pub struct Fleet {
    span: u64,
    routers: BTreeMap<Arc<str>, Router>,
}

impl Fleet {
    /// Knows nobody yet. Routers keep their newest `span` segments for others to find.
    pub fn new(span: u64) -> Self {
        Self { span, routers: BTreeMap::new() }
    }

    /// Everyone heard of, by name.
    pub fn routers(&self) -> impl Iterator<Item = (&Arc<str>, &Router)> {
        self.routers.iter()
    }

    /// What is known of the router called `name`.
    pub fn router(&self, name: &str) -> Option<&Router> {
        self.routers.get(name)
    }

    /// Whether `generation` of `name` is worth listening to.
    pub fn standing(&self, name: &str, generation: u64) -> Standing {
        match self.routers.get(name) {
            Some(router) if router.generation > generation => Standing::Old,
            _ => Standing::Current,
        }
    }

    /// Takes in news; what of it is new, in the order to hand it on.
    pub fn hear(&mut self, news: News, now: Millis) -> Vec<Incoming> {
        if !self.meet(&news, now) {
            return Vec::new();
        }
        let Some(router) = self.routers.get_mut(&news.name) else { return Vec::new() };
        router.heard_at = now;
        let origin = RouterId::of_name(&news.name);
        let vitals = news.vitals.and_then(|vitals| router.take_vitals(vitals));
        let segments = router.take_segments(news.segments, now);
        router.hand_on(origin, vitals, segments)
    }

    /// Makes the record fit the generation of `news`; whether there is one to hear it.
    fn meet(&mut self, news: &News, now: Millis) -> bool {
        let known = self.routers.get(&news.name);
        if let Some(router) = known
            && router.generation >= news.generation
        {
            return router.generation == news.generation;
        }
        let Some(vitals) = &news.vitals else { return false };
        let router = match known {
            Some(before) => before.reborn(news, vitals, self.span, now),
            None => Router::first_met(news, vitals, self.span, now),
        };
        self.make_room();
        self.routers.insert(news.name.clone(), router);
        true
    }

    /// Forgets whoever has been silent longest when the book is full.
    fn make_room(&mut self) {
        if self.routers.len() < MAX_ROUTERS {
            return;
        }
        let silent = self.routers.iter().min_by_key(|(_, router)| router.heard_at);
        if let Some(name) = silent.map(|(name, _)| name.clone()) {
            self.routers.remove(&name);
        }
    }
}

impl Router {
    fn first_met(news: &News, vitals: &Vitals, span: u64, now: Millis) -> Self {
        Self {
            generation: news.generation,
            draining: false,
            segments: 0,
            entries: 0,
            lag_segments: 0,
            lag_ms: 0,
            heard_at: now,
            boot: vitals.boot,
            restarted: false,
            vitals_seq: 0,
            epochs: Vec::new(),
            sequence: Sequence::after(first_of_interest(news, vitals, span), span),
            missed_before: 0,
            lag: LagMeter::new(now),
        }
    }

    /// The record after a newer generation of the same name came up.
    fn reborn(&self, news: &News, vitals: &Vitals, span: u64, now: Millis) -> Self {
        Self {
            segments: self.segments,
            entries: self.entries,
            missed_before: self.missed(),
            restarted: self.restarted || vitals.boot != self.boot,
            ..Self::first_met(news, vitals, span, now)
        }
    }

    /// Loads and epochs to hand on, if these vitals are the latest.
    fn take_vitals(&mut self, vitals: Vitals) -> Option<(Vec<LoadReport>, Vec<ReplicaEpoch>)> {
        if vitals.generation != self.generation || vitals.seq <= self.vitals_seq {
            return None;
        }
        self.vitals_seq = vitals.seq;
        self.draining = vitals.draining;
        Some((vitals.loads, self.take_epochs(vitals.epochs)))
    }

    /// Those that grew.
    fn take_epochs(&mut self, mut epochs: Vec<ReplicaEpoch>) -> Vec<ReplicaEpoch> {
        let mut grown = Vec::new();
        for it in &mut epochs {
            let before = self.epochs.iter().find(|known| known.replica == it.replica);
            match before.map_or(0, |known| known.epoch) {
                before if before < it.epoch => grown.push(*it),
                before => it.epoch = before,
            }
        }
        self.epochs = epochs;
        grown
    }

    /// The new ones, in order.
    fn take_segments(&mut self, mut segments: Vec<Segment>, now: Millis) -> Vec<Segment> {
        segments.sort_by_key(|segment| segment.seq);
        segments.retain(|it| it.generation == self.generation && self.sequence.accept(it.seq));
        if !segments.is_empty() {
            let lag = &mut self.lag;
            self.lag_ms = segments.iter().map(|it| lag.observe(now, it.sent_ms)).max().unwrap_or(0);
            self.lag_segments = segments.len() as u64 - 1;
        }
        segments
    }

    /// One message for each segment; the first also carries the vitals.
    fn hand_on(
        &mut self,
        origin: RouterId,
        vitals: Option<(Vec<LoadReport>, Vec<ReplicaEpoch>)>,
        segments: Vec<Segment>,
    ) -> Vec<Incoming> {
        self.segments += segments.len() as u64;
        self.entries += segments.iter().map(|it| it.entries.len() as u64).sum::<u64>();
        let plain = |entries| Incoming { origin, restarted: false, entries, loads: None, epochs: Vec::new() };
        let mut out: Vec<Incoming> = segments.into_iter().map(|it| plain(it.entries)).collect();
        if out.is_empty() && vitals.is_some() {
            out.push(plain(Vec::new()));
        }
        if let Some(first) = out.first_mut() {
            first.restarted = std::mem::take(&mut self.restarted);
            if let Some((loads, epochs)) = vitals {
                first.loads = Some(loads);
                first.epochs = epochs;
            }
        }
        out
    }
}

/// The number after which a newcomer starts to listen: what lies before it is stale or overwritten,
/// and nothing that was missed.
fn first_of_interest(news: &News, vitals: &Vitals, span: u64) -> u64 {
    let head = news.segments.iter().map(|segment| segment.seq).max().unwrap_or(0);
    vitals.floor.saturating_sub(1).max(head.saturating_sub(span))
}

#[cfg(test)]
mod tests;
