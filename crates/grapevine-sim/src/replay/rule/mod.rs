//! How a replica is chosen in a replay: grapevine's own policies, through the very code that serves,
//! and rules of other routers, re-expressed.

mod bounded;
mod llmd;
mod sglang;
mod sticky;

use std::fmt;
use std::str::FromStr;

use grapevine_route::{
    Ballot, Candidate, Decision, LoadView, Policy, Reason, Request, Weights, cold_hash, decide,
};
use grapevine_tree::{Matches, ReplicaId, TreeConfig};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::trace::{BYTES_PER_TOKEN, Call};

/// What `--policy` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleName {
    /// grapevine: votes of prefix affinity and load.
    Affinity,
    /// grapevine: at random.
    Random,
    /// grapevine: in turn.
    RoundRobin,
    /// grapevine: fewest requests in flight.
    LeastLoaded,
    /// By session: the first request goes where the least is in flight, all later ones follow.
    Sticky,
    /// Hash of the first two blocks, load at most 1.25 times the mean.
    BoundedHash,
    /// SGLang's router: longest match above a threshold, unless the fleet is out of balance.
    Sglang,
    /// llm-d: normalised scores 3 : 2 : 2 of prefix, queue and KV use, with perfect engine metrics.
    LlmD,
}

impl RuleName {
    /// All of them, in the order of tables and plots.
    pub const ALL: [Self; 8] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastLoaded,
        Self::Sticky,
        Self::BoundedHash,
        Self::Sglang,
        Self::LlmD,
        Self::Affinity,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::Sticky => "sticky",
            Self::BoundedHash => "bounded-hash",
            Self::Sglang => "sglang",
            Self::LlmD => "llm-d",
        }
    }

    /// Whether routers that follow it tell each other what they did. The re-expressed ones have no
    /// such thing.
    pub const fn gossips(self) -> bool {
        matches!(self, Self::Affinity | Self::Random | Self::RoundRobin | Self::LeastLoaded)
    }

    /// Whether it learns from answers.
    pub const fn learns(self) -> bool {
        self.gossips()
    }

    /// Whether it asks the tree.
    pub const fn matches(self) -> bool {
        matches!(self, Self::Affinity | Self::Sglang | Self::LlmD)
    }

    /// How its index ages.
    pub fn tree(self, config: &TreeConfig, capacity_tokens: u64) -> (TreeConfig, u64) {
        match self {
            Self::Sglang => sglang::tree(config),
            Self::LlmD => llmd::tree(config, capacity_tokens),
            _ => (config.clone(), capacity_tokens),
        }
    }
}

/// What `--policy` names, at least one: `all`, or names with commas between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules(Vec<RuleName>);

impl Rules {
    /// All of them, in the order in which they were named.
    pub fn names(&self) -> &[RuleName] {
        &self.0
    }

    /// The one that a single result is of: affinity if it is there, else the first.
    pub fn main(&self) -> RuleName {
        let affinity = self.0.iter().find(|&&name| name == RuleName::Affinity);
        affinity.or(self.0.first()).copied().unwrap_or(RuleName::Affinity)
    }
}

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(RuleName::ALL.to_vec()));
        }
        let named = |name: &str| RuleName::ALL.into_iter().find(|rule| rule.name() == name.trim());
        let unknown = |name| {
            format!(
                "no policy is called {name:?}; there are {}",
                RuleName::ALL.map(RuleName::name).join(", ")
            )
        };
        let mut names: Vec<RuleName> = Vec::new();
        for name in text.split(',') {
            let rule = named(name).ok_or_else(|| unknown(name))?;
            if !names.contains(&rule) {
                names.push(rule);
            }
        }
        Ok(Self(names))
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the engines would say of themselves if asked this moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineView {
    /// Requests whose prefill has not started.
    pub waiting: usize,
    /// Share of the cache in use by running requests.
    pub kv_use: f64,
}

/// What is to be placed, and what is known.
pub struct Question<'a> {
    /// The request.
    pub call: &'a Call,
    /// Its number at this router.
    pub turn: u64,
    /// The replicas' names, in the order of the loads.
    pub replicas: &'a [ReplicaId],
    /// What this router believes of each replica's load.
    pub loads: &'a [LoadView],
    /// What this router's tree knows of the prompt; empty for rules that do not ask it.
    pub matches: &'a Matches,
    /// What each engine would say.
    pub engines: &'a [EngineView],
    /// This router hears its peers, or has none.
    pub informed: bool,
}

