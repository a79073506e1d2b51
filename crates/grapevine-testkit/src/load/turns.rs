//! Keeps conversations in order: a turn starts when the one before has ended.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// How far each conversation is. Those without a waiting or running turn take no room.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<usize, Line>>);

struct Line {
    ended: watch::Sender<usize>,
    /// Turns handed out and not yet ended.
    open: usize,
}

/// A turn that was handed out; the next may start when it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    group: usize,
    place: usize,
    ended: watch::Receiver<usize>,
}

impl Turns {
    /// Queues for `group`; must be called in the order of the turns.
    pub(crate) fn take(&self, group: usize) -> Turn<'_> {
        let mut lines = self.lock();
        let line = lines.entry(group).or_insert_with(|| Line { ended: watch::Sender::new(0), open: 0 });
        let place = *line.ended.borrow() + line.open;
        line.open += 1;
        Turn { turns: self, group, place, ended: line.ended.subscribe() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn<'_> {
    /// Waits for the turns before.
    pub(crate) async fn start(&mut self) {
        let place = self.place;
        // An error would mean that the line is gone, which it is not while this turn is open.
        let _ = self.ended.wait_for(|ended| *ended >= place).await;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut lines = self.turns.lock();
        if let Some(line) = lines.get_mut(&self.group) {
            line.open -= 1;
            line.ended.send_modify(|ended| *ended += 1);
            if line.open == 0 {
                lines.remove(&self.group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_waits_for_the_one_before_and_for_no_other_group() {
        let turns = Turns::default();
        let mut first = turns.take(1);
        let mut second = turns.take(1);
        let mut other = turns.take(2);
        first.start().await;
        other.start().await;
        tokio::select! {
            biased;
            () = second.start() => panic!("the turn before has not ended"),
            () = std::future::ready(()) => {}
        }
        drop(first);
        second.start().await;
        drop((second, other));
        assert!(turns.lock().is_empty());
    }
}
