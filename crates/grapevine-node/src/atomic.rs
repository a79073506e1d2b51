//! What is tried under loom counts with these. `tests/loom` builds the same parts with loom's.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
