//! Faults on demand: what breaks, for which requests, and for how many of them.
//!
//! Rules are set at start, through [`Faults`], or by `POST /faults` with a JSON list such as
//! `[{"kind":"cut","after_events":3,"how":"rst","next":2}]`. What the rules say about one request
//! becomes its [`Plan`] when it arrives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Rules an engine takes at most.
pub const MAX_RULES: usize = 64;

/// How a connection is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutHow {
    /// TCP reset.
    Rst,
    /// Plain end of the connection, without the body's end.
    #[default]
    Eof,
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// The head of the answer comes late.
    SlowHeaders {
        /// How late, milliseconds.
        ms: u64,
    },
    /// The first event comes late, after the head; a whole answer's head is late instead.
    SlowFirstByte {
        /// How late, milliseconds.
        ms: u64,
    },
    /// After so many events nothing more comes, nor does the end. A whole answer stops half-way.
    Stall {
        /// `data:` events before it.
        after_events: u32,
    },
    /// After so many events the connection is cut. A whole answer is cut half-way.
    Cut {
        /// `data:` events before it.
        after_events: u32,
        /// Reset or plain end.
        #[serde(default)]
        how: CutHow,
    },
    /// The connection is cut when the request has arrived.
    CutBeforeHeaders {
        /// Reset or plain end.
        #[serde(default)]
        how: CutHow,
    },
    /// Every answer is this status: 503 as from a full queue, 500 as from a draining engine.
    Status {
        /// HTTP status.
        code: u16,
    },
    /// The request is read and never answered.
    Hang,
    /// After so many events an error event and `[DONE]`, as when vLLM's core dies. A whole answer is
    /// a 500.
    ErrorEvent {
        /// `data:` events before it.
        after_events: u32,
    },
    /// `: keep-alive` comments until the first event.
    KeepAlive {
        /// Time between two, milliseconds.
        every_ms: u64,
    },
    /// `data: null` before the first event, as llama.cpp sends.
    NullFirst,
    /// After so many events silence, then a comment and the end of the connection, as when llama.cpp is
    /// told to stop. A whole answer stops half-way.
    Linger {
        /// `data:` events before it.
        after_events: u32,
        /// How long the silence is, milliseconds; 30,000 in llama.cpp.
        ms: u64,
    },
    /// A stream ends without `[DONE]`, as those of other APIs do.
    NoDone,
    /// A whole answer is made to its end though its client has left, as in llama.cpp.
    Deaf,
    /// Any model's name is answered to, as in llama.cpp.
    AnyModel,
    /// The answer leaves in writes of one byte.
    OneBytePerWrite,
    /// The answer is gzip with `content-encoding`, whatever the client accepts.
    Gzip,
    /// Every answer is a redirect.
    Redirect {
        /// HTTP status.
        code: u16,
        /// Where to.
        location: String,
    },
    /// Hop-by-hop headers on the answer, one of them named by `connection`.
    HopByHop,
    /// `/metrics` shows these gauges, whatever happens.
    FreezeGauges {
        /// `num_requests_running`.
        #[serde(default)]
        running: u64,
        /// `num_requests_waiting`.
        #[serde(default)]
        waiting: u64,
        /// `kv_cache_usage_perc`, 0 to 1.
        #[serde(default)]
        usage: f64,
    },
}

/// A fault and the requests it is for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultRule {
    /// What goes wrong.
    #[serde(flatten)]
    pub fault: Fault,
    /// For the next so many matching requests; without it for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Only for each so-manieth matching request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u32>,
    /// For paths that begin so; without it for completions and chat completions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl FaultRule {
    /// `fault` for all completions.
    pub fn always(fault: Fault) -> Self {
        Self { fault, next: None, every: None, path: None }
    }

    /// `fault` for the next `count` completions.
    pub fn next(fault: Fault, count: u32) -> Self {
        Self { next: Some(count), ..Self::always(fault) }
    }

    /// `fault` for all requests to paths that begin with `path`.
    pub fn on_path(fault: Fault, path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..Self::always(fault) }
    }

    fn concerns(&self, path: &str) -> bool {
        match &self.path {
            Some(prefix) => path.starts_with(prefix.as_str()),
            None => matches!(path, "/v1/chat/completions" | "/v1/completions"),
        }
    }
}

