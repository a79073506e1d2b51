//! All faults, one entry each. Engines 0 and 1 are listed in a file, 2 and 3 are found by DNS.

mod engines;
mod pairs;
mod routers;
mod surroundings;

use std::time::Duration;

use super::fault::Fault;
use super::fleet::Fleet;

/// Three probes that find nothing, half a second apart and with a limit of one second, and one more.
const PROBED: Duration = Duration::from_secs(6);

/// As long as an engine breaks what it gets.
const WHILE_IT_LASTS: Duration = Duration::MAX;

/// Longer than every limit of the routers.
const LONG: Duration = Duration::from_secs(8);

/// Shorter than their limits, even when TCP tries again only some time later.
const SHORT: Duration = Duration::from_millis(2_500);

/// Seconds.
const HOUR: i64 = 3_600;

/// Those of one kind after the other.
pub(crate) fn all() -> Vec<Fault> {
    let kinds = [
        engines::deaths(),
        engines::answers(),
        routers::deaths(),
        routers::networks(),
        surroundings::services(),
        surroundings::machines(),
        pairs::pairs(),
    ];
    kinds.into_iter().flatten().collect()
}

fn cut_both_ways(fleet: &Fleet, one: usize, other: usize) {
    fleet.cut(one, other);
    fleet.cut(other, one);
}

fn join_both_ways(fleet: &Fleet, one: usize, other: usize) {
    fleet.join(one, other);
    fleet.join(other, one);
}
