//! A streamed answer: events as the tokens come, and the faults that strike between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::body::Piece;
use super::error::ApiError;
use super::fault::{CutHow, Plan};
use super::sequence::{Prefilled, Sequence};
use super::shape::Shape;
use super::state::Flight;

const DONE: Bytes = Bytes::from_static(b"data: [DONE]\n\n");
const NULL: Bytes = Bytes::from_static(b"data: null\n\n");
const COMMENT: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// The comment with which llama.cpp ends a stream that it abandons.
const LAST_WORD: Bytes = Bytes::from_static(b":\n\n");

/// Events that buffers need room for beside the tokens: role, echo, usage, end, comments.
const SPARE_EVENTS: usize = 64;

/// A request that is to be streamed.
pub(crate) struct Job {
    pub(crate) flight: Arc<Flight>,
    pub(crate) shape: Shape,
    pub(crate) sequences: Vec<Sequence>,
    pub(crate) echo: bool,
}

impl Job {
    /// Room for all events, so that a slow reader never holds the engine up.
    pub(crate) fn events(&self) -> usize {
        let tokens: usize = self.sequences.iter().map(|sequence| sequence.tokens as usize + 2).sum();
        tokens + SPARE_EVENTS
    }
}

/// The stream is over before its end: cut, failed, or its client gone.
struct Ended;

/// Makes the stream's events; dropped when the client leaves.
pub(crate) async fn run(job: Job, emitter: Emitter) {
    let Job { flight, shape, sequences, echo } = job;
    let core = Arc::clone(flight.core());
    tokio::select! {
        result = produce(&shape, sequences, echo, &emitter) => match result {
            Ok(()) => flight.complete(),
            Err(Ended) => flight.fail(),
        },
        () = core.dying() => {
            flight.fail();
            emitter.fail().await;
        }
        () = emitter.keep_alive() => {}
    }
}

async fn produce(
    shape: &Shape,
    sequences: Vec<Sequence>,
    echo: bool,
    emitter: &Emitter,
) -> Result<(), Ended> {
    emitter.open().await?;
    let tokens = sequences.iter().map(|sequence| u64::from(sequence.tokens)).sum();
    let runs = sequences.into_iter().map(|sequence| speak(shape, sequence, echo, emitter));
    let prefilled = try_join_all(runs).await?.into_iter().flatten().sum();
    if let Some(usage) = shape.usage_event(tokens, prefilled) {
        emitter.event(usage).await?;
    }
    emitter.done().await
}

/// Runs one sequence; answers what the cache had if `usage` is to say it.
async fn speak(
    shape: &Shape,
    mut sequence: Sequence,
    echo: bool,
    emitter: &Emitter,
) -> Result<Option<Prefilled>, Ended> {
    let prefilled = sequence.prefill().await;
    emitter.wait_for_first().await;
    let index = sequence.index;
    if let Some(role) = shape.role(index) {
        emitter.event(role).await?;
    }
    if echo {
        emitter.event(shape.echo(index, &String::from_utf8_lossy(&sequence.prompt))).await?;
    }
    let mut pace = sequence.pace();
    let last = sequence.tokens.saturating_sub(1);
    for i in 0..last {
        emitter.event(shape.token(index, sequence.voice.token(i), i + 1)).await?;
        pace.tick().await;
    }
    let leads = sequence.leads;
    let end = shape.last_token(index, sequence.voice.token(last), sequence.tokens, sequence.finish);
    sequence.finish();
    emitter.event(end).await?;
    Ok(leads.then_some(prefilled))
}

/// Hands events to the connection, unless the plan has something else for them.
pub(crate) struct Emitter {
    pieces: mpsc::Sender<Piece>,
    plan: Plan,
    events: AtomicU32,
}

impl Emitter {
    pub(crate) fn new(pieces: mpsc::Sender<Piece>, plan: Plan) -> Self {
        Self { pieces, plan, events: AtomicU32::new(0) }
    }

    async fn open(&self) -> Result<(), Ended> {
        if self.plan.null_first { self.send(NULL).await } else { Ok(()) }
    }

    async fn done(&self) -> Result<(), Ended> {
        if self.plan.no_done { Ok(()) } else { self.send(DONE).await }
    }

    async fn wait_for_first(&self) {
        if let Some(time) = self.plan.slow_first {
            sleep(time).await;
        }
    }

    async fn event(&self, data: Bytes) -> Result<(), Ended> {
        let sent = self.events.fetch_add(1, Ordering::Relaxed);
        let reached = |limit: Option<u32>| limit.is_some_and(|limit| sent >= limit);
        if reached(self.plan.stall_after) {
            std::future::pending::<()>().await;
        }
        if let Some((after, silence)) = self.plan.linger
            && sent >= after
        {
            sleep(silence).await;
            self.send(LAST_WORD).await?;
            return self.cut(CutHow::Eof).await;
        }
        if let Some((after, how)) = self.plan.cut_after
            && sent >= after
        {
            return self.cut(how).await;
        }
        if reached(self.plan.error_after) {
            self.fail().await;
            return Err(Ended);
        }
        self.send(data).await
    }

    async fn cut(&self, how: CutHow) -> Result<(), Ended> {
        // An error says that the client is gone: the stream ends all the same.
        let _ = self.pieces.send(Piece::Cut(how)).await;
        Err(Ended)
    }

    /// What vLLM sends when its core has died: an error event and a clean end.
    async fn fail(&self) {
        let event = Bytes::from(format!("data: {}\n\n", ApiError::engine_died().body));
        if self.send(event).await.is_ok() {
            let _ = self.send(DONE).await;
        }
    }

    /// Comments until the first event; never ends.
    async fn keep_alive(&self) {
        if let Some(every) = self.plan.keep_alive {
            loop {
                sleep(every).await;
                if self.events.load(Ordering::Relaxed) > 0 || self.send(COMMENT).await.is_err() {
                    break;
                }
            }
        }
        std::future::pending::<()>().await;
    }

    async fn send(&self, data: Bytes) -> Result<(), Ended> {
        self.pieces.send(Piece::Data(data)).await.map_err(|_| Ended)
    }
}
