//! A chitchat message as bytes, and those bytes as datagrams that need no IP fragmentation.
//!
//! [`Packer`] compresses: half of an idle fleet's traffic is digests, which shrink to a third.
//! [`Reassembly`] puts messages together again. It is bounded in messages and bytes, and on a sealed
//! socket sees only fragments whose seal held.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use zstd::bulk::{Compressor, Decompressor};

use crate::codec::MAX_WORD_BYTES;

/// Longest chitchat message, in bytes. chitchat fills 65,507 at most, and a few of its own overhead.
pub(super) const MAX_MESSAGE: usize = 65_600;

/// Longest direct message, in bytes.
const MAX_DIRECT: usize = MAX_WORD_BYTES;

/// Messages shorter than this are not worth compressing.
const MIN_COMPRESSED: usize = 128;

/// Longer messages are mostly deltas, which chitchat has compressed: what is left to gain is a part of their digest. A
/// digest alone is that long from some 200 routers on.
const MAX_COMPRESSED: usize = 16 * 1024;

/// zstd's fastest regular level: 16 KiB in about 0.06 ms.
const LEVEL: i32 = 1;

const RAW: u8 = 0;
const ZSTD: u8 = 1;
const DIRECT: u8 = 2;

/// Messages that wait for their other fragments, at most. A tick of 100 peers brings fewer.
const MAX_PARTIAL: usize = 64;

/// Bytes that wait for other fragments, at most.
const MAX_PARTIAL_BYTES: usize = 2 * 1024 * 1024;

/// Where a datagram's bytes belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the message, by its sender.
    pub(super) message: u32,
    /// Which fragment.
    pub(super) index: u8,
    /// Of how many.
    pub(super) count: u8,
}

/// Packs and unpacks messages. Keeps what zstd needs for it: to set that up for each message took a
/// quarter of an idle fleet's gossip.
pub(super) struct Packer {
    compressor: Option<Compressor<'static>>,
    decompressor: Option<Decompressor<'static>>,
    /// The message that was unpacked last.
    message: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> Self {
        // Either fails only for want of memory. Then messages go raw, and compressed ones are not understood.
        let (compressor, decompressor) = (Compressor::new(LEVEL).ok(), Decompressor::new().ok());
        Self { compressor, decompressor, message: Vec::new() }
    }

    /// The bytes to send for a message.
    pub(super) fn pack(&mut self, message: &[u8]) -> Vec<u8> {
        if (MIN_COMPRESSED..=MAX_COMPRESSED).contains(&message.len())
            && let Some(compressor) = &mut self.compressor
            && let Ok(mut packed) = compressor.compress(message)
            && packed.len() < message.len()
        {
            packed.insert(0, ZSTD);
            return packed;
        }
        [&[RAW], message].concat()
    }

    /// The message in received bytes. Never holds more than [`MAX_MESSAGE`].
    pub(super) fn unpack<'a>(&'a mut self, packed: &'a [u8]) -> Option<&'a [u8]> {
        match packed.split_first()? {
            (&RAW, message) => (message.len() <= MAX_MESSAGE).then_some(message),
            (&ZSTD, compressed) => {
                self.message.clear();
                self.message.reserve(MAX_MESSAGE);
                self.decompressor.as_mut()?.decompress_to_buffer(compressed, &mut self.message).ok()?;
                (self.message.len() <= MAX_MESSAGE).then_some(&self.message)
            }
            _ => None,
        }
    }
}

/// The bytes to send for a direct message: short, or hashes, which do not compress.
pub(super) fn pack_direct(message: &[u8]) -> Vec<u8> {
    [&[DIRECT], message].concat()
}

/// The direct message in received bytes, if they are one.
pub(super) fn unpack_direct(packed: &[u8]) -> Option<&[u8]> {
    packed.strip_prefix(&[DIRECT]).filter(|message| message.len() <= MAX_DIRECT)
}

/// Cuts `packed` into pieces of at most `size` bytes; `None` when there would be more than 255.
pub(super) fn cut(packed: &[u8], size: usize) -> Option<(u8, impl Iterator<Item = (u8, &[u8])>)> {
    let pieces = packed.chunks(size);
    let count = u8::try_from(pieces.len()).ok()?;
    Some((count, (0..count).zip(pieces)))
}

/// Messages of which some fragments are still missing.
#[derive(Debug)]
pub(super) struct Reassembly<Sender> {
    partial: BTreeMap<(Sender, u32), Partial>,
    order: VecDeque<(Sender, u32)>,
    bytes: usize,
    given_up: u64,
}

#[derive(Debug)]
struct Partial {
    pieces: Vec<Option<Vec<u8>>>,
    missing: usize,
    bytes: usize,
}

impl<Sender: Ord + Copy> Reassembly<Sender> {
    pub(super) fn new() -> Self {
        Self { partial: BTreeMap::new(), order: VecDeque::new(), bytes: 0, given_up: 0 }
    }