impl Question<'_> {
    /// Prompt length as a router estimates it, tokens.
    fn prompt_tokens(&self) -> f32 {
        self.call.key.bytes as f32 / BYTES_PER_TOKEN as f32
    }

    /// What the tree believes a replica holds, tokens.
    fn matched_tokens(&self, replica: usize) -> f32 {
        let id = self.replicas[replica];
        let found = self.matches.iter().find(|m| m.replica == id);
        found.map_or(0.0, |m| (m.bytes as f32 / BYTES_PER_TOKEN as f32).min(self.prompt_tokens()))
    }

    fn decision(&self, index: usize) -> Decision {
        let best = (0..self.replicas.len()).map(|i| self.matched_tokens(i)).fold(0.0, f32::max);
        Decision {
            replica: self.replicas[index],
            index,
            reason: Reason::Policy,
            prompt_tokens: self.prompt_tokens() as u32,
            matched_tokens: self.matched_tokens(index) as u32,
            best_matched_tokens: best as u32,
            teacher: None,
            guarded: None,
            tied: 1,
        }
    }
}

/// A rule with its memory.
pub enum Rule {
    /// grapevine's own code.
    Own(Box<Own>),
    /// By session.
    Sticky(sticky::Sticky),
    /// Bounded-load hashing.
    Bounded,
    /// SGLang's.
    Sglang,
    /// llm-d's.
    LlmD,
}

/// grapevine's own policies and their scratch memory.
pub struct Own {
    policy: Policy,
    weights: Weights,
    candidates: Vec<Candidate>,
    ballot: Ballot,
}

impl Rule {
    /// The rule called `name`.
    pub fn new(name: RuleName, weights: &Weights) -> Self {
        let own = |policy| {
            let (candidates, ballot) = (Vec::new(), Ballot::default());
            Self::Own(Box::new(Own { policy, weights: weights.clone(), candidates, ballot }))
        };
        match name {
            RuleName::Affinity => own(Policy::Affinity),
            RuleName::Random => own(Policy::Random),
            RuleName::RoundRobin => own(Policy::RoundRobin),
            RuleName::LeastLoaded => own(Policy::LeastLoaded),
            RuleName::Sticky => Self::Sticky(sticky::Sticky::default()),
            RuleName::BoundedHash => Self::Bounded,
            RuleName::Sglang => Self::Sglang,
            RuleName::LlmD => Self::LlmD,
        }
    }

    /// Chooses.
    pub fn pick(&mut self, question: &Question<'_>, rng: &mut SmallRng) -> Decision {
        match self {
            Self::Own(own) => own.pick(question, rng),
            Self::Sticky(sticky) => question.decision(sticky.pick(question, rng)),
            Self::Bounded => question.decision(bounded::pick(question)),
            Self::Sglang => question.decision(sglang::pick(question, rng)),
            Self::LlmD => question.decision(llmd::pick(question, rng)),
        }
    }
}

impl Own {
    fn pick(&mut self, question: &Question<'_>, rng: &mut SmallRng) -> Decision {
        self.candidates.clear();
        self.candidates.extend(question.replicas.iter().zip(question.loads).map(|(&replica, &load)| {
            // Without engine metrics, as a router that cannot scrape them.
            Candidate { replica, weight: 1.0, load, kv_use: None }
        }));
        let request = Request {
            prompt_tokens: question.prompt_tokens(),
            bytes_per_token: BYTES_PER_TOKEN as f32,
            matches: question.matches,
            cold_hash: cold_hash(&question.call.key, question.matches),
            turn: question.turn,
            informed: question.informed,
        };
        let decision = decide(self.policy, &self.weights, &request, &self.candidates, &mut self.ballot, rng);
        decision.expect("a replay has at least one replica")
    }
}

/// The index with the lowest cost, equal ones at random.
fn lowest(n: usize, rng: &mut SmallRng, cost: impl Fn(usize) -> f64) -> usize {
    let costs: Vec<f64> = (0..n).map(cost).collect();
    let lowest = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let ties: Vec<usize> = (0..n).filter(|&i| costs[i] <= lowest).collect();
    ties[rng.random_range(0..ties.len())]
}
