//! A router's tree, for one that joins or has missed too much.

use grapevine_tree::boundary::MAX_BOUNDARIES;
use grapevine_tree::{ReplicaHistory, SnapshotCredit, SnapshotNode, SnapshotPage};

use super::vitals::{WireEpoch, WireOrigin, origins};
use super::{
    CodecError, Decode, EXCHANGE_CONFIG, Encode, KIND_HEAD, KIND_PAGE, MAX_EXCHANGE_BYTES, MAX_HEAD_BYTES,
    SeenOrigin, WireMark, are_valid, decode, dequantise, encode, pack, quantise, replica, unpack,
};
use crate::ReplicaEpoch;

/// How a snapshot begins: what its pages contain and refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotHead {
    /// Up to where each origin's segments are in the pages.
    pub origins: Vec<SeenOrigin>,
    /// Cache epochs of replicas.
    pub epochs: Vec<ReplicaEpoch>,
    /// The dates that credits have.
    pub histories: Vec<ReplicaHistory>,
}

#[derive(Encode, Decode)]
struct WireHead {
    origins: Vec<WireOrigin>,
    epochs: Vec<WireEpoch>,
    histories: Vec<WireHistory>,
}

#[derive(Encode, Decode)]
struct WireHistory {
    replica: [u8; 4],
    epoch: u32,
    capacity_tokens: Option<u64>,
    now: u32,
    runs: Vec<(u32, u64)>,
}

#[derive(Encode, Decode)]
struct WirePage {
    next: Option<u64>,
    nodes: Vec<WireNode>,
}

#[derive(Encode, Decode)]
struct WireNode {
    marks: Vec<WireMark>,
    credits: Vec<WireCredit>,
}

#[derive(Encode, Decode)]
struct WireCredit {
    replica: [u8; 4],
    count: u8,
    date: u32,
    idle_ms: u32,
}

/// The bytes of a snapshot's head.
pub fn encode_head(head: &SnapshotHead) -> Vec<u8> {
    let history = |it: &ReplicaHistory| WireHistory {
        replica: it.replica.0.to_le_bytes(),
        epoch: it.epoch,
        capacity_tokens: it.capacity_tokens,
        now: it.now,
        runs: it.runs.clone(),
    };
    let wire = WireHead {
        origins: head.origins.iter().map(WireOrigin::from).collect(),
        epochs: head.epochs.iter().map(WireEpoch::from).collect(),
        histories: head.histories.iter().map(history).collect(),
    };
    encode(KIND_HEAD, wire)
}

/// A snapshot's head from its bytes.
pub fn decode_head(bytes: &[u8]) -> Result<SnapshotHead, CodecError> {
    let wire: WireHead = decode(KIND_HEAD, bytes, MAX_HEAD_BYTES, EXCHANGE_CONFIG)?;
    let history = |it: WireHistory| ReplicaHistory {
        replica: replica(it.replica),
        epoch: it.epoch,
        capacity_tokens: it.capacity_tokens,
        now: it.now,
        runs: it.runs,
    };
    Ok(SnapshotHead {
        origins: origins(wire.origins)?,
        epochs: wire.epochs.into_iter().map(ReplicaEpoch::from).collect(),
        histories: wire.histories.into_iter().map(history).collect(),
    })
}

/// The bytes of a page.
pub fn encode_page(page: &SnapshotPage) -> Vec<u8> {
    let credit = |it: &SnapshotCredit| WireCredit {
        replica: it.replica.0.to_le_bytes(),
        count: quantise(it.count),
        date: it.date,
        idle_ms: it.idle_ms,
    };
    let node = |it: &SnapshotNode| WireNode {
        marks: it.marks.iter().map(pack).collect(),
        credits: it.credits.iter().map(credit).collect(),
    };
    encode(KIND_PAGE, WirePage { next: page.next, nodes: page.nodes.iter().map(node).collect() })
}

/// A page from its bytes.
pub fn decode_page(bytes: &[u8]) -> Result<SnapshotPage, CodecError> {
    let wire: WirePage = decode(KIND_PAGE, bytes, MAX_EXCHANGE_BYTES, EXCHANGE_CONFIG)?;
    let nodes = wire.nodes.into_iter().map(node).collect::<Result<_, _>>()?;
    Ok(SnapshotPage { next: wire.next, nodes })
}

fn node(wire: WireNode) -> Result<SnapshotNode, CodecError> {
    let credit = |it: WireCredit| SnapshotCredit {
        replica: replica(it.replica),
        count: dequantise(it.count),
        date: it.date,
        idle_ms: it.idle_ms,
    };
    let node = SnapshotNode {
        marks: wire.marks.iter().map(unpack).collect(),
        credits: wire.credits.into_iter().map(credit).collect(),
    };
    let sized = (1..=MAX_BOUNDARIES).contains(&node.marks.len()) && !node.credits.is_empty();
    if sized && are_valid(&node.marks) { Ok(node) } else { Err(CodecError::OutOfRange) }
}
