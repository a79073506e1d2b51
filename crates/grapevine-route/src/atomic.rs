//! What this crate's lock-free parts count with. `tests/loom` builds the same parts with loom's.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
