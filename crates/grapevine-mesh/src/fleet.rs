//! What this router has heard of each other one. Pure: time and input are arguments.
//!
//! A router is known by its name. Each start of its gossip is a new generation, and only the newest
//! generation of a name counts: an older one may still be relayed for minutes. Within a
//! generation segments are numbered, so each is handed on exactly once in whatever order, on whatever
//! way and how often it arrives; vitals replace one another, the latest wins, and epochs never go back.
//!
//! A number that was skipped is a hole. Peers that were ahead tell of further ones. Holes are what there
//! is to ask for ([`Fleet::wants`]).
//!
//! A router that falls silent keeps its record: death is a rumour, and its name may return.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grapevine_tree::{Millis, RouterId};

use crate::Incoming;
use crate::carrier::SLOTS;
use crate::codec::{MAX_RANGES, MAX_SEEN, Pointer, SeenOrigin, Segment, Vitals};
use crate::log::Log;

mod lag;
mod router;
mod sequence;

pub use router::Router;
pub use sequence::Sequence;

/// Routers remembered by name, the silent ones included: a fleet of 100 replaced ten times over.
pub const MAX_ROUTERS: usize = 1024;

/// Segments by which a router may be behind and still ask for what it lacks: two minutes at the default
/// tick, as long as peers keep them. Beyond it a snapshot mends.
pub const SPAN: u64 = 512;

/// A router silent for longer is no longer among what this one has seen, in milliseconds: its last words
/// have spread or are gone.
const SEEN_MS: Millis = 300_000;

/// A segment as it was heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// What it says.
    pub segment: Segment,
    /// Its bytes, for peers that miss it.
    pub bytes: Arc<[u8]>,
}

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
    pub segments: Vec<Heard>,
    /// Pointers that changed.
    pub pointers: Vec<Pointer>,
}

/// How a generation of a name relates to what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The newest known, or newer.
    Current,
    /// A newer one of the same name was heard: to be forgotten.
    Old,
}

/// Segments to ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// Whose.
    pub origin: RouterId,
    /// Of which generation.
    pub generation: u64,
    /// First and last number of each range, lowest first.
    pub holes: Vec<(u64, u64)>,
    /// Since when the lowest has been missing.
    pub since: Millis,
    /// They are not in the ring: waiting for them is vain.
    pub pointed: bool,
}

/// How this router stands with what a peer has seen of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Not behind.
    Level,
    /// Behind by what can be asked for.
    Behind,
    /// Behind by more than anyone keeps.
    FarBehind,
}

/// The other routers.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    routers: BTreeMap<Arc<str>, Router>,
    names: BTreeMap<RouterId, Arc<str>>,
    /// Where a snapshot stood with origins that were not met yet.
    resumed: BTreeMap<RouterId, SeenOrigin>,
    skipped: BTreeSet<RouterId>,
}

impl Fleet {
    /// Knows nobody yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Everyone heard of, by name.
    pub fn routers(&self) -> impl Iterator<Item = (&Arc<str>, &Router)> {
        self.routers.iter()
    }

    /// What is known of the router called `name`.
    pub fn router(&self, name: &str) -> Option<&Router> {
        self.routers.get(name)
    }

    /// What is known of the router with this id.
    pub fn by_id(&self, id: RouterId) -> Option<&Router> {
        self.routers.get(self.names.get(&id)?)
    }

    /// Whether `generation` of `name` is worth listening to.
    pub fn standing(&self, name: &str, generation: u64) -> Standing {
        match self.routers.get(name) {
            Some(router) if router.generation > generation => Standing::Old,
            _ => Standing::Current,
        }
    }

    /// Takes in news; what of it is new, in the order to hand it on.
    pub fn hear(&mut self, news: News, log: &mut Log, now: Millis) -> Vec<Incoming> {
        if !self.meet(&news, now) {
            return Vec::new();
        }
        let Some(router) = self.routers.get_mut(&news.name) else { return Vec::new() };
        router.heard_at = now;
        let origin = RouterId::of_name(&news.name);
        let vitals = news.vitals.and_then(|vitals| router.take_vitals(vitals));
        let segments = router.take_segments(origin, news.segments, log, now);
        router.note_lag(&segments, now);
        news.pointers.iter().for_each(|pointer| router.take_pointer(pointer, now));
        router.hand_on(origin, vitals, segments)
    }

    /// The name of a router that this one has met.
    pub fn name_of(&self, id: RouterId) -> Option<&Arc<str>> {
        self.names.get(&id)
    }

