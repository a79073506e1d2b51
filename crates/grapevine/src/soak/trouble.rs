//! What goes wrong, one thing at a time.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::time::Duration;

use grapevine_testkit::load::http_client;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cast::{Cast, Engine};
use super::ledger::{Ledger, Who};

/// Something killed is started again after this.
const DOWN: Duration = Duration::from_secs(1);

/// Something that hangs, is slow, refuses or is away does so for this.
const LASTS: Duration = Duration::from_secs(4);

/// A kind of trouble. Only the killing ones excuse failures, and only of what was in flight there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    EngineKilled,
    EngineHangs,
    EngineSlow,
    EngineRefuses,
    EngineAway,
    RouterKilled,
    RouterHangs,
    RouterReplaced,
}

const KINDS: [Kind; 8] = [
    Kind::EngineKilled,
    Kind::EngineHangs,
    Kind::EngineSlow,
    Kind::EngineRefuses,
    Kind::EngineAway,
    Kind::RouterKilled,
    Kind::RouterHangs,
    Kind::RouterReplaced,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::EngineKilled => "engine killed, back with an empty cache",
            Self::EngineHangs => "engine hangs",
            Self::EngineSlow => "engine slow",
            Self::EngineRefuses => "engine answers 503",
            Self::EngineAway => "engine taken off the list and back",
            Self::RouterKilled => "router killed",
            Self::RouterHangs => "router hangs",
            Self::RouterReplaced => "router replaced",
        }
    }
}

/// The order in which troubles come, and how many there were.
pub(super) struct Troubles {
    rng: SmallRng,
    /// What is left of this round; each kind comes once a round.
    round: Vec<Kind>,
    counts: BTreeMap<Kind, u32>,
}

impl Troubles {
    /// They follow from `rng`.
    pub(super) fn new(rng: SmallRng) -> Self {
        Self { rng, round: Vec::new(), counts: BTreeMap::new() }
    }

    /// How many there were, by name.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u32)> {
        self.counts.iter().map(|(kind, count)| (kind.name(), *count))
    }

    /// The next one, to its end.
    pub(super) async fn next(&mut self, cast: &mut Cast, ledger: &Ledger) -> Result<(), Box<dyn Error>> {
        if self.round.is_empty() {
            self.round = KINDS.to_vec();
            self.round.shuffle(&mut self.rng);
        }
        let Some(kind) = self.round.pop() else { return Ok(()) };
        let router = self.rng.random_range(1..cast.fleet.routers.len());
        let engine = self.rng.random_range(1..cast.engines.len());
        *self.counts.entry(kind).or_default() += 1;
        match kind {
            Kind::RouterKilled | Kind::RouterHangs | Kind::RouterReplaced => {
                println!("        {}: {}", kind.name(), name_of_router(cast, router));
                strike_router(kind, router, cast, ledger).await
            }
            _ => {
                println!("        {}: {}", kind.name(), name_of_engine(cast, engine));
                Ok(strike_engine(kind, engine, cast, ledger).await?)
            }
        }
    }
}

fn name_of_router(cast: &Cast, at: usize) -> &str {
    cast.fleet.routers.get(at).map_or("", |router| router.name.as_str())
}

fn name_of_engine(cast: &Cast, at: usize) -> &str {
    cast.engines.get(at).map_or("", |engine| engine.name.as_str())
}

async fn strike_router(
    kind: Kind,
    at: usize,
    cast: &mut Cast,
    ledger: &Ledger,
) -> Result<(), Box<dyn Error>> {
    let Some(router) = cast.fleet.routers.get_mut(at) else { return Ok(()) };
    match kind {
        Kind::RouterHangs => {
            router.process.signal(Signal::STOP);
            sleep(LASTS).await;
            router.process.signal(Signal::CONT);
            return Ok(());
        }
        Kind::RouterKilled => {
            let from = Instant::now();
            router.process.kill().await;
            ledger.excuse(Who::Router(router.url.clone()), from);
            sleep(DOWN).await;
        }
        _ => router.process.signal(Signal::TERM),
    }
    Ok(cast.fleet.restart(at).await?)
}

async fn strike_engine(kind: Kind, at: usize, cast: &mut Cast, ledger: &Ledger) -> io::Result<()> {
    if kind == Kind::EngineAway {
        cast.list(at, false)?;
        sleep(LASTS).await;
        return cast.list(at, true);
    }
    let Some(engine) = cast.engines.get_mut(at) else { return Ok(()) };
    match kind {
        Kind::EngineHangs => {
            engine.process.signal(Signal::STOP);
            sleep(LASTS).await;
            engine.process.signal(Signal::CONT);
        }
        Kind::EngineSlow => faulty(engine, &json!([{"kind": "slow_first_byte", "ms": 800}])).await,
        Kind::EngineRefuses => faulty(engine, &json!([{"kind": "status", "code": 503}])).await,
        _ => {
            let from = Instant::now();
            engine.process.kill().await;
            ledger.excuse(Who::Engine(engine.name.clone()), from);
            sleep(DOWN).await;
            engine.restart().await?;
        }
    }
    Ok(())
}

/// Has an engine do so for a while.
async fn faulty(engine: &Engine, rules: &Value) {
    set_faults(engine, rules).await;
    sleep(LASTS).await;
    set_faults(engine, &json!([])).await;
}

async fn set_faults(engine: &Engine, rules: &Value) {
    let Ok(client) = http_client(1, LASTS) else { return };
    let request = client.post(format!("http://{}/faults", engine.name)).body(rules.to_string());
    if let Err(error) = request.send().await {
        println!("        {} did not take its faults: {error}", engine.name);
    }
}
