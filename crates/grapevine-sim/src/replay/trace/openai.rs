//! Plain request logs: one JSON body a line, as clients sent it, or wrapped with what else is known:
//!
//! ```json
//! {"timestamp": 1760428436.4, "url": "/v1/chat/completions", "body": {"model": "m", ...},
//!  "output_tokens": 120, "session_id": "a"}
//! ```
//!
//! Everything but the body is optional. `path` is another name for `url`; without either, the body's
//! fields tell the API. A time stamp may be in s, ms or us since any origin. The OpenAI batch form
//! (`custom_id`, `method`, `url`, `body`) is read as it is.

use std::collections::HashMap;

use grapevine_tree::{Api, Extractor};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lines::{self, Source};
use super::text::{self, Blocks};
use super::{Call, ReadOptions, SEED, Start, Trace, micros, render};
use crate::replay::engine::Micros;

/// Time stamps above these are ms, and us: as seconds they would be after the year 5000.
const MS_FROM: f64 = 1e11;
const US_FROM: f64 = 1e14;

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    body: &'a RawValue,
}

struct Entry {
    at: Option<Micros>,
    session: Option<String>,
    call: Call,
}

/// Reads request logs.
pub(super) fn read(sources: &[Source], options: &ReadOptions) -> Trace {
    let mut trace = Trace { block_tokens: text::BLOCK_TOKENS, ..Trace::default() };
    let mut reader = Reader { extractor: Extractor::new(SEED), blocks: Blocks::default() };
    let mut entries = Vec::new();
    for (source, (at, line)) in sources.iter().flat_map(|s| s.lines().map(move |line| (s, line))) {
        if entries.len() >= options.limit {
            break;
        }
        match reader.entry(line, options) {
            Ok(entry) => entries.push(entry),
            Err(reason) => trace.rejected.note(source, at, reason),
        }
    }
    schedule(&mut entries, options.rate);
    trace.calls = entries.into_iter().map(|entry| entry.call).collect();
    trace
}

/// Time stamps if every line has one, else an even rate; sessions by name, the nameless alone.
fn schedule(entries: &mut [Entry], rate: f64) {
    if entries.iter().all(|entry| entry.at.is_some()) {
        entries.sort_by_key(|entry| entry.at);
        let began = entries.first().and_then(|entry| entry.at).unwrap_or(0);
        for entry in entries.iter_mut() {
            entry.call.start = Start::At(entry.at.unwrap_or(began) - began);
        }
    } else {
        for (i, entry) in entries.iter_mut().enumerate() {
            entry.call.start = Start::At(micros(i as f64 / rate));
        }
    }
    let mut names = HashMap::new();
    for (entry, alone) in entries.iter_mut().zip(0u32..) {
        // A session's number is that of its first request.
        entry.call.session = match entry.session.take() {
            Some(name) => *names.entry(name).or_insert(alone),
            None => alone,
        };
    }
}

struct Reader {
    extractor: Extractor,
    blocks: Blocks,
}

impl Reader {
    fn entry(&mut self, line: &[u8], options: &ReadOptions) -> Result<Entry, String> {
        let mut object = lines::object(line)?;
        let (wrap, body) = match object.remove("body") {
            Some(Value::Object(body)) => (object, body),
            Some(_) => return Err("body is not a JSON object".to_owned()),
            None => (Map::new(), object),
        };
        let field = |name: &str| wrap.get(name).or_else(|| body.get(name));
        let api = api(&wrap, &body)?;
        let at = match field("timestamp") {
            Some(stamp) => Some(timestamp(stamp)?),
            None => None,
        };
        let session = ["session_id", "session", "user"].iter().find_map(|name| field(name)?.as_str());
        let session = session.map(str::to_owned);
        let output = ["output_tokens", "max_tokens", "max_completion_tokens", "max_output_tokens"];
        let output = output.iter().find_map(|name| field(name)?.as_u64());
        let output_tokens = output.map_or(options.output_tokens, |n| n.min(u64::from(u32::MAX)) as u32);
        let text = render::prompt(api, &body);
        if text.is_empty() {
            return Err("no prompt".to_owned());
        }
        // Byte for byte what the client sent.
        let sent = serde_json::from_slice::<Wrapped<'_>>(line).map_or(line, |w| w.body.get().as_bytes());
        let call = Call {
            session: 0,
            start: Start::At(0),
            input_tokens: text::tokens(&text),
            output_tokens,
            runs: self.blocks.runs(&text),
            key: self.extractor.extract(api, sent, b"").key,
        };
        Ok(Entry { at, session, call })
    }
}

