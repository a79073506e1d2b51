//! The actors of a router. Each owns its state alone and is spoken to through its handle.

pub mod mailbox;
pub mod replica;
pub mod tree;