impl<'de> Deserialize<'de> for FaultRule {
    /// By hand: serde's `flatten` would let misspelt fields pass.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn take<T: serde::de::DeserializeOwned, E: serde::de::Error>(
            fields: &mut serde_json::Map<String, Value>,
            name: &str,
        ) -> Result<Option<T>, E> {
            let value = fields.remove(name).unwrap_or(Value::Null);
            serde_json::from_value(value).map_err(|e| E::custom(format!("{name}: {e}")))
        }
        let mut fields = serde_json::Map::deserialize(deserializer)?;
        let next = take(&mut fields, "next")?;
        let every = take(&mut fields, "every")?;
        let path = take(&mut fields, "path")?;
        let given: Vec<String> = fields.keys().cloned().collect();
        let fault: Fault = serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?;
        // Variants without fields take any field: compare with what the fault writes.
        let known = serde_json::to_value(&fault).map_err(D::Error::custom)?;
        if let Some(unknown) = given.iter().find(|name| known.get(name).is_none()) {
            return Err(D::Error::custom(format!("unknown field `{unknown}`")));
        }
        Ok(Self { fault, next, every, path })
    }
}

impl std::str::FromStr for FaultRule {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// The faults of one engine; they outlive its restarts.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Vec<Active>>>);

#[derive(Debug)]
struct Active {
    rule: FaultRule,
    seen: u32,
}

impl Faults {
    /// Replaces all rules; those past [`MAX_RULES`] are left out.
    pub fn set(&self, rules: impl IntoIterator<Item = FaultRule>) {
        *self.lock() = rules.into_iter().take(MAX_RULES).map(|rule| Active { rule, seen: 0 }).collect();
    }

    /// Adds a rule; the engine takes at most [`MAX_RULES`].
    pub fn add(&self, rule: FaultRule) {
        let mut active = self.lock();
        if active.len() < MAX_RULES {
            active.push(Active { rule, seen: 0 });
        }
    }

    /// Nothing goes wrong any more, for requests from now on.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// The rules that still have requests to come.
    pub fn list(&self) -> Vec<FaultRule> {
        self.lock().iter().map(|active| active.rule.clone()).collect()
    }

    /// What a request to `path` that has just arrived must suffer.
    pub(crate) fn plan(&self, path: &str) -> Plan {
        let mut plan = Plan::default();
        self.lock().retain_mut(|active| {
            if active.strikes(path) {
                plan.add(&active.rule.fault);
            }
            active.rule.next != Some(0)
        });
        plan
    }

