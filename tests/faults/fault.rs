//! One fault: how it is made, what it may cost, and what it did cost.

use std::thread;
use std::time::{Duration, Instant};

use super::fleet::Fleet;
use super::process::LIMIT;
use super::traffic::{Answer, Failure, Traffic};

/// Requests that end before the fault: their hit rate is what it was.
const BEFORE: usize = 45;

/// Requests that end when all is well again before the hit rate counts: each prefix twice, so that what died
/// with an engine's cache is there again, and what moved to another has its place.
const SETTLE: usize = 60;

/// Requests whose hit rate is the one after: each prefix twice.
const AFTER: usize = 60;

/// What the hit rate may lack after a fault: two prefixes of these requests that are prefilled once more, and
/// the difference that two samples make.
const HIT_RATE_SLACK: f64 = 0.10;

/// What a fault kills. Requests that are there at that moment may fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum On {
    Engine(usize),
    Router(usize),
    /// From a router to an engine.
    Link(usize, usize),
}

/// Something that goes wrong, and is mended.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) inject: fn(&mut Fleet),
    pub(crate) hold: Duration,
    pub(crate) heal: fn(&mut Fleet),
    pub(crate) dies: &'static [On],
    /// How long requests may still be sent to what has died, at most until it is mended: nobody can know it at
    /// once where nobody says so.
    pub(crate) unnoticed: Duration,
    /// What must become so when it is mended, besides that the fleet is whole.
    pub(crate) after: fn(&Fleet) -> bool,
}

impl Fault {
    /// Nothing happens for three seconds, and nothing may fail.
    pub(crate) const NONE: Self = Self {
        name: "none",
        inject: |_| {},
        hold: Duration::from_secs(3),
        heal: |_| {},
        dies: &[],
        unnoticed: Duration::from_millis(300),
        after: |_| true,
    };

    /// Lets it happen under load.
    pub(crate) fn run(&self, fleet: &mut Fleet) -> Outcome {
        let mut seen = Outcome { name: self.name, memory: (fleet.memory(), 0), ..Outcome::default() };
        let traffic = fleet.traffic();
        after_requests(&traffic, BEFORE);
        let begins = Instant::now();
        (self.inject)(fleet);
        let struck = Instant::now();
        thread::sleep(self.hold);
        let healing = Instant::now();
        (self.heal)(fleet);
        let healed = Instant::now();
        let whole = until(|| fleet.is_whole());
        seen.recovery = whole.then(|| healing.elapsed());
        seen.settled = until(|| (self.after)(fleet));
        after_requests(&traffic, SETTLE);
        let settled = Instant::now();
        after_requests(&traffic, AFTER);
        let answers = fleet.runtime.block_on(traffic.end());
        seen.idle = until(|| fleet.is_idle());
        seen.memory.1 = fleet.memory();
        seen.requests = answers.len();
        seen.hit_rate = (hit_rate(&answers, |at| at < begins), hit_rate(&answers, |at| at >= settled));
        let meanwhile = answers.iter().filter(|answer| answer.began >= begins && answer.began < healing);
        seen.slowest_first = meanwhile.filter_map(|answer| answer.first).max().unwrap_or_default();
        self.blame(&answers, struck, healed, &mut seen);
        seen
    }

    /// Tells failures that the fault explains from those that it does not.
    fn blame(&self, answers: &[Answer], struck: Instant, healed: Instant, seen: &mut Outcome) {
        let noticed = struck.checked_add(self.unnoticed).map_or(healed, |at| at.min(healed));
        for answer in answers {
            let Some(failure) = &answer.failure else { continue };
            let early = answer.began <= noticed;
            if early && self.dies.iter().any(|on| on.explains(answer, failure)) {
                seen.died += 1;
            } else {
                let when = answer.began.saturating_duration_since(struck);
                let (router, replica) = (answer.router + 1, &answer.replica);
                seen.failures.push(format!("r{router} to {replica:?}, begun {when:?} after: {failure:?}"));
            }
        }
    }
}

impl On {
    /// Whether a request failed because of this. What dies with an engine ends in words of its router: a client
    /// of a router that dies gets none.
    fn explains(self, answer: &Answer, failure: &Failure) -> bool {
        let told = matches!(failure, Failure::Told(_));
        let at =
            |engine: usize| answer.replica.as_deref().is_none_or(|name| name == super::fleet::NAMES[engine]);
        match self {
            Self::Engine(engine) => told && at(engine),
            Self::Router(router) => answer.router == router,
            Self::Link(router, engine) => told && answer.router == router && at(engine),
        }
    }
}

/// What a fault did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) requests: usize,
    /// Requests that failed because they were on what died.
    pub(crate) died: usize,
    /// All other failures.
    pub(crate) failures: Vec<String>,
    /// The longest wait for a first token of those that were sent while it lasted.
    pub(crate) slowest_first: Duration,
    /// From the mending to a whole fleet.
    pub(crate) recovery: Option<Duration>,
    pub(crate) settled: bool,
    pub(crate) idle: bool,
    /// Before and after, shares of prompt tokens.
    pub(crate) hit_rate: (f64, f64),
    /// Of the largest router before and after, MiB.
    pub(crate) memory: (u64, u64),
}

impl Outcome {
    /// What must not be.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.failures.clone();
        let mut note = |is_so: bool, text: &str| {
            if is_so {
                problems.push(text.to_owned());
            }
        };
        note(self.recovery.is_none(), "the fleet did not become whole");
        note(!self.settled, "what must be so after it is not");
        note(!self.idle, "something stays in flight without requests");
        let (before, after) = self.hit_rate;
        note(after < before - HIT_RATE_SLACK, &format!("hit rate {before:.3} became {after:.3}"));
        problems.iter().map(|problem| format!("{}: {problem}", self.name)).collect()
    }
}

fn hit_rate(answers: &[Answer], at: impl Fn(Instant) -> bool) -> f64 {
    let these = || answers.iter().filter(|answer| at(answer.began));
    let prompt: u64 = these().map(|answer| answer.prompt).sum();
    let cached: u64 = these().map(|answer| answer.cached).sum();
    cached as f64 / prompt.max(1) as f64
}

/// Requests until every prompt was asked, and the fleet knows where.
pub(crate) fn warm_up(fleet: &Fleet) {
    let traffic = fleet.traffic();
    after_requests(&traffic, SETTLE);
    fleet.runtime.block_on(traffic.end());
}

/// Waits until so many more requests have ended.
fn after_requests(traffic: &Traffic, count: usize) {
    let target = traffic.ended() + count;
    assert!(until(|| traffic.ended() >= target), "clients wait for ever");
}

/// Whether it becomes so.
fn until(mut condition: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !condition() {
        if began.elapsed() > LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}
