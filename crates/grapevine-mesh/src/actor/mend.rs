//! Finding out what this router lacks, and what its peers may ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grapevine_tree::{Millis, RouterId};

use super::Mesh;
use crate::Host;
use crate::answer::{self, SEGMENTS_BYTES};
use crate::carrier::{SEEN_KEY, to_text};
use crate::codec::{Ask, Seen, SeenOrigin, SnapshotHead, encode_seen, encode_segments};
use crate::exchange::Salt;
use crate::fleet::{Level, Want};
use crate::handle::{Refused, Reply};
use crate::join::Teacher;
use crate::pull::{Candidate, Step};
use crate::session::Session;

/// How long a snapshot for what was lost waits for a peer that knows it, in milliseconds: after a cut,
/// those on the other side are live again within two or three exchanges.
const KNOWING_PEER_MS: Millis = 10_000;

/// Snapshots' pages that are made at once, at most.
const MAX_ANSWERS: usize = 4;

impl<H: Host> Mesh<H> {
    /// Once a tick: tells how far this router has come, and asks for what it lacks.
    pub(super) async fn mend(&mut self, session: &Session) {
        let now = self.now();
        let origins = self.seen(now);
        if let Some(seen) = self.vectors.publish(self.generation, origins, now) {
            session.write(vec![(SEEN_KEY.to_owned(), to_text(&encode_seen(&seen)))]).await;
        }
        let peers: BTreeSet<RouterId> = self.peers.keys().map(|name| RouterId::of_name(name)).collect();
        self.vectors.keep_only(|peer| peers.contains(&peer));
        self.puller.keep_only(&peers);
        self.look_at_strain(now);
        self.look_after_holes();
        self.look_for_losses();
        self.look_after_joining();
    }

    /// What is gone for good calls for a snapshot, best of whom it came from.
    fn look_for_losses(&mut self) {
        let mut lacking = self.fleet.take_skipped();
        let mut missed = BTreeMap::new();
        for (name, router) in self.fleet.routers() {
            let id = RouterId::of_name(name);
            if router.missed() > self.missed.get(&id).copied().unwrap_or(0) {
                lacking.insert(id);
            }
            missed.insert(id, router.missed());
        }
        self.missed = missed;
        lacking.into_iter().for_each(|origin| self.lack(origin));
    }

    fn lack(&mut self, origin: RouterId) {
        if self.joiner.is_ready() {
            let now = self.now();
            self.lacking_since.get_or_insert(now);
            self.lacking.insert(origin);
            self.joiner.want();
        }
    }

    /// How far this router has come with every origin, itself included.
    fn seen(&self, now: Millis) -> Vec<SeenOrigin> {
        let own =
            SeenOrigin { origin: self.id, generation: self.generation, settled: self.outbox.seq(), lost: 0 };
        let others = self.fleet.seen(now).into_iter().filter(|it| it.origin != self.id);
        others.chain([own]).collect()
    }

    /// A peer told how far it has come.
    pub(super) fn on_seen(&mut self, peer: RouterId, seen: &Seen, now: Millis) {
        self.vectors.hear(peer, seen, now);
        let own = self.id;
        for origin in seen.origins.iter().filter(|it| it.origin != own) {
            if self.fleet.compare(origin, now) == Level::FarBehind {
                self.lack(origin.origin);
            }
        }
    }

    pub(super) fn look_after_holes(&mut self) {
        let now = self.now();
        let candidates: Vec<Candidate> = self.candidates().collect();
        let vectors = &self.vectors;
        let has = |peer, want: &Want| {
            let settled = vectors.settled(peer, want.origin, want.generation);
            settled >= want.holes.first().map(|hole| hole.0)
        };
        for step in self.puller.next(self.fleet.wants(), &candidates, has, now, &mut self.rng) {
            match step {
                Step::Ask { want, from } => self.pull(want, from),
                Step::GiveUp(want) => self.totals.pulls.given_up += self.fleet.lose(&want, now),
            }
        }
    }

