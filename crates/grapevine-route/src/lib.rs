//! Which replica gets the request? The pure part of the answer.
//!
//! Scorers ([`vote`]) price every candidate in tokens, the lowest sum wins, ties are broken by count
//! and then at random ([`pick`]). The imbalance guard ([`guard`]) takes affinity's vote away from a
//! replica that is already too busy. The result is a [`Decision`]: the one record of why, which
//! logs, spans, metrics and tests read. [`load`] counts what this router has in flight, [`own`] says it,
//! [`peers`] keeps what others said they have, [`health`] says who should get anything at all. [`feedback`]
//! holds answers against predictions: how much a cache holds ([`capacity`]), and whether it was lost.
//! [`baseline`] says what random routing would have found, [`shadow`] what affinity would have done.
//!
//! Nothing here reads a clock, the network or a global random source.

mod atomic;
pub mod baseline;
pub mod capacity;
pub mod decision;
pub mod feedback;
pub mod guard;
pub mod health;
pub mod load;
pub mod own;
pub mod peers;
pub mod pick;
pub mod shadow;
pub mod vote;

pub use baseline::random_tokens;
pub use capacity::CapacityEstimate;
pub use decision::{Decision, Reason};
pub use feedback::{Answer, Feedback, Verdict};
pub use load::{INTAKE_HALF_LIFE_MS, LoadGuard, LoadView, PeerLoad, ReplicaLoad};
pub use own::OwnLoads;
pub use peers::{PeerBook, ReportedLoad};
pub use pick::{Ballot, Candidate, Policy, Request, cold_hash, decide};
pub use shadow::{Shadowed, decide_shadowed};
pub use vote::{Votes, Weights};