fn api(wrap: &Map<String, Value>, body: &Map<String, Value>) -> Result<Api, String> {
    let path = ["url", "path"].iter().find_map(|name| wrap.get(*name)?.as_str());
    if let Some(path) = path {
        // A URL's path, without its query.
        let path = path.split_once("://").map_or(path, |(_, rest)| &rest[rest.find('/').unwrap_or(0)..]);
        return match Api::of_path(path.split('?').next().unwrap_or(path)) {
            Api::Other => Err(format!("{path:?} takes no prompt")),
            api => Ok(api),
        };
    }
    let has = |name: &str| body.contains_key(name);
    match () {
        () if has("messages") && has("system") => Ok(Api::Messages),
        () if has("messages") => Ok(Api::Chat),
        () if has("prompt") => Ok(Api::Completions),
        () if has("input") => Ok(Api::Responses),
        () if has("text") || has("input_ids") => Ok(Api::Generate),
        () => Err("none of messages, prompt, input, text, input_ids".to_owned()),
    }
}

fn timestamp(stamp: &Value) -> Result<Micros, String> {
    let number = stamp.as_f64().or_else(|| stamp.as_str()?.parse().ok());
    let wrong = || format!("timestamp {stamp} is not a number of s, ms or us");
    let number = number.filter(|n| *n >= 0.0).ok_or_else(wrong)?;
    Ok(match number {
        n if n >= US_FROM => n as Micros,
        n if n >= MS_FROM => (n * 1e3) as Micros,
        n => micros(n),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: ReadOptions = ReadOptions { rate: 2.0, output_tokens: 9, limit: usize::MAX };

    fn body(text: &str) -> String {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#, text.repeat(100))
    }

    #[test]
    fn bare_bodies_come_at_the_rate_that_was_asked_for() {
        let log = format!("{}\n{}\nnope\n[]\n{{\"model\":\"m\"}}\n", body("abc"), body("abc"));
        let trace = read(&[Source::of(&log)], &OPTIONS);
        assert_eq!((trace.calls.len(), trace.rejected.count), (2, 3));
        assert_eq!(trace.calls[1].start, Start::At(500_000));
        assert_eq!(trace.calls[0].key, trace.calls[1].key);
        assert_eq!(trace.calls[0].runs, trace.calls[1].runs);
        assert!(trace.calls[0].runs.iter().map(|r| r.1).sum::<u32>() >= 4);
        assert_eq!(trace.calls[0].output_tokens, 9);
        assert_ne!(trace.calls[0].session, trace.calls[1].session);
    }

    #[test]
    fn wrapped_bodies_say_when_and_whose() {
        let wrap = |t: &str, s: &str, text: &str| {
            let url = "http://h:1/v1/chat/completions?x=1";
            let body = body(text);
            format!(r#"{{"timestamp":{t},"session_id":"{s}","url":"{url}","output_tokens":5,"body":{body}}}"#)
        };
        let log =
            [wrap("1760428436.5", "a", "x"), wrap("1760428435.0", "b", "y"), wrap("1760428437", "a", "z")];
        let trace = read(&[Source::of(&log.join("\n"))], &OPTIONS);
        assert_eq!(trace.rejected.count, 0, "{}", trace.rejected);
        let starts: Vec<_> = trace.calls.iter().map(|c| c.start).collect();
        assert_eq!(starts, [Start::At(0), Start::At(1_500_000), Start::At(2_000_000)]);
        let sessions: Vec<_> = trace.calls.iter().map(|c| c.session).collect();
        assert_eq!(sessions, [0, 1, 1]);
        assert_eq!(trace.calls[0].output_tokens, 5);
    }

    #[test]
    fn time_stamps_come_in_three_units() {
        let read = |text: &str| timestamp(&serde_json::from_str(text).unwrap());
        assert_eq!(read("1760428436.5"), Ok(1_760_428_436_500_000));
        assert_eq!(read("1760428436500"), Ok(1_760_428_436_500_000));
        assert_eq!(read("1760428436500000"), Ok(1_760_428_436_500_000));
        assert_eq!(read("\"1.5\""), Ok(1_500_000));
        assert!(read("\"yesterday\"").is_err());
        assert!(read("-1").is_err());
    }
}
