//! What is kept of the last minutes for people who look: recent decisions with their votes, how hit rates
//! went, who taught what. Bounded, and cheap for requests: a counter, or a short lock.

pub mod decisions;
pub mod history;
pub mod log;
pub mod pace;
pub mod taught;