    /// Takes in what a router told directly of itself, and the number of its newest segment. A router is met through
    /// chitchat first.
    pub fn hear_direct(&mut self, origin: RouterId, vitals: Vitals, head: u64, now: Millis) -> Vec<Incoming> {
        let Some(router) = self.by_id_mut(origin) else { return Vec::new() };
        let vitals = router.take_vitals(vitals);
        if vitals.is_some() {
            router.sequence.announce(head);
            router.note_holes(now);
        }
        router.hand_on(origin, vitals, Vec::new())
    }

    /// Takes in segments that were asked for.
    pub fn take(
        &mut self,
        origin: RouterId,
        segments: Vec<Heard>,
        log: &mut Log,
        now: Millis,
    ) -> Vec<Incoming> {
        let Some(router) = self.by_id_mut(origin) else { return Vec::new() };
        let segments = router.take_segments(origin, segments, log, now);
        router.hand_on(origin, None, segments)
    }

    /// A peer has seen this much of an origin.
    pub fn compare(&mut self, seen: &SeenOrigin, now: Millis) -> Level {
        let Some(router) = self.by_id_mut(seen.origin) else { return Level::Level };
        if seen.generation != router.generation || seen.settled <= router.settled() {
            return Level::Level;
        }
        if seen.settled.saturating_sub(router.settled()) > SPAN {
            return Level::FarBehind;
        }
        router.sequence.announce(seen.settled);
        router.note_holes(now);
        Level::Behind
    }

    /// Nobody has these any more: they are given up. How many there were.
    pub fn lose(&mut self, want: &Want, now: Millis) -> u64 {
        let Some(router) = self.by_id_mut(want.origin) else { return 0 };
        if router.generation != want.generation {
            return 0;
        }
        let lost = want.holes.iter().map(|&(first, last)| router.sequence.lose(first, last)).sum();
        router.note_holes(now);
        lost
    }

    /// A snapshot that was taken over contains all segments up to these.
    pub fn resume(&mut self, origins: &[SeenOrigin], now: Millis) {
        for seen in origins {
            let has_room = self.resumed.len() < MAX_SEEN;
            match self.by_id_mut(seen.origin) {
                Some(router) if router.generation == seen.generation => {
                    router.sequence.resume(seen.settled);
                    router.note_holes(now);
                }
                Some(router) if router.generation > seen.generation => {}
                _ if has_room => _ = self.resumed.insert(seen.origin, *seen),
                _ => {}
            }
        }
    }

    /// How far this router has come with each origin it heard of lately.
    pub fn seen(&self, now: Millis) -> Vec<SeenOrigin> {
        let recent = self.names.iter().filter_map(|(&origin, name)| Some((origin, self.routers.get(name)?)));
        let recent = recent.filter(|(_, router)| now.saturating_sub(router.heard_at) <= SEEN_MS);
        let seen = |(origin, router): (RouterId, &Router)| SeenOrigin {
            origin,
            generation: router.generation,
            settled: router.settled(),
            lost: router.missed(),
        };
        recent.map(seen).take(MAX_SEEN - 1).collect()
    }

    /// What there is to ask for.
    pub fn wants(&self) -> Vec<Want> {
        let want = |(&origin, name): (&RouterId, &Arc<str>)| {
            let router = self.routers.get(name)?;
            let (_, since, pointed) = router.lowest_hole()?;
            let holes = router.sequence.holes(MAX_RANGES);
            Some(Want { origin, generation: router.generation, holes, since, pointed })
        };
        self.names.iter().filter_map(want).collect()
    }

    /// Origins that were met since the last call and whose older segments were never heard and are in no
    /// ring.
    pub fn take_skipped(&mut self) -> BTreeSet<RouterId> {
        std::mem::take(&mut self.skipped)
    }

    fn by_id_mut(&mut self, id: RouterId) -> Option<&mut Router> {
        self.routers.get_mut(self.names.get(&id)?)
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
        let from = first_of_interest(news, vitals);
        let mut router = match known {
            Some(before) => before.reborn(news, vitals, from, SPAN, now),
            None => Router::first_met(news, vitals, from, SPAN, now),
        };
        let id = RouterId::of_name(&news.name);
        match self.resumed.remove(&id).filter(|seen| seen.generation == news.generation) {
            Some(seen) => router.sequence.resume(seen.settled),
            None if from > 0 => _ = self.skipped.insert(id),
            None => {}
        }
        self.make_room();
        self.names.insert(id, news.name.clone());
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
            self.names.remove(&RouterId::of_name(&name));
        }
    }
}

/// The number after which a newcomer starts to listen: what lies before it is stale or overwritten,
/// and nothing that was missed.
fn first_of_interest(news: &News, vitals: &Vitals) -> u64 {
    let numbers = news.segments.iter().map(|it| it.segment.seq).chain(news.pointers.iter().map(|it| it.seq));
    vitals.floor.saturating_sub(1).max(numbers.max().unwrap_or(0).saturating_sub(SLOTS))
}

#[cfg(test)]
mod tests;
