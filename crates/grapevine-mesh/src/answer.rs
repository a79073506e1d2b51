//! Answers what peers ask.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use grapevine_tree::SnapshotPage;

use crate::Host;
use crate::codec::{MAX_HEAD_BYTES, SnapshotHead, encode_head, encode_page};
use crate::exchange::Salt;
use crate::handle::{Refused, Reply};

/// Bytes of segments in one answer, about: one segment more than fits would be far below the limit.
pub(crate) const SEGMENTS_BYTES: usize = 256 * 1024;

/// Bytes of a page, about: below what a reader takes, with room for an estimate that is a quarter off.
const PAGE_BYTES: usize = 384 * 1024;

/// Slices of the tree that make a page, at most: the tree serves lookups between them.
const MAX_SLICES: usize = 32;

/// A page with less room than this is full.
const MIN_SLICE_BYTES: usize = 16 * 1024;

/// Questions remembered: at a hundred a second, minutes.
const MAX_SALTS: usize = 8_192;

/// Bytes of a replica's history beside its dates, and of a date, at most.
const HISTORY_BYTES: usize = 4 + 5 + 10 + 5 + 3;
const DATE_BYTES: usize = 5 + 9;

/// The questions that were asked lately: none is answered twice.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    salts: BTreeSet<Salt>,
    order: VecDeque<Salt>,
}

impl Asked {
    /// Questions remembered.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether it is asked for the first time.
    pub(crate) fn is_new(&mut self, salt: Salt) -> bool {
        if !self.salts.insert(salt) {
            return false;
        }
        self.order.push_back(salt);
        if self.order.len() > MAX_SALTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.salts.remove(&oldest);
        }
        true
    }
}

/// Completes a snapshot's head with the histories, and sends it.
pub(crate) async fn head<H: Host>(host: Arc<H>, mut head: SnapshotHead, reply: Reply) {
    let Some(mut histories) = host.histories().await else {
        let _ = reply.send(Err(Refused::Busy));
        return;
    };
    // Whoever joins then leaves out what it has no dates for.
    let mut left = MAX_HEAD_BYTES / 2;
    histories.retain(|it| match left.checked_sub(HISTORY_BYTES + DATE_BYTES * it.runs.len()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    });
    head.histories = histories;
    let _ = reply.send(Ok(encode_head(&head)));
}

/// Makes a page of a snapshot, slice by slice, and sends it.
pub(crate) async fn page<H: Host>(host: Arc<H>, cursor: u64, reply: Reply) {
    let mut page = SnapshotPage { nodes: Vec::new(), next: Some(cursor) };
    let mut left = PAGE_BYTES;
    for _ in 0..MAX_SLICES {
        let Some(cursor) = page.next.filter(|_| left >= MIN_SLICE_BYTES) else { break };
        let Some(slice) = host.snapshot(cursor, left).await else {
            let _ = reply.send(Err(Refused::Busy));
            return;
        };
        left = left.saturating_sub(encode_page(&slice).len());
        page.nodes.extend(slice.nodes);
        page.next = slice.next;
    }
    let _ = reply.send(Ok(encode_page(&page)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_new_once_and_memory_is_bounded() {
        let mut asked = Asked::default();
        let salt = |i: usize| {
            let mut salt = Salt::default();
            salt[..8].copy_from_slice(&(i as u64).to_le_bytes());
            salt
        };
        for i in 0..3 * MAX_SALTS {
            assert!(asked.is_new(salt(i)) && !asked.is_new(salt(i)));
        }
        assert_eq!((asked.salts.len(), asked.order.len()), (MAX_SALTS, MAX_SALTS));
        assert!(!asked.is_new(salt(2 * MAX_SALTS + 1)));
    }
}
