//! What would grapevine do with this traffic? Simulation in virtual time over the code that serves.
//!
//! [`replay`] sends a recorded trace through the real prefix key, tree, votes, guard and picker, and
//! a model of the engines behind them. [`fleet`] lets many routers gossip over a simulated network
//! while things go wrong.

pub mod fleet;
pub mod replay;
