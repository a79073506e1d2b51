//! Counts that several tasks add to.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::codec::CodecError;
use crate::handle::Refused;
use by_peer::ByPeer;
pub(crate) use by_peer::PeerTraffic;

mod by_peer;

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatagramReject {
    /// Not of this protocol, version, cluster or secret; plaintext among sealed peers.
    Foreign,
    /// The seal does not hold, or what it holds is no gossip.
    Damaged,
    /// Seen before, or too far behind to tell.
    Replayed,
    /// Meant for another router, or for this one before it restarted.
    Misdirected,
    /// Parts of a message whose rest never came.
    Incomplete,
}

/// Why a published value was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentReject {
    /// Of another wire version.
    Version,
    /// Hashes of another scheme.
    Scheme,
    /// Not base64, cut short, overlong, or saying what cannot be.
    Malformed,
    /// Under a generation that is not the publisher's.
    Generation,
}

impl Traffic {
    /// Datagrams of another secret, cluster or version.
    pub fn foreign(&self) -> u64 {
        let of = |(name, count): &(&'static str, u64)| (*name == DatagramReject::FOREIGN).then_some(*count);
        self.datagrams_rejected.iter().find_map(of).unwrap_or_default()
    }
}

impl DatagramReject {
    const FOREIGN: &'static str = "foreign";

    const ALL: [(Self, &'static str); 5] = [
        (Self::Foreign, Self::FOREIGN),
        (Self::Damaged, "damaged"),
        (Self::Replayed, "replayed"),
        (Self::Misdirected, "misdirected"),
        (Self::Incomplete, "incomplete"),
    ];
}

impl SegmentReject {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Version, "version"),
        (Self::Scheme, "scheme"),
        (Self::Malformed, "malformed"),
        (Self::Generation, "generation"),
    ];
}

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// What passed between this router and each peer.
    pub(crate) peers: ByPeer,
    datagrams_sent: AtomicU64,
    datagrams_received: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    largest_datagram: AtomicU64,
    largest_message: AtomicU64,
    /// Since it was last taken.
    recent_message: AtomicU64,
    send_errors: AtomicU64,
    datagram_rejects: [AtomicU64; 5],
    segment_rejects: [AtomicU64; 4],
    answers: AtomicU64,
    answered_bytes: AtomicU64,
    refusals: [AtomicU64; 6],
}

/// Counts since the start of the process, read at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams sent; whole messages on a transport of the caller's.
    pub datagrams_sent: u64,
    /// Datagrams received, the rejected ones included.
    pub datagrams_received: u64,
    /// Bytes in them, without IP and UDP headers.
    pub bytes_sent: u64,
    /// See `bytes_sent`.
    pub bytes_received: u64,
    /// Largest datagram sent or received, in bytes.
    pub largest_datagram: u64,
    /// Largest chitchat message sent or received, in bytes. Above 32 KiB gossip is falling behind.
    pub largest_message: u64,
    /// Datagrams that the system did not send.
    pub send_errors: u64,
    /// Datagrams dropped, by reason.
    pub datagrams_rejected: Vec<(&'static str, u64)>,
    /// Published values dropped, by reason.
    pub segments_rejected: Vec<(&'static str, u64)>,
    /// Questions of peers that were answered.
    pub answers: u64,
    /// Bytes of the answers.
    pub answered_bytes: u64,
    /// Questions that were refused, by reason.
    pub questions_refused: Vec<(&'static str, u64)>,
}

impl Counters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.datagrams_sent.fetch_add(1, Relaxed);
        self.bytes_sent.fetch_add(bytes as u64, Relaxed);
        self.largest_datagram.fetch_max(bytes as u64, Relaxed);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.datagrams_received.fetch_add(1, Relaxed);
        self.bytes_received.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn message(&self, bytes: usize) {
        self.largest_message.fetch_max(bytes as u64, Relaxed);
        self.recent_message.fetch_max(bytes as u64, Relaxed);
    }

    /// The largest message since the last call.
    pub(crate) fn take_recent_message(&self) -> u64 {
        self.recent_message.swap(0, Relaxed)
    }

    pub(crate) fn answered(&self, bytes: usize) {
        self.answers.fetch_add(1, Relaxed);
        self.answered_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn refused(&self, why: Refused) {
        let of_all = Refused::ALL.iter().zip(&self.refusals);
        of_all.filter(|((it, _), _)| *it == why).for_each(|(_, count)| _ = count.fetch_add(1, Relaxed));
    }

    pub(crate) fn send_failed(&self) {
        self.send_errors.fetch_add(1, Relaxed);
    }

    pub(crate) fn reject_datagram(&self, why: DatagramReject) {
        let of_all = DatagramReject::ALL.iter().zip(&self.datagram_rejects);
        of_all.filter(|((it, _), _)| *it == why).for_each(|(_, count)| _ = count.fetch_add(1, Relaxed));
    }

    pub(crate) fn reject_segment(&self, why: SegmentReject) {
        let of_all = SegmentReject::ALL.iter().zip(&self.segment_rejects);
        of_all.filter(|((it, _), _)| *it == why).for_each(|(_, count)| _ = count.fetch_add(1, Relaxed));
    }

    /// A value that could not be decoded.
    pub(crate) fn reject_value(&self, error: CodecError) {
        self.reject_segment(match error {
            CodecError::Version(_) => SegmentReject::Version,
            CodecError::Scheme(_) => SegmentReject::Scheme,
            CodecError::TooLong(_) | CodecError::Malformed | CodecError::OutOfRange => {
                SegmentReject::Malformed
            }
        });
    }

    pub(crate) fn read(&self) -> Traffic {
        let get = |count: &AtomicU64| count.load(Relaxed);
        let names = DatagramReject::ALL.iter().map(|(_, name)| *name);
        let refusals = Refused::ALL.iter().map(|(_, name)| *name);
        let segment_names = SegmentReject::ALL.iter().map(|(_, name)| *name);
        Traffic {
            datagrams_sent: get(&self.datagrams_sent),
            datagrams_received: get(&self.datagrams_received),
            bytes_sent: get(&self.bytes_sent),
            bytes_received: get(&self.bytes_received),
            largest_datagram: get(&self.largest_datagram),
            largest_message: get(&self.largest_message),
            send_errors: get(&self.send_errors),
            datagrams_rejected: names.zip(self.datagram_rejects.iter().map(get)).collect(),
            segments_rejected: segment_names.zip(self.segment_rejects.iter().map(get)).collect(),
            answers: get(&self.answers),
            answered_bytes: get(&self.answered_bytes),
            questions_refused: refusals.zip(self.refusals.iter().map(get)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_are_counted_under_their_name() {
        let counters = Counters::default();
        for (why, _) in DatagramReject::ALL {
            counters.reject_datagram(why);
        }
        counters.reject_datagram(DatagramReject::Replayed);
        counters.reject_segment(SegmentReject::Scheme);
        let traffic = counters.read();
        let expected =
            [("foreign", 1), ("damaged", 1), ("replayed", 2), ("misdirected", 1), ("incomplete", 1)];
        assert_eq!(traffic.datagrams_rejected, expected);
        assert_eq!(
            traffic.segments_rejected,
            [("version", 0), ("scheme", 1), ("malformed", 0), ("generation", 0)]
        );
    }
}
