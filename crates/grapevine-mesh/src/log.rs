//! The last minute or two of everyone's segments, as their origins encoded them, for peers that missed
//! some. Pure, and bounded in bytes and time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use grapevine_tree::{Millis, RouterId};

use crate::codec::Segments;

/// Bytes kept, at most: 8 routers at 200 requests a second each make 80 kB/s, so 100 s of them.
pub const MAX_BYTES: usize = 8 << 20;

/// Segments are kept for this long, at most, in milliseconds. Longer cuts are mended by a snapshot.
pub const MAX_AGE_MS: Millis = 120_000;

/// What a kept segment costs besides its bytes: keys in two collections and a count.
const OVERHEAD: usize = 100;

type Key = (RouterId, u64, u64);

/// Segments by origin, generation and number.
#[derive(Clone, Debug, Default)]
pub struct Log {
    segments: BTreeMap<Key, Arc<[u8]>>,
    order: VecDeque<(Millis, Key)>,
    bytes: usize,
}

impl Log {
    /// Keeps a segment.
    pub fn keep(&mut self, origin: RouterId, generation: u64, seq: u64, bytes: Arc<[u8]>, now: Millis) {
        let key = (origin, generation, seq);
        if !self.segments.contains_key(&key) {
            self.bytes += bytes.len() + OVERHEAD;
            self.segments.insert(key, bytes);
            self.order.push_back((now, key));
        }
        self.forget_old(now);
    }

    /// Those of the ranges `wanted` that are here, at most about `limit` bytes of them.
    pub fn get(&self, origin: RouterId, generation: u64, wanted: &[(u64, u64)], limit: usize) -> Segments {
        let mut answer = Segments::default();
        let mut left = limit;
        for &(first, last) in wanted.iter().filter(|(first, last)| first <= last) {
            for bytes in self.range(origin, generation, first, last) {
                match left.checked_sub(bytes.len() + 5) {
                    Some(rest) => left = rest,
                    None => {
                        answer.more = true;
                        return answer;
                    }
                }
                answer.segments.push(bytes.to_vec());
            }
        }
        answer
    }

    /// The segment, if it is here.
    pub fn find(&self, origin: RouterId, generation: u64, seq: u64) -> Option<&[u8]> {
        self.segments.get(&(origin, generation, seq)).map(|bytes| &**bytes)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn range(&self, origin: RouterId, generation: u64, first: u64, last: u64) -> impl Iterator<Item = &[u8]> {
        let range = (origin, generation, first)..=(origin, generation, last);
        self.segments.range(range).map(|(_, bytes)| &**bytes)
    }

    fn forget_old(&mut self, now: Millis) {
        while let Some(&(at, key)) = self.order.front() {
            if self.bytes <= MAX_BYTES && now.saturating_sub(at) <= MAX_AGE_MS {
                return;
            }
            self.order.pop_front();
            if let Some(bytes) = self.segments.remove(&key) {
                self.bytes -= bytes.len() + OVERHEAD;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RouterId = RouterId(1);
    const ALL: usize = usize::MAX;

    fn bytes(len: usize) -> Arc<[u8]> {
        vec![7; len].into()
    }

    #[test]
    fn what_was_kept_is_found_by_range() {
        let mut log = Log::default();
        for seq in [1, 2, 3, 5, 9] {
            log.keep(A, 7, seq, vec![seq as u8].into(), 0);
            log.keep(A, 8, seq, bytes(1), 0);
            log.keep(RouterId(2), 7, seq, bytes(1), 0);
        }
        let found = log.get(A, 7, &[(2, 6), (9, u64::MAX), (4, 3)], ALL);
        assert_eq!((found.segments, found.more), (vec![vec![2], vec![3], vec![5], vec![9]], false));
        assert_eq!(log.get(A, 9, &[(0, u64::MAX)], ALL), Segments::default());
        assert_eq!(log.find(A, 7, 5), Some(&[5][..]));
    }

    #[test]
    fn an_answer_has_a_limit() {
        let mut log = Log::default();
        (1..=10).for_each(|seq| log.keep(A, 7, seq, bytes(95), 0));
        let found = log.get(A, 7, &[(1, 10)], 350);
        assert_eq!((found.segments.len(), found.more), (3, true));
    }

    #[test]
    fn it_is_bounded_in_bytes_and_time() {
        let mut log = Log::default();
        for seq in 0..10_000 {
            log.keep(A, 7, seq, bytes(10_000), seq);
            log.keep(A, 7, seq, bytes(10_000), seq);
            assert!(log.bytes() <= MAX_BYTES);
        }
        assert!(log.find(A, 7, 0).is_none() && log.find(A, 7, 9_999).is_some());
        log.keep(A, 7, 10_000, bytes(1), 10_000 + MAX_AGE_MS);
        assert_eq!((log.segments.len(), log.order.len(), log.bytes()), (1, 1, 1 + OVERHEAD));
    }
}
