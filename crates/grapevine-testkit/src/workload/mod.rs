//! Traffic whose best possible cache hit rate is known.
//!
//! A [`Workload`] is an iterator of requests, the same for the same seed. The scenarios and their
//! parameters are those of the side-by-side benchmark of routers.

mod ask;
mod ideal;
mod rng;

use std::collections::VecDeque;
use std::str::FromStr;
use std::sync::Arc;

pub use ask::{Ask, Message};
pub use ideal::{Hits, Ideal, ideal, replay};
pub use rng::Rng;

/// What texts are made of.
const WORDS: [&str; 20] = [
    "alpha", "bravo", "cache", "delta", "engine", "first", "gossip", "hash", "index", "join", "key", "label",
    "match", "node", "order", "prefix", "query", "route", "shard", "tree",
];

/// What the requests have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Shared prefixes, each asked equally often, with a question of its own at the end.
    Uniform,
    /// The same, and all prefixes begin with the same text.
    Head,
    /// As uniform, popularity 1/rank.
    Zipf,
    /// Conversations under one system prompt; each turn carries all turns before it.
    Chat,
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "uniform" => Ok(Self::Uniform),
            "head" => Ok(Self::Head),
            "zipf" => Ok(Self::Zipf),
            "chat" => Ok(Self::Chat),
            _ => Err(format!("no scenario {name}: uniform, head, zipf or chat")),
        }
    }
}

/// In which order the groups take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All requests shuffled together.
    Shuffled,
    /// Each group once before any comes again, each round in another order.
    Rounds,
}

/// A workload's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadConfig {
    /// What the requests have in common. Default uniform.
    pub scenario: Scenario,
    /// Groups: shared prefixes, or conversations. Default 60.
    pub prefixes: usize,
    /// Requests of each group. Default 20.
    pub asks: usize,
    /// Bytes of a shared prefix. Default 4096.
    pub prefix_bytes: usize,
    /// Bytes of the head that all have in common, in `Head` and `Chat`. Default 2048.
    pub head_bytes: usize,
    /// Bytes of a question. Default 192.
    pub question_bytes: usize,
    /// Bytes of an answer as the next turn of a conversation carries it. Default 256.
    pub answer_bytes: usize,
    /// In which order the groups take turns. Default shuffled.
    pub order: Order,
    /// Begin again when all is asked: the same prefixes, but new conversations. Default false.
    pub endless: bool,
    /// Everything follows from it. Default 1.
    pub seed: u64,
}

impl Default for WorkloadConfig {
    fn default() -> Self {
        Self {
            scenario: Scenario::Uniform,
            prefixes: 60,
            asks: 20,
            prefix_bytes: 4096,
            head_bytes: 2048,
            question_bytes: 192,
            answer_bytes: 256,
            order: Order::Shuffled,
            endless: false,
            seed: 1,
        }
    }
}

/// Engines that are too small for a workload's prefixes one by one, but not all together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmallEngines {
    /// What is asked.
    pub workload: WorkloadConfig,
    /// How many engines.
    pub engines: usize,
    /// Blocks of 64 bytes that each of them caches.
    pub cache_blocks: usize,
}

impl SmallEngines {
    /// The scenario that grapevine exists for: 60 prefixes of 4 KiB asked in rounds, 4 engines that
    /// hold about 20 of them each. Random routing finds 22 % in the caches; when each prefix sticks
    /// to one engine, only the first round misses.
    pub fn seed_scenario(seed: u64) -> Self {
        let workload = WorkloadConfig { order: Order::Rounds, seed, ..WorkloadConfig::default() };
        Self { workload, engines: 4, cache_blocks: 1400 }
    }

    /// Few prefixes and large caches: every engine soon holds everything, and where a request goes
    /// makes no difference.
    pub fn no_contest(seed: u64) -> Self {
        let workload = WorkloadConfig { prefixes: 4, asks: 300, seed, ..WorkloadConfig::default() };
        Self { workload, engines: 4, cache_blocks: 100_000 }
    }
}

/// Requests, one after the other.
#[derive(Clone, Debug)]
pub struct Workload {
    config: WorkloadConfig,
    rng: Rng,
    groups: Vec<Group>,
    pending: VecDeque<usize>,
    batches_left: Option<usize>,
    first_group: usize,
    index: usize,
    head: Arc<str>,
}

#[derive(Clone, Debug, Default)]
struct Group {
    turn: usize,
    /// What each request of the group begins with: a prefix, or all turns so far.
    messages: Vec<Message>,
}

impl Workload {
    /// 60 prefixes of 4 KiB, each asked again and again with another question.
    pub fn endless_prefixes(seed: u64) -> Self {
        Self::new(WorkloadConfig { endless: true, seed, ..WorkloadConfig::default() })
    }

    /// `count` conversations at a time under one system prompt, 12 turns each.
    pub fn endless_chats(count: usize, seed: u64) -> Self {
        let (scenario, prefixes) = (Scenario::Chat, count);
        let default = WorkloadConfig::default();
        Self::new(WorkloadConfig { scenario, prefixes, asks: 12, endless: true, seed, ..default })
    }

