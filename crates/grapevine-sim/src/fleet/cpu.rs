//! CPU time of this thread, where somebody wants to know. No simulated clock depends on it.

/// Measures from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    started_ns: Option<u64>,
}

impl Stopwatch {
    /// A stopwatch that runs, or one that always says 0.
    pub(super) fn start(wanted: bool) -> Self {
        Self { started_ns: wanted.then(thread_ns).flatten() }
    }

    /// Nanoseconds on a core since the start.
    pub(super) fn elapsed_ns(&self) -> u64 {
        let since = |started| thread_ns().unwrap_or(started).saturating_sub(started);
        self.started_ns.map_or(0, since)
    }
}

/// Linux counts it by the tick: a short stretch may read as 0 or as 4 ms, a sum of many is right.
fn thread_ns() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    stat.split(' ').next()?.parse().ok()
}