    /// Takes a fragment; the whole when it was the last one missing.
    pub(super) fn add(&mut self, sender: Sender, place: Place, piece: &[u8]) -> Option<Vec<u8>> {
        if place.count == 1 && place.index == 0 {
            return Some(piece.to_vec());
        }
        if place.index >= place.count {
            return None;
        }
        let key = (sender, place.message);
        if !self.partial.contains_key(&key) {
            self.open(key, usize::from(place.count));
        }
        let partial = self.partial.get_mut(&key)?;
        let slot = partial.pieces.get_mut(usize::from(place.index)).filter(|slot| slot.is_none())?;
        *slot = Some(piece.to_vec());
        partial.missing -= 1;
        partial.bytes += piece.len();
        self.bytes += piece.len();
        if partial.missing == 0 {
            return self.close(key).map(|whole| whole.pieces.into_iter().flatten().flatten().collect());
        }
        while self.bytes > MAX_PARTIAL_BYTES {
            self.give_up_oldest();
        }
        None
    }

    /// Messages given up since the last call.
    pub(super) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    fn open(&mut self, key: (Sender, u32), count: usize) {
        if self.partial.len() >= MAX_PARTIAL {
            self.give_up_oldest();
        }
        self.partial.insert(key, Partial { pieces: vec![None; count], missing: count, bytes: 0 });
        self.order.push_back(key);
    }

    fn close(&mut self, key: (Sender, u32)) -> Option<Partial> {
        let partial = self.partial.remove(&key)?;
        self.order.retain(|other| *other != key);
        self.bytes -= partial.bytes;
        Some(partial)
    }

    fn give_up_oldest(&mut self) {
        if let Some(&oldest) = self.order.front() {
            self.close(oldest);
            self.given_up += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
    }

    #[test]
    fn messages_survive_packing() {
        let mut packer = Packer::new();
        for message in
            [vec![], vec![7; 100], vec![7; 8_000], vec![7; 60_000], noise(MAX_MESSAGE), vec![8; 200]]
        {
            let packed = packer.pack(&message);
            assert!(packed.len() <= message.len() + 1);
            assert_eq!(packer.unpack(&packed), Some(message.as_slice()));
        }
        assert!(packer.pack(&vec![7; 8_000]).len() < 100);
    }

    #[test]
    fn a_compressed_bomb_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 100 << 20], 3).unwrap();
        assert!(bomb.len() < 20_000);
        let mut packer = Packer::new();
        assert_eq!(packer.unpack(&[&[ZSTD], bomb.as_slice()].concat()), None);
        assert!(packer.message.capacity() <= 2 * MAX_MESSAGE);
        let packed = packer.pack(&[7; 1_000]);
        assert_eq!(packer.unpack(&packed), Some(&[7; 1_000][..]), "and what follows is understood");
    }

    #[test]
    fn fragments_in_any_order_and_twice_make_one_message() {
        let packed = noise(5_000);
        let (count, pieces) = cut(&packed, 1_000).unwrap();
        let mut pieces: Vec<_> = pieces.collect();
        pieces.reverse();
        pieces.insert(2, pieces[1]);
        let mut reassembly = Reassembly::new();
        let place = |index| Place { message: 9, index, count };
        let whole: Vec<_> =
            pieces.iter().filter_map(|&(index, piece)| reassembly.add(1u8, place(index), piece)).collect();
        assert_eq!(whole, [packed]);
        assert_eq!((reassembly.partial.len(), reassembly.bytes, reassembly.order.len()), (0, 0, 0));
    }

    #[test]
    fn fragments_of_different_senders_do_not_mix() {
        let mut reassembly = Reassembly::new();
        let place = |index| Place { message: 9, index, count: 2 };
        assert_eq!(reassembly.add(1u8, place(0), b"a"), None);
        assert_eq!(reassembly.add(2u8, place(1), b"b"), None);
        assert_eq!(reassembly.add(1u8, place(1), b"c"), Some(b"ac".to_vec()));
    }

    #[test]
    fn what_never_completes_is_bounded_and_counted() {
        let mut reassembly = Reassembly::new();
        for message in 0..1000 {
            assert_eq!(reassembly.add(1u8, Place { message, index: 0, count: 60 }, &[0; 40_000]), None);
        }
        assert!(reassembly.bytes <= MAX_PARTIAL_BYTES && reassembly.partial.len() <= MAX_PARTIAL);
        assert_eq!(reassembly.partial.len(), reassembly.order.len());
        assert_eq!(reassembly.take_given_up() as usize, 1000 - reassembly.partial.len());
    }

    proptest! {
        #[test]
        fn arbitrary_fragments_never_panic(
            fragments in proptest::collection::vec((0u8..3, 0u32..4, any::<u8>(), any::<u8>(), 0usize..40), 0..200),
        ) {
            let (mut reassembly, mut packer) = (Reassembly::new(), Packer::new());
            for (sender, message, index, count, len) in fragments {
                if let Some(whole) = reassembly.add(sender, Place { message, index, count }, &vec![0; len]) {
                    let _ = packer.unpack(&whole);
                }
            }
            let held: usize = reassembly.partial.values().map(|it| it.bytes).sum();
            prop_assert_eq!(held, reassembly.bytes);
        }
    }
}
