//! The imbalance guard: affinity loses its vote for a replica that is already too busy.

use crate::pick::Candidate;
use crate::vote::{FleetView, Weights};

/// Whether `c` carries more than its share: above the mean of all candidates by the absolute AND
/// the relative gap. Absolute alone misfires on a busy fleet, relative alone on an idle one. It
/// judges the candidate, never the fleet's max against min: one hot replica must not switch
/// affinity off for everybody.
pub fn overloaded(w: &Weights, fleet: &FleetView, c: &Candidate) -> bool {
    let load = c.share(c.load.inflight);
    load > fleet.mean_inflight * w.guard_rel && load > fleet.mean_inflight + w.guard_abs
}
