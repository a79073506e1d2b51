//! What must hold of everything that reads bytes of others, whatever these are.
//!
//! A target is a function that takes any bytes and panics when something does not hold: not only that nothing
//! panics, but that what was read agrees with a slow and simple reading, or with another way of saying the
//! same. The tests of this crate run each target over its corpus (`tests/fuzz/corpus`) and over inputs made
//! from it with a fixed seed; `tests/fuzz` is the same targets for cargo-fuzz, which searches by coverage.

mod configuration;
mod engine_metrics;
mod event_stream;
mod gossip_datagrams;
mod input;
mod mesh_codec;
pub mod mutate;
mod naive_chat;
mod prefix_key;
mod rewrite;
mod tree;

pub use configuration::configuration;
pub use engine_metrics::engine_metrics;
pub use event_stream::event_stream;
pub use gossip_datagrams::gossip_datagrams;
pub use mesh_codec::mesh_codec;
pub use prefix_key::prefix_key;
pub use tree::tree;

/// A target: its name, which is that of its corpus, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 7] = [
    ("prefix_key", prefix_key),
    ("event_stream", event_stream),
    ("mesh_codec", mesh_codec),
    ("tree", tree),
    ("configuration", configuration),
    ("engine_metrics", engine_metrics),
    ("gossip_datagrams", gossip_datagrams),
];
