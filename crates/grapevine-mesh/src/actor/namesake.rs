//! Other routers of our name: our own past, whose generation we must exceed, or a twin.

use tracing::warn;

use super::Mesh;
use crate::Host;
use crate::session::Session;

/// Ticks until we make up our mind about another router of our name. Just met, it looks dead; just
/// dead, it looks alive for 4 s. So this long alive it is a twin, this long dead it is our past.
const NAMESAKE_TICKS: u32 = 40;

/// For how many ticks in a row a newer router of our name was seen alive, and dead.
#[derive(Default)]
pub(super) struct NamesakeTicks {
    live: u32,
    dead: u32,
}

impl NamesakeTicks {
    /// Another router has our name.
    pub(super) fn is_twin(&self) -> bool {
        self.live >= NAMESAKE_TICKS
    }
}

impl<H: Host> Mesh<H> {
    /// The generation of our own past, when it is above ours: the clock went back. Another live
    /// router with our name looks the same at first; overtaking each other would never end.
    pub(super) fn newer_self(&mut self, session: &Session) -> Option<u64> {
        let Some(namesake) = session.newer_namesake() else {
            self.namesake = NamesakeTicks::default();
            return None;
        };
        let NamesakeTicks { live, dead } = self.namesake;
        self.namesake = match namesake.live {
            true => NamesakeTicks { live: live.saturating_add(1), dead: 0 },
            false => NamesakeTicks { live: 0, dead: dead.saturating_add(1) },
        };
        if self.namesake.live == NAMESAKE_TICKS {
            warn!(router = %self.config.router_name, other = %namesake.addr, "another live router has this router's name");
        }
        (namesake.is_ours || self.namesake.dead >= NAMESAKE_TICKS).then_some(namesake.generation)
    }
}
