//! Datagrams without a seal, for the loopback interface only. They carry the fleet's tag, so that
//! fleets on one machine do not mix; chitchat itself names the cluster in the first of its three
//! messages only.

use std::net::SocketAddr;

use super::frame::{self, Place, Reassembly};
use super::header::{PLAIN_BYTES, PlainHeader};
use super::{Outcome, Reject};

/// Bytes of a fragment: loopback takes 64 KiB at once, so two hold any message.
const PIECE_BYTES: usize = 40_000;

/// Writes and reads plain datagrams of one fleet.
#[derive(Debug)]
pub(super) struct Plain {
    cluster: [u8; 8],
    message: u32,
    reassembly: Reassembly<SocketAddr>,
}

impl Plain {
    pub(super) fn new(cluster_id: &str) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, cluster_id.as_bytes());
        let cluster = *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        Self { cluster, message: 0, reassembly: Reassembly::new() }
    }

    pub(super) fn write(&mut self, packed: &[u8]) -> Vec<Vec<u8>> {
        self.message = self.message.wrapping_add(1);
        let Some((count, pieces)) = frame::cut(packed, PIECE_BYTES) else { return Vec::new() };
        let datagram = |(index, piece): (u8, &[u8])| {
            let mut datagram = Vec::with_capacity(PLAIN_BYTES + piece.len());
            let place = Place { message: self.message, index, count };
            PlainHeader { cluster: self.cluster, place }.write(&mut datagram);
            datagram.extend(piece);
            datagram
        };
        pieces.map(datagram).collect()
    }

    pub(super) fn read(&mut self, datagram: &[u8], from: SocketAddr) -> Result<Outcome, Reject> {
        let header = PlainHeader::read(datagram).ok_or(Reject::Foreign)?;
        if header.cluster != self.cluster {
            return Err(Reject::Foreign);
        }
        let piece = datagram.get(PLAIN_BYTES..).unwrap_or_default();
        Ok(match self.reassembly.add(from, header.place, piece) {
            Some(packed) => Outcome::Message(packed),
            None => Outcome::Nothing,
        })
    }

    pub(super) fn take_given_up(&mut self) -> u64 {
        self.reassembly.take_given_up()
    }
}
