//! What a fleet holds in memory, once a virtual minute.

use std::fs;

use serde::{Deserialize, Serialize};

use super::nodes::Nodes;

/// Bytes of a page, where the system tells of pages.
const PAGE: u64 = 4_096;

/// What is held at one moment. Of the meshes, the most that any of them holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauges {
    /// Virtual minute.
    pub minute: u64,
    /// Resident memory of this process, all routers and the whole traffic in it; 0 where that is not known.
    pub resident_bytes: u64,
    /// Bytes of all routers' trees.
    pub tree_bytes: u64,
    /// Bytes of segments kept for peers.
    pub log_bytes: u64,
    /// Bytes of keys and values in chitchat.
    pub state_bytes: u64,
    /// Names and generations in chitchat.
    pub states: u64,
    /// Entries that wait to be told.
    pub backlog: u64,
    /// Segments that were skipped and may still come.
    pub holes: u64,
    /// Questions remembered.
    pub questions: u64,
}

impl Gauges {
    pub(super) fn read(nodes: &Nodes, minute: u64) -> Self {
        let mut gauges = Self { minute, resident_bytes: resident_bytes(), ..Self::default() };
        for (_, node) in nodes.iter() {
            gauges.tree_bytes += node.host.with(|router, _| router.stats().bytes) as u64;
            let Some(held) = node.status().map(|status| status.held) else { continue };
            let at_least = |most: &mut u64, value: usize| *most = (*most).max(value as u64);
            at_least(&mut gauges.log_bytes, held.log_bytes);
            at_least(&mut gauges.state_bytes, held.state_bytes);
            at_least(&mut gauges.states, held.states);
            at_least(&mut gauges.backlog, held.backlog);
            at_least(&mut gauges.questions, held.questions);
            gauges.holes = gauges.holes.max(held.holes);
        }
        gauges
    }
}

fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}
