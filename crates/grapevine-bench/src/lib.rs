//! What the benches share: prompts that look like real ones and repeat exactly, and trees full of them.
//!
//! Everything comes from a seed, so two runs measure the same work.

pub mod cpu;
pub mod text;
pub mod traffic;
