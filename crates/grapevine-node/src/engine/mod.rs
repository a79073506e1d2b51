//! What engines say of themselves: their metrics, read every few seconds.
//!
//! ```text
//! replica actor -- due --> scrape (HTTP, bounded) --> text (samples) --> table (names per kind)
//!       ^                     | no metrics: detect (pages that only one kind has)
//!       ^                                                                   |
//!       +--- Reading: capacity, gauges, identity of the process <-----------+
//! ```
//!
//! The gauges come seconds late and are only a correction: what this router and its peers have in
//! flight is known at once, elsewhere. What nobody else knows is how large a replica's cache is, and
//! that its process is another one than before although nobody met a closed port.
//!
//! **Invariant:** unknown is not zero. A figure that an engine does not give, or gives as nonsense,
//! is `None`.

mod detect;
pub mod identity;
pub mod kinds;
pub mod models;
pub mod reading;
mod scrape;
mod table;
mod text;

pub use identity::{Identity, Loss};
pub use kinds::Kind;
pub use reading::Reading;
pub use scrape::{Look, ScrapeError, scrape};
pub use table::{Figure, Names};