    /// The requests that `config` describes.
    pub fn new(config: WorkloadConfig) -> Self {
        let mut rng = Rng::new(config.seed);
        let head: Arc<str> = words(&mut rng, config.head_bytes).into();
        let batches = match config.order {
            Order::Shuffled => 1,
            Order::Rounds => config.asks,
        };
        let batches_left = if config.endless { None } else { Some(batches) };
        let mut workload = Self {
            config,
            rng,
            groups: Vec::new(),
            pending: VecDeque::new(),
            batches_left,
            first_group: 0,
            index: 0,
            head,
        };
        workload.groups = (0..workload.config.prefixes).map(|_| workload.new_group()).collect();
        workload
    }

    /// Requests in all; `None` when it is endless.
    pub fn total(&self) -> Option<usize> {
        (!self.config.endless).then_some(self.config.prefixes * self.config.asks)
    }

    fn new_group(&mut self) -> Group {
        let content = match self.config.scenario {
            Scenario::Chat => Arc::clone(&self.head),
            Scenario::Head => self.prefix(&Arc::clone(&self.head)),
            Scenario::Uniform | Scenario::Zipf => self.prefix(""),
        };
        Group { turn: 0, messages: vec![Message { role: "system", content }] }
    }

    fn prefix(&mut self, head: &str) -> Arc<str> {
        let mut text = format!("{head}{}", words(&mut self.rng, self.config.prefix_bytes));
        text.truncate(self.config.prefix_bytes);
        text.into()
    }

    /// Fills `pending`; false when all is asked.
    fn next_batch(&mut self) -> bool {
        match &mut self.batches_left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        if self.config.scenario == Scenario::Chat && self.index > 0 && self.chats_are_over() {
            self.first_group += self.groups.len();
            self.groups = (0..self.config.prefixes).map(|_| self.new_group()).collect();
        }
        let each = match self.config.order {
            Order::Shuffled => self.config.asks,
            Order::Rounds => 1,
        };
        let mut order: Vec<usize> = match self.config.scenario {
            Scenario::Zipf => self.by_popularity(self.config.prefixes * each),
            _ => (0..self.config.prefixes).flat_map(|group| std::iter::repeat_n(group, each)).collect(),
        };
        self.rng.shuffle(&mut order);
        self.pending = order.into();
        !self.pending.is_empty()
    }

    fn chats_are_over(&self) -> bool {
        self.groups.iter().all(|group| group.turn >= self.config.asks)
    }

    /// So many group numbers, group `i` with a weight of `1/(i+1)`.
    fn by_popularity(&mut self, count: usize) -> Vec<usize> {
        let ranks = 1..=self.config.prefixes;
        let sums: Vec<f64> = ranks
            .scan(0.0, |sum, rank| {
                *sum += 1.0 / rank as f64;
                Some(*sum)
            })
            .collect();
        let total = sums.last().copied().unwrap_or_default();
        let last = sums.len().saturating_sub(1);
        (0..count)
            .map(|_| {
                let point = self.rng.unit() * total;
                sums.partition_point(|sum| *sum <= point).min(last)
            })
            .collect()
    }
}

impl Iterator for Workload {
    type Item = Ask;

    fn next(&mut self) -> Option<Ask> {
        if self.pending.is_empty() && !self.next_batch() {
            return None;
        }
        let place = self.pending.pop_front()?;
        let in_turn = self.config.scenario == Scenario::Chat;
        let question = words(&mut self.rng, self.config.question_bytes).into();
        // Not what an engine really answered: any fixed text does.
        let answer = in_turn.then(|| words(&mut self.rng, self.config.answer_bytes).into());
        let group = self.groups.get_mut(place)?;
        let question = Message { role: "user", content: question };
        let mut messages = group.messages.clone();
        messages.push(question.clone());
        if let Some(content) = answer {
            group.messages.extend([question, Message { role: "assistant", content }]);
        }
        let ask =
            Ask { index: self.index, group: self.first_group + place, turn: group.turn, in_turn, messages };
        group.turn += 1;
        self.index += 1;
        Some(ask)
    }
}

/// Two workloads in turn, with group numbers that do not meet: the first's become even, the second's
/// odd. Ends with the first of the two that ends.
pub fn mix(a: Workload, b: Workload) -> impl Iterator<Item = Ask> + Send {
    let a = a.map(|ask| Ask { group: ask.group * 2, ..ask });
    let b = b.map(|ask| Ask { group: ask.group * 2 + 1, ..ask });
    a.zip(b).flat_map(|(a, b)| [a, b]).enumerate().map(|(index, ask)| Ask { index, ..ask })
}

/// So many bytes of text.
fn words(rng: &mut Rng, bytes: usize) -> String {
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        let word = WORDS.get(rng.below(WORDS.len())).copied().unwrap_or_default();
        out.push_str(word);
        out.push_str(&rng.below(1000).to_string());
        out.push(' ');
    }
    out.truncate(bytes);
    out
}

#[cfg(test)]
mod tests;
