//! What the actor has others do, so that it never waits: asking peers, and restoring what they gave.

use grapevine_tree::RouterId;
use tokio::task::JoinError;
use tracing::{debug, info, warn};

use super::Mesh;
use crate::Host;
use crate::ask::{AskError, Lesson};
use crate::codec::{Ask, SeenOrigin, Segments, decode_segment};
use crate::fleet::{Heard, Want};
use crate::join::Tried;
use crate::pull::{Candidate, Outcome};

/// What came of asking.
pub(super) enum Errand {
    /// Missing segments.
    Pulled { want: Want, from: RouterId, answer: Result<Segments, AskError> },
    /// A snapshot.
    Taught { from: Candidate, lesson: Result<Lesson, AskError> },
    /// The snapshot is in the tree.
    Restored { from: RouterId, origins: Vec<SeenOrigin> },
}

impl<H: Host> Mesh<H> {
    pub(super) fn pull(&mut self, want: Want, from: Candidate) {
        let ask = Ask::Segments {
            to: from.id,
            origin: want.origin,
            generation: want.generation,
            wanted: want.holes.clone(),
        };
        let asker = self.asker.clone();
        self.errands.spawn(async move {
            let answer = asker.segments(&from, &ask).await;
            if let Err(error) = &answer {
                debug!(peer = %from.name, %error, "missing segments did not come");
            }
            Errand::Pulled { want, from: from.id, answer }
        });
    }

    pub(super) fn learn(&mut self, from: Candidate) {
        let asker = self.asker.clone();
        self.errands.spawn(async move {
            let lesson = asker.snapshot(&from).await;
            Errand::Taught { from, lesson }
        });
    }

    pub(super) fn on_errand(&mut self, errand: Result<Errand, JoinError>) {
        match errand {
            Ok(Errand::Pulled { want, from, answer }) => self.on_pulled(&want, from, answer),
            Ok(Errand::Taught { from, lesson }) => self.on_taught(&from, lesson),
            Ok(Errand::Restored { from, origins }) => self.on_restored(from, &origins),
            Err(error) => {
                // The host panicked. Which errand it was is not known: begin anew.
                warn!(%error, "an errand of the mesh failed");
                self.puller.reset();
                self.joiner.reset();
            }
        }
        self.look_after_holes();
    }

    fn on_pulled(&mut self, want: &Want, from: RouterId, answer: Result<Segments, AskError>) {
        let now = self.now();
        let Ok(answer) = answer else {
            self.totals.pulls.failed += 1;
            return self.puller.answered(want.origin, from, Outcome::Failed, now);
        };
        let segments = believable(want, answer.segments);
        let incoming = self.fleet.take(want.origin, segments, &mut self.log, now);
        let fresh = incoming.len() as u64;
        self.hand_over(incoming);
        self.totals.pulls.segments += fresh;
        let outcome = match (fresh, answer.more) {
            // It promises more and gives nothing.
            (0, true) => Outcome::Failed,
            (_, more) => Outcome::Answered { more },
        };
        match (outcome, fresh) {
            (Outcome::Failed, _) => self.totals.pulls.failed += 1,
            (_, 0) => self.totals.pulls.empty += 1,
            _ => self.totals.pulls.answered += 1,
        }
        self.puller.answered(want.origin, from, outcome, now);
    }

    fn on_taught(&mut self, from: &Candidate, lesson: Result<Lesson, AskError>) {
        let now = self.now();
        match lesson {
            Ok(Lesson { snapshot, origins }) => {
                let (host, from) = (self.host.clone(), from.id);
                self.errands.spawn(async move {
                    host.restore(snapshot).await;
                    Errand::Restored { from, origins }
                });
            }
            Err(error) if error.is_joining() => {
                self.totals.snapshots.joining += 1;
                self.joiner.tried(from.id, Tried::Joining, now);
            }
            Err(error) => {
                self.totals.snapshots.failed += 1;
                info!(peer = %from.name, %error, "no snapshot");
                self.puller.punish(from.id, now);
                self.joiner.tried(from.id, Tried::Failed, now);
            }
        }
        self.look_after_joining();
    }

    fn on_restored(&mut self, from: RouterId, origins: &[SeenOrigin]) {
        let now = self.now();
        let of_others: Vec<SeenOrigin> = origins.iter().filter(|it| it.origin != self.id).copied().collect();
        self.fleet.resume(&of_others, now);
        self.lacking.clear();
        self.lacking_since = None;
        self.totals.snapshots.restored += 1;
        self.joiner.tried(from, Tried::Restored, now);
        info!(from = ?from, after_ms = now, "took over a peer's snapshot");
        self.look_after_joining();
    }
}

/// Those that were asked for and are what they say.
fn believable(want: &Want, segments: Vec<Vec<u8>>) -> Vec<Heard> {
    let is_wanted = |seq: u64| want.holes.iter().any(|&(first, last)| (first..=last).contains(&seq));
    let heard = segments.into_iter().filter_map(|bytes| {
        let segment = decode_segment(&bytes).ok()?;
        Some(Heard { segment, bytes: bytes.into() })
    });
    heard.filter(|it| it.segment.generation == want.generation && is_wanted(it.segment.seq)).collect()
}