    pub(super) fn look_after_joining(&mut self) {
        let now = self.now();
        let patient = self.lacking_since.is_some_and(|since| now.saturating_sub(since) < KNOWING_PEER_MS);
        let teachers = self.candidates().filter_map(|it| self.teacher(&it));
        let teachers: Vec<Teacher> = teachers.filter(|it| !patient || it.knows > 0).collect();
        let unsure = self.peers.values().any(|peer| peer.is_just_met(now));
        if let Some(teacher) = self.joiner.next(&teachers, unsure, now, &mut self.rng) {
            let found = self.candidates().find(|it| it.id == teacher);
            found.into_iter().for_each(|it| self.learn(it));
        }
        let ready = self.joiner.is_ready();
        self.joined.send_if_modified(|joined| std::mem::replace(joined, ready) != ready);
    }

    /// Peers that go away are not asked for all they know.
    fn teacher(&self, candidate: &Candidate) -> Option<Teacher> {
        let router = self.fleet.router(&candidate.name).filter(|router| !router.draining)?;
        let said = router.vitals_seq.saturating_add(router.head());
        let knows = self.lacking.iter().filter(|&&origin| self.knows(candidate.id, origin)).count();
        Some(Teacher { id: candidate.id, knows, lost: self.vectors.lost(candidate.id), said })
    }

    /// Whether a peer has what was lost here of `origin`.
    fn knows(&self, peer: RouterId, origin: RouterId) -> bool {
        let Some(router) = self.fleet.by_id(origin) else { return false };
        let (generation, settled, lost) = (router.generation, router.settled(), router.missed());
        peer == origin || self.vectors.knows_better(peer, &SeenOrigin { origin, generation, settled, lost })
    }

    fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.peers.iter().filter_map(|(name, peer)| peer.candidate(name))
    }

    pub(super) fn live_peers(&self) -> impl Iterator<Item = (RouterId, &Arc<str>)> {
        let live = self.peers.iter().filter(|(_, peer)| peer.is_heard());
        live.map(|(name, _)| (RouterId::of_name(name), name))
    }

    /// Answers a peer, at once or by a task of its own.
    pub(super) fn on_ask(&mut self, ask: &Ask, salt: Salt, reply: Reply) {
        match self.check(ask, salt) {
            Ok(()) => self.answer(ask, reply),
            Err(refused) => _ = reply.send(Err(refused)),
        }
    }

    fn check(&mut self, ask: &Ask, salt: Salt) -> Result<(), Refused> {
        if ask.to() != self.id {
            return Err(Refused::Misdirected);
        }
        if !self.asked.is_new(salt) {
            return Err(Refused::Replayed);
        }
        match ask {
            Ask::Segments { .. } => Ok(()),
            Ask::Head { .. } | Ask::Page { .. } if !self.joiner.is_ready() => Err(Refused::Joining),
            Ask::Head { .. } | Ask::Page { .. } if self.answers.len() >= MAX_ANSWERS => Err(Refused::Busy),
            Ask::Head { .. } | Ask::Page { .. } => Ok(()),
        }
    }

    fn answer(&mut self, ask: &Ask, reply: Reply) {
        match ask {
            Ask::Segments { origin, generation, wanted, .. } => {
                let found = self.log.get(*origin, *generation, wanted, SEGMENTS_BYTES);
                let _ = reply.send(Ok(encode_segments(&found)));
            }
            // How far we have come is read before the tree is, so the tree has all of it.
            Ask::Head { .. } => {
                let origins = self.seen(self.now());
                let epochs = self.outbox.epochs().to_vec();
                let head = SnapshotHead { origins, epochs, histories: Vec::new() };
                self.answers.spawn(answer::head(self.host.clone(), head, reply));
            }
            Ask::Page { cursor, .. } => {
                self.answers.spawn(answer::page(self.host.clone(), *cursor, reply));
            }
        }
    }
}
