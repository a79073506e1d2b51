//! `/v1/chat/completions` and `/v1/completions`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::body::{EngineBody, Live, Piece};
use super::error::ApiError;
use super::fault::{CutHow, Plan};
use super::gzip::Gzip;
use super::request::{Api, Generation};
use super::sequence::{Prefilled, Sequence, sequences};
use super::shape::Shape;
use super::state::{Core, Flight};
use super::stream::{self, Emitter, Job};
use super::wire::WireControl;

/// What a generation needs to know of the request that it answers.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a Arc<Core>,
    pub(crate) wire: &'a Arc<WireControl>,
    pub(crate) plan: Plan,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) arrived: Instant,
}

/// Answers a generation request.
pub(crate) async fn generate(api: Api, call: Call<'_>) -> Result<Response<EngineBody>, ApiError> {
    let core = call.core;
    let request = Generation::parse(&core.config, api, call.headers, &call.body, call.plan.any_model)
        .inspect_err(|_| core.count(|stats| stats.bad_requests += 1))?;
    let (flight, tickets) = core.admit(request.sequences(), call.arrived)?;
    let request_id = call.headers.get("x-request-id").and_then(|v| v.to_str().ok());
    let shape = Shape::new(core, &request, request_id);
    let sequences = sequences(&request, &flight, tickets);
    if request.stream {
        core.count(|stats| stats.streams += 1);
        let job = Job { flight, shape, sequences, echo: request.echo };
        return Ok(streamed(job, call));
    }
    whole(&request, &flight, &shape, sequences, call).await
}

/// The head at once, before queueing and prefill, as vLLM does; the rest from a task that runs at its
/// own pace, since a slow reader does not slow an engine.
fn streamed(job: Job, call: Call<'_>) -> Response<EngineBody> {
    let (pieces, receiver) = mpsc::channel(job.events());
    let gzip = call.plan.gzip;
    let maker = tokio::spawn(stream::run(job, Emitter::new(pieces, call.plan)));
    let live = Live::new(receiver, maker, gzip, Arc::clone(call.wire));
    let mut response = Response::new(EngineBody::Live(live));
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

async fn whole(
    request: &Generation,
    flight: &Arc<Flight>,
    shape: &Shape,
    sequences: Vec<Sequence>,
    call: Call<'_>,
) -> Result<Response<EngineBody>, ApiError> {
    let texts: Vec<String> = sequences.iter().map(|sequence| text_of(sequence, request.echo)).collect();
    let tokens = u64::from(request.tokens) * sequences.len() as u64;
    if call.plan.error_after.is_some() {
        flight.fail();
        return Err(ApiError::engine_died());
    }
    let deaf = call.plan.deaf;
    let run = async move {
        match deaf {
            // A task of its own outlives its client.
            true => tokio::spawn(run_all(sequences)).await.unwrap_or_default(),
            false => run_all(sequences).await,
        }
    };
    let prefilled = tokio::select! {
        prefilled = run => prefilled,
        () = call.core.dying() => {
            flight.fail();
            return Err(ApiError::engine_died());
        }
    };
    if let Some(time) = call.plan.slow_first {
        sleep(time).await;
    }
    let answer = shape.answer(&texts, request.finish, tokens, prefilled);
    Ok(deliver(answer.into(), flight, &call))
}

/// Text of a choice that is not streamed.
fn text_of(sequence: &Sequence, echo: bool) -> String {
    let said = sequence.voice.say(sequence.tokens);
    if echo { format!("{}{said}", String::from_utf8_lossy(&sequence.prompt)) } else { said }
}

/// Runs all sequences to their end and adds up what the cache had.
async fn run_all(sequences: Vec<Sequence>) -> Prefilled {
    let runs = sequences.into_iter().map(|mut sequence| async move {
        let prefilled = sequence.prefill().await;
        sequence.decode().await;
        let leads = sequence.leads;
        sequence.finish();
        (leads, prefilled)
    });
    join_all(runs).await.into_iter().filter(|(leads, _)| *leads).map(|(_, prefilled)| prefilled).sum()
}

/// Sends an answer as the plan wants it: zipped, or broken off half-way.
fn deliver(answer: Bytes, flight: &Arc<Flight>, call: &Call<'_>) -> Response<EngineBody> {
    let answer = if call.plan.gzip { zipped(&answer) } else { answer };
    let plan = &call.plan;
    let breaks = plan.stall_after.is_some() || plan.cut_after.is_some() || plan.linger.is_some();
    let mut response = if breaks {
        half_of(&answer, Arc::clone(flight), call)
    } else {
        flight.complete();
        Response::new(EngineBody::whole(answer))
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn zipped(data: &[u8]) -> Bytes {
    let mut gzip = Gzip::default();
    let mut out = gzip.push(data);
    out.extend(gzip.finish());
    out.into()
}

fn half_of(answer: &Bytes, flight: Arc<Flight>, call: &Call<'_>) -> Response<EngineBody> {
    let (pieces, receiver) = mpsc::channel(2);
    let half = answer.slice(..answer.len() / 2);
    let cut = call.plan.cut_after.map(|(_, how)| (how, Duration::ZERO));
    let cut = cut.or(call.plan.linger.map(|(_, silence)| (CutHow::Eof, silence)));
    let maker = tokio::spawn(async move {
        // An error means that the client is gone, which ends this task anyway.
        let _ = pieces.send(Piece::Data(half)).await;
        match cut {
            Some((how, silence)) => {
                sleep(silence).await;
                flight.fail();
                let _ = pieces.send(Piece::Cut(how)).await;
            }
            None => std::future::pending().await,
        }
    });
    let live = Live::new(receiver, maker, false, Arc::clone(call.wire));
    let mut response = Response::new(EngineBody::Live(live));
    response.headers_mut().insert(header::CONTENT_LENGTH, answer.len().into());
    response
}
