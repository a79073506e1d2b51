//! What is to happen, in the order of time, and of being made where times are equal.

use std::collections::BTreeMap;

use super::faults::Fault;
use crate::replay::engine::Micros;

/// Something that happens in the world outside the mesh.
#[derive(Debug)]
pub(super) enum Event {
    /// The request of this number arrives at some router.
    Arrive(usize),
    /// A prefill is done; of a replica's former life it means nothing.
    FirstToken { replica: usize, life: u32, call: usize },
    /// An answer is done.
    Finish { replica: usize, life: u32, call: usize },
    /// A router keeps house; of a former life it means nothing.
    Housekeep { router: usize, life: u32 },
    /// Something goes wrong or right.
    Strike(Fault),
    /// Another second has passed.
    Second,
}

/// A queue of events.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Micros, u64), Event>,
    made: u64,
}

impl Agenda {
    /// Puts an event down.
    pub(super) fn add(&mut self, at: Micros, event: Event) {
        self.made += 1;
        self.events.insert((at, self.made), event);
    }

    /// Takes the next one that is due before `end`.
    pub(super) fn next(&mut self, end: Micros) -> Option<(Micros, Event)> {
        let next = self.events.first_entry()?;
        let (at, _) = *next.key();
        (at < end).then(|| (at, next.remove()))
    }
}
