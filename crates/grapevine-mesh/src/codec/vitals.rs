//! What a router says of itself, and what it has seen of the others.

use grapevine_tree::RouterId;

use super::{
    CONFIG, CodecError, Decode, Encode, KIND_SEEN, KIND_VITALS, MAX_VALUE_BYTES, decode, encode, replica,
};
use crate::{LoadReport, ReplicaEpoch};

/// Most of its own requests a router can claim to have on one replica. Far above any engine's
/// queue; keeps sums over a fleet far from overflow.
pub(super) const MAX_INFLIGHT: u32 = 1 << 20;

/// Origins in one [`Seen`], at most: 22 bytes each, 6 KiB.
pub const MAX_SEEN: usize = 256;

/// What a router says of itself; each replaces the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vitals {
    /// The publisher's generation.
    pub generation: u64,
    /// Number within the generation, from 1.
    pub seq: u64,
    /// Generation at which the publisher's process started: its counters run since then.
    pub boot: u64,
    /// A newcomer leaves out segments numbered below this: they are older than the ring's span.
    pub floor: u64,
    /// Load on each replica.
    pub loads: Vec<LoadReport>,
    /// Cache epochs of replicas.
    pub epochs: Vec<ReplicaEpoch>,
    /// The publisher is going away.
    pub draining: bool,
}

/// How far a router has come with one origin, itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenOrigin {
    /// The origin.
    pub origin: RouterId,
    /// Its generation.
    pub generation: u64,
    /// Every segment up to this one is here or lost.
    pub settled: u64,
    /// Segments that are lost, all generations.
    pub lost: u64,
}

/// What a router has seen of all: its version vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The publisher's generation.
    pub generation: u64,
    /// By origin, ascending.
    pub origins: Vec<SeenOrigin>,
}

#[derive(Encode, Decode)]
pub(super) struct WireVitals {
    generation: u64,
    seq: u64,
    boot: u64,
    floor: u64,
    draining: bool,
    loads: Vec<WireLoad>,
    epochs: Vec<WireEpoch>,
}

#[derive(Encode, Decode)]
struct WireLoad {
    replica: [u8; 4],
    inflight: u32,
    queued_tokens: u32,
    new_tokens: u64,
}

#[derive(Encode, Decode)]
pub(super) struct WireEpoch {
    replica: [u8; 4],
    epoch: u32,
}

#[derive(Encode, Decode)]
struct WireSeen {
    generation: u64,
    origins: Vec<WireOrigin>,
}

#[derive(Encode, Decode)]
pub(super) struct WireOrigin {
    origin: [u8; 4],
    generation: u64,
    settled: u64,
    lost: u64,
}

/// The bytes of a router's vitals.
pub fn encode_vitals(vitals: &Vitals) -> Vec<u8> {
    encode(KIND_VITALS, vitals_to_wire(vitals))
}

/// A router's vitals from their bytes.
pub fn decode_vitals(bytes: &[u8]) -> Result<Vitals, CodecError> {
    vitals_from_wire(decode(KIND_VITALS, bytes, MAX_VALUE_BYTES, CONFIG)?)
}

pub(super) fn vitals_to_wire(vitals: &Vitals) -> WireVitals {
    let load = |load: &LoadReport| WireLoad {
        replica: load.replica.0.to_le_bytes(),
        inflight: load.inflight.min(MAX_INFLIGHT),
        queued_tokens: load.queued_tokens,
        new_tokens: load.new_tokens,
    };
    WireVitals {
        generation: vitals.generation,
        seq: vitals.seq,
        boot: vitals.boot,
        floor: vitals.floor,
        draining: vitals.draining,
        loads: vitals.loads.iter().map(load).collect(),
        epochs: vitals.epochs.iter().map(WireEpoch::from).collect(),
    }
}

pub(super) fn vitals_from_wire(wire: WireVitals) -> Result<Vitals, CodecError> {
    if wire.loads.iter().any(|load| load.inflight > MAX_INFLIGHT) {
        return Err(CodecError::OutOfRange);
    }
    let load = |load: WireLoad| LoadReport {
        replica: replica(load.replica),
        inflight: load.inflight,
        queued_tokens: load.queued_tokens,
        new_tokens: load.new_tokens,
    };
    Ok(Vitals {
        generation: wire.generation,
        seq: wire.seq,
        boot: wire.boot,
        floor: wire.floor,
        draining: wire.draining,
        loads: wire.loads.into_iter().map(load).collect(),
        epochs: wire.epochs.into_iter().map(ReplicaEpoch::from).collect(),
    })
}

/// The bytes of a version vector; origins beyond [`MAX_SEEN`] are left out.
pub fn encode_seen(seen: &Seen) -> Vec<u8> {
    let origins = seen.origins.iter().take(MAX_SEEN).map(WireOrigin::from).collect();
    encode(KIND_SEEN, WireSeen { generation: seen.generation, origins })
}

/// A version vector from its bytes.
pub fn decode_seen(bytes: &[u8]) -> Result<Seen, CodecError> {
    let wire: WireSeen = decode(KIND_SEEN, bytes, MAX_VALUE_BYTES, CONFIG)?;
    let origins = origins(wire.origins)?;
    Ok(Seen { generation: wire.generation, origins })
}

/// At most [`MAX_SEEN`] of them.
pub(super) fn origins(wire: Vec<WireOrigin>) -> Result<Vec<SeenOrigin>, CodecError> {
    if wire.len() > MAX_SEEN {
        return Err(CodecError::OutOfRange);
    }
    Ok(wire.into_iter().map(SeenOrigin::from).collect())
}

impl From<&ReplicaEpoch> for WireEpoch {
    fn from(it: &ReplicaEpoch) -> Self {
        Self { replica: it.replica.0.to_le_bytes(), epoch: it.epoch }
    }
}

impl From<WireEpoch> for ReplicaEpoch {
    fn from(wire: WireEpoch) -> Self {
        Self { replica: replica(wire.replica), epoch: wire.epoch }
    }
}

impl From<&SeenOrigin> for WireOrigin {
    fn from(it: &SeenOrigin) -> Self {
        let SeenOrigin { origin, generation, settled, lost } = *it;
        Self { origin: origin.0.to_le_bytes(), generation, settled, lost }
    }
}

impl From<WireOrigin> for SeenOrigin {
    fn from(wire: WireOrigin) -> Self {
        let WireOrigin { origin, generation, settled, lost } = wire;
        Self { origin: RouterId(u32::from_le_bytes(origin)), generation, settled, lost }
    }
}

#[cfg(test)]
pub(super) mod forge {
    use super::*;

    /// Vitals that claim more in flight than can be.
    pub(in super::super) fn overloaded() -> Vec<u8> {
        let load = WireLoad { replica: [0; 4], inflight: MAX_INFLIGHT + 1, queued_tokens: 0, new_tokens: 0 };
        let wire = WireVitals {
            generation: 1,
            seq: 1,
            boot: 1,
            floor: 0,
            draining: false,
            loads: vec![load],
            epochs: vec![],
        };
        encode(KIND_VITALS, wire)
    }
}
