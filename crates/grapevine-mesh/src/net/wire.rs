//! From messages to datagrams and back, without a socket.

use std::net::SocketAddr;

use chitchat::{ChitchatMessage, Deserializable};

use super::frame::Packer;
use super::{Reject, frame, plain, seal};
use crate::config::MeshConfig;

/// How datagrams are written and read: plain on loopback, sealed elsewhere.
pub(super) enum Wire {
    Plain(plain::Plain),
    Sealed(Box<seal::Sealed>),
}

/// What a datagram brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The last piece of a packed message.
    Message(Vec<u8>),
    /// A question that is to be answered, or data that was meant for someone else.
    Answer { datagram: Vec<u8>, to: SocketAddr, misdirected: bool },
    /// Nothing yet.
    Nothing,
}

/// A packed message, unpacked.
pub(super) enum Arrived<'a> {
    /// Of chitchat's, and how long it is.
    Gossip { message: ChitchatMessage, bytes: usize },
    /// A direct one.
    Direct(&'a [u8]),
}

impl Wire {
    /// With a salt, a tag and counters of its own.
    pub(super) fn new(config: &MeshConfig) -> Self {
        let Some(secret) = &config.secret else { return Self::Plain(plain::Plain::new(&config.cluster_id)) };
        let secrets = [Some(secret), config.previous_secret.as_ref()];
        let secrets = secrets.into_iter().flatten().map(Vec::as_slice);
        Self::Sealed(Box::new(seal::Sealed::new(secrets, &config.cluster_id)))
    }

    /// The datagrams for a packed message to `to`.
    pub(super) fn write(&mut self, packed: &[u8], to: SocketAddr) -> Vec<Vec<u8>> {
        match self {
            Self::Plain(plain) => plain.write(packed),
            Self::Sealed(sealed) => sealed.write(packed, to),
        }
    }

    /// What a datagram from `from` brings.
    pub(super) fn read(&mut self, datagram: &[u8], from: SocketAddr) -> Result<Outcome, Reject> {
        match self {
            Self::Plain(plain) => plain.read(datagram, from),
            Self::Sealed(sealed) => sealed.read(datagram, from),
        }
    }

    /// Messages given up since the last call, because the rest of them never came.
    pub(super) fn take_given_up(&mut self) -> u64 {
        match self {
            Self::Plain(plain) => plain.take_given_up(),
            Self::Sealed(sealed) => sealed.take_given_up(),
        }
    }
}

impl<'a> Arrived<'a> {
    pub(super) fn unpack(packed: &'a [u8], packer: &mut Packer) -> Result<Self, Reject> {
        if let Some(message) = frame::unpack_direct(packed) {
            return Ok(Self::Direct(message));
        }
        let unpacked = packer.unpack(packed).ok_or(Reject::Damaged)?;
        let mut rest = unpacked;
        let message = ChitchatMessage::deserialize(&mut rest).map_err(|_| Reject::Damaged)?;
        let whole = rest.is_empty();
        whole.then_some(Self::Gossip { message, bytes: unpacked.len() }).ok_or(Reject::Damaged)
    }
}