    /// Gauges that are frozen: running, waiting, usage.
    pub(crate) fn frozen_gauges(&self) -> Option<(u64, u64, f64)> {
        self.lock().iter().find_map(|active| match active.rule.fault {
            Fault::FreezeGauges { running, waiting, usage } => Some((running, waiting, usage)),
            _ => None,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Active>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Active {
    fn strikes(&mut self, path: &str) -> bool {
        if matches!(self.rule.fault, Fault::FreezeGauges { .. }) || !self.rule.concerns(path) {
            return false;
        }
        self.seen = self.seen.wrapping_add(1);
        if self.rule.every.is_some_and(|k| k == 0 || !self.seen.is_multiple_of(k)) {
            return false;
        }
        match &mut self.rule.next {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

/// What one request must suffer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) any: bool,
    pub(crate) slow_headers: Option<Duration>,
    pub(crate) slow_first: Option<Duration>,
    pub(crate) stall_after: Option<u32>,
    pub(crate) cut_after: Option<(u32, CutHow)>,
    pub(crate) cut_now: Option<CutHow>,
    pub(crate) status: Option<u16>,
    pub(crate) hang: bool,
    pub(crate) error_after: Option<u32>,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) null_first: bool,
    pub(crate) linger: Option<(u32, Duration)>,
    pub(crate) no_done: bool,
    pub(crate) deaf: bool,
    pub(crate) any_model: bool,
    pub(crate) trickle: bool,
    pub(crate) gzip: bool,
    pub(crate) redirect: Option<(u16, String)>,
    pub(crate) hop_by_hop: bool,
}

impl Plan {
    fn add(&mut self, fault: &Fault) {
        self.any = true;
        match fault {
            Fault::SlowHeaders { ms } => self.slow_headers = Some(Duration::from_millis(*ms)),
            Fault::SlowFirstByte { ms } => self.slow_first = Some(Duration::from_millis(*ms)),
            Fault::Stall { after_events } => self.stall_after = Some(*after_events),
            Fault::Cut { after_events, how } => self.cut_after = Some((*after_events, *how)),
            Fault::CutBeforeHeaders { how } => self.cut_now = Some(*how),
            Fault::Status { code } => self.status = Some(*code),
            Fault::Hang => self.hang = true,
            Fault::ErrorEvent { after_events } => self.error_after = Some(*after_events),
            Fault::KeepAlive { every_ms } => {
                self.keep_alive = Some(Duration::from_millis((*every_ms).max(1)));
            }
            Fault::NullFirst => self.null_first = true,
            Fault::Linger { after_events, ms } => {
                self.linger = Some((*after_events, Duration::from_millis(*ms)));
            }
            Fault::NoDone => self.no_done = true,
            Fault::Deaf => self.deaf = true,
            Fault::AnyModel => self.any_model = true,
            Fault::OneBytePerWrite => self.trickle = true,
            Fault::Gzip => self.gzip = true,
            Fault::Redirect { code, location } => self.redirect = Some((*code, location.clone())),
            Fault::HopByHop => self.hop_by_hop = true,
            Fault::FreezeGauges { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = "/v1/chat/completions";

    #[test]
    fn a_rule_for_the_next_two_ends_after_two() {
        let faults = Faults::default();
        faults.add(FaultRule::next(Fault::Hang, 2));
        let hangs: Vec<bool> = (0..4).map(|_| faults.plan(CHAT).hang).collect();
        assert_eq!(hangs, [true, true, false, false]);
        assert!(faults.list().is_empty());
    }

    #[test]
    fn every_third_strikes_every_third() {
        let faults = Faults::default();
        faults.add(FaultRule { every: Some(3), ..FaultRule::always(Fault::Hang) });
        let hangs: Vec<bool> = (0..6).map(|_| faults.plan(CHAT).hang).collect();
        assert_eq!(hangs, [false, false, true, false, false, true]);
    }

    #[test]
    fn without_a_path_only_completions_suffer() {
        let faults = Faults::default();
        faults.add(FaultRule::always(Fault::Status { code: 500 }));
        assert_eq!(faults.plan("/health"), Plan::default());
        assert_eq!(faults.plan(CHAT).status, Some(500));
        faults.set([FaultRule::on_path(Fault::Status { code: 503 }, "/health")]);
        assert_eq!(faults.plan("/health").status, Some(503));
        assert_eq!(faults.plan(CHAT), Plan::default());
    }

    #[test]
    fn rules_read_as_they_are_written() {
        let rule = FaultRule {
            every: Some(20),
            ..FaultRule::next(Fault::Cut { after_events: 3, how: CutHow::Rst }, 2)
        };
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(text, r#"{"kind":"cut","after_events":3,"how":"rst","next":2,"every":20}"#);
        assert_eq!(text.parse::<FaultRule>().unwrap(), rule);
    }

    #[test]
    fn misspelt_rules_are_refused() {
        assert!(r#"{"kind":"stall","after_event":3}"#.parse::<FaultRule>().is_err());
        assert!(r#"{"kind":"stall","after_events":3,"nexxt":1}"#.parse::<FaultRule>().is_err());
        assert!(r#"{"kind":"hang","nexxt":1}"#.parse::<FaultRule>().is_err());
        assert!(r#"{"kind":"stal"}"#.parse::<FaultRule>().is_err());
    }
}
