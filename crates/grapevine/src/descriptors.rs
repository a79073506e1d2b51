//! File descriptors: as many as this process may have, and a word where they cannot suffice.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of one request: its client's socket and its engine's.
const PER_REQUEST: u64 = 2;

/// Raises the soft limit to the hard one: shells and container runtimes set a soft limit of 1,024 for the
/// sake of programs that use `select`.
pub(crate) fn raise(max_inflight: usize) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of file descriptors");
        }
    }
    let Some(limit) = getrlimit(Resource::Nofile).current else { return };
    tracing::info!(limit, "file descriptors");
    let needed = needed(max_inflight);
    if needed > limit {
        tracing::warn!(
            limit,
            needed,
            "GRAPEVINE_MAX_INFLIGHT allows more requests than there are descriptors"
        );
    }
}

/// For as many requests as may be in flight; 0 = no limit, so no need that is known.
fn needed(max_inflight: usize) -> u64 {
    (max_inflight as u64).saturating_mul(PER_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_requests_says_how_many_descriptors_are_needed() {
        assert_eq!((needed(0), needed(10_000)), (0, 20_000));
    }
}
