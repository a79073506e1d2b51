//! What is known of one router.

use grapevine_tree::{Millis, RouterId};

use super::lag::LagMeter;
use super::{Heard, News, Sequence};
use crate::carrier::SLOTS;
use crate::codec::{Pointer, Vitals};
use crate::log::Log;
use crate::{Incoming, LoadReport, ReplicaEpoch};

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
    /// Vitals it has published in this generation: who has said more has been there longer.
    pub vitals_seq: u64,
    pub(super) sequence: Sequence,
    boot: u64,
    restarted: bool,
    epochs: Vec<ReplicaEpoch>,
    missed_before: u64,
    lag: LagMeter,
    /// Highest number that a pointer stood for.
    pointed: u64,
    /// Since when the lowest hole has been one, and which it is.
    hole: Option<(u64, Millis)>,
}

impl Router {
    pub(super) fn first_met(news: &News, vitals: &Vitals, from: u64, span: u64, now: Millis) -> Self {
        Self {
            generation: news.generation,
            draining: false,
            segments: 0,
            entries: 0,
            lag_segments: 0,
            lag_ms: 0,
            heard_at: now,
            vitals_seq: 0,
            sequence: Sequence::after(from, span),
            boot: vitals.boot,
            restarted: false,
            epochs: Vec::new(),
            missed_before: 0,
            lag: LagMeter::new(now),
            pointed: 0,
            hole: None,
        }
    }

    /// The record after a newer generation of the same name came up.
    pub(super) fn reborn(&self, news: &News, vitals: &Vitals, from: u64, span: u64, now: Millis) -> Self {
        Self {
            segments: self.segments,
            entries: self.entries,
            missed_before: self.missed(),
            restarted: self.restarted || vitals.boot != self.boot,
            ..Self::first_met(news, vitals, from, span, now)
        }
    }

    /// Segments that nobody had any more when they were missed here, all generations.
    pub fn missed(&self) -> u64 {
        self.missed_before.saturating_add(self.sequence.missed())
    }

    /// Segments skipped that may still come.
    pub fn open(&self) -> u64 {
        self.sequence.open()
    }

    /// Largest segment number known of.
    pub fn head(&self) -> u64 {
        self.sequence.head()
    }

    /// Every segment up to this one was handed on or is lost.
    pub fn settled(&self) -> u64 {
        self.sequence.settled()
    }

    /// Whether the segment `seq` was handed on or is lost.
    pub fn has(&self, seq: u64) -> bool {
        self.sequence.has(seq)
    }

    /// Whether something was skipped within the last `within` milliseconds that gossip can bring: it is in the ring.
    pub(crate) fn has_new_hole(&self, now: Millis, within: Millis) -> bool {
        self.lowest_hole().is_some_and(|(seq, since, pointed)| {
            !pointed && now.saturating_sub(since) <= within && self.head() - seq < SLOTS
        })
    }

    /// Loads and epochs to hand on, if these vitals are the latest.
    pub(super) fn take_vitals(&mut self, vitals: Vitals) -> Option<(Vec<LoadReport>, Vec<ReplicaEpoch>)> {
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

    /// The new ones, in order; they are kept in the log.
    pub(super) fn take_segments(
        &mut self,
        origin: RouterId,
        mut segments: Vec<Heard>,
        log: &mut Log,
        now: Millis,
    ) -> Vec<Heard> {
        segments.sort_by_key(|it| it.segment.seq);
        segments
            .retain(|it| it.segment.generation == self.generation && self.sequence.accept(it.segment.seq));
        for it in &segments {
            log.keep(origin, self.generation, it.segment.seq, it.bytes.clone(), now);
        }
        self.note_holes(now);
        segments
    }

    /// Takes note of how late these came. Not for what was asked for: that was late before.
    pub(super) fn note_lag(&mut self, segments: &[Heard], now: Millis) {
        if let Some(others) = segments.len().checked_sub(1) {
            let lag = &mut self.lag;
            let lags = segments.iter().map(|it| lag.observe(now, it.segment.sent_ms));
            self.lag_ms = lags.max().unwrap_or(0);
            self.lag_segments = others as u64;
        }
    }

    /// A segment lies with its origin.
    pub(super) fn take_pointer(&mut self, pointer: &Pointer, now: Millis) {
        if pointer.generation != self.generation {
            return;
        }
        self.sequence.announce(pointer.seq);
        self.pointed = self.pointed.max(pointer.seq);
        self.note_holes(now);
    }

    /// Keeps the age of the lowest hole.
    pub(super) fn note_holes(&mut self, now: Millis) {
        let lowest = self.sequence.holes(1).first().map(|hole| hole.0);
        self.hole = match (lowest, self.hole) {
            (Some(seq), Some((before, since))) if seq == before => Some((seq, since)),
            (lowest, _) => lowest.map(|seq| (seq, now)),
        };
    }

    /// The lowest hole, since when it has been one, and whether a pointer said to ask for it.
    pub(super) fn lowest_hole(&self) -> Option<(u64, Millis, bool)> {
        self.hole.map(|(seq, since)| (seq, since, seq <= self.pointed))
    }

    /// One message for each segment; the first also carries the vitals.
    pub(super) fn hand_on(
        &mut self,
        origin: RouterId,
        vitals: Option<(Vec<LoadReport>, Vec<ReplicaEpoch>)>,
        segments: Vec<Heard>,
    ) -> Vec<Incoming> {
        self.segments += segments.len() as u64;
        self.entries += segments.iter().map(|it| it.segment.entries.len() as u64).sum::<u64>();
        let plain = |entries| Incoming { origin, restarted: false, entries, loads: None, epochs: Vec::new() };
        let mut out: Vec<Incoming> = segments.into_iter().map(|it| plain(it.segment.entries)).collect();
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
