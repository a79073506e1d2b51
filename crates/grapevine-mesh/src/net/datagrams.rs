//! Gossip's datagrams for who has no socket: tests that damage, repeat and mix them up.

use std::net::SocketAddr;

use super::frame::{self, Packer};
use super::wire::{Arrived, Outcome, Wire};
use crate::config::MeshConfig;

/// Writes and reads the datagrams of one router, exactly as its gossip socket does.
pub struct Datagrams {
    wire: Wire,
    packer: Packer,
}

/// What a datagram brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Brought {
    /// A direct message.
    Direct(Vec<u8>),
    /// A message of chitchat's of so many bytes.
    Gossip(usize),
    /// A datagram to send back to where it came from.
    Answer(Vec<u8>),
    /// A part of something.
    Nothing,
    /// It was dropped.
    Rejected,
}

impl Datagrams {
    /// Those of a router with the secrets and the cluster id of `config`. Each has a boot of its own.
    pub fn new(config: &MeshConfig) -> Self {
        Self { wire: Wire::new(config), packer: Packer::new() }
    }

    /// The datagrams that bring a message of chitchat's, given as its bytes. As long as a sealed peer's tag is
    /// not known, they only ask for it.
    pub fn gossip(&mut self, message: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
        self.wire.write(&self.packer.pack(message), to)
    }

    /// The same of a direct message.
    pub fn direct(&mut self, message: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
        self.wire.write(&frame::pack_direct(message), to)
    }

    /// What `datagram` brings.
    pub fn read(&mut self, datagram: &[u8], from: SocketAddr) -> Brought {
        let packed = match self.wire.read(datagram, from) {
            Ok(Outcome::Message(packed)) => packed,
            Ok(Outcome::Answer { datagram, .. }) => return Brought::Answer(datagram),
            Ok(Outcome::Nothing) => return Brought::Nothing,
            Err(_) => return Brought::Rejected,
        };
        match Arrived::unpack(&packed, &mut self.packer) {
            Ok(Arrived::Direct(message)) => Brought::Direct(message.to_vec()),
            Ok(Arrived::Gossip { bytes, .. }) => Brought::Gossip(bytes),
            Err(_) => Brought::Rejected,
        }
    }
}
