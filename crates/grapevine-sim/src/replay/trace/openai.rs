//! Plain request logs: one JSON body a line, as clients sent it, or wrapped with what else is known:
//!
//! ```json
//! {"timestamp": 1760428436.4, "url": "/v1/chat/completions", "body": {"model": "m", ...},
//!  "output_tokens": 120, "session_id": "a"}
//! ```
//!
//! Everything but the body is optional; `request` is another name for it, and either may be JSON in a
//! string. `path` is another name for `url`; without either, the body's fields tell the API. Time stamps
//! ([`STAMPS`]) may be numbers of s, ms, us or ns since any origin, or dates as of RFC 3339. The OpenAI
//! batch form (`custom_id`, `method`, `url`, `body`) is read as it is.

use std::borrow::Cow;
use std::collections::HashMap;

use grapevine_tree::{Api, Extractor};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::lines;
use super::text::{self, Blocks};
use super::{Call, ReadOptions, SEED, Start, Trace, micros, render, time};
use crate::replay::engine::Micros;

/// Names of time stamps, beside the body or in it.
const STAMPS: [&str; 9] = [
    "timestamp",
    "@timestamp",
    "time",
    "ts",
    "created_at",
    "created",
    "start_time",
    "started_at",
    "arrived_at",
];

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow, alias = "request")]
    body: &'a RawValue,
}

/// A body, byte for byte as the client sent it, and what is wrapped around it.
struct Sent<'a> {
    wrap: Map<String, Value>,
    body: Map<String, Value>,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Sent<'a> {
    fn of(line: &'a [u8]) -> Result<Self, String> {
        let mut wrap = lines::object(line)?;
        match wrap.remove("body").or_else(|| wrap.remove("request")) {
            None => Ok(Self { wrap: Map::new(), body: wrap, bytes: Cow::Borrowed(line) }),
            Some(Value::Object(body)) => {
                let raw = serde_json::from_slice::<Wrapped<'a>>(line).map(|w| w.body.get().as_bytes());
                Ok(Self { wrap, body, bytes: Cow::Borrowed(raw.unwrap_or(line)) })
            }
            Some(Value::String(text)) => {
                Ok(Self { wrap, body: lines::object(text.as_bytes())?, bytes: Cow::Owned(text.into_bytes()) })
            }
            Some(_) => Err("body is not a JSON object".to_owned()),
        }
    }
}

struct Entry {
    at: Option<Micros>,
    session: Option<String>,
    call: Call,
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

/// Reads request logs.
pub(super) struct Reader {
    extractor: Extractor,
    blocks: Blocks,
    output_tokens: u32,
    entries: Vec<Entry>,
}

impl Reader {
    pub(super) fn new(options: &ReadOptions) -> Self {
        let (extractor, blocks) = (Extractor::new(SEED), Blocks::new(options.block_tokens));
        Self { extractor, blocks, output_tokens: options.output_tokens, entries: Vec::new() }
    }

    pub(super) fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let entry = self.entry(line)?;
        self.entries.push(entry);
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn end(mut self, options: &ReadOptions) -> Trace {
        schedule(&mut self.entries, options.rate);
        let calls = self.entries.into_iter().map(|entry| entry.call).collect();
        Trace { block_tokens: options.block_tokens, calls, ..Trace::default() }
    }

    fn entry(&mut self, line: &[u8]) -> Result<Entry, String> {
        let Sent { wrap, body, bytes } = Sent::of(line)?;
        let field = |name: &str| wrap.get(name).or_else(|| body.get(name));
        let api = api(&wrap, &body)?;
        let stamp = STAMPS.iter().find_map(|name| field(name).filter(|stamp| !stamp.is_null()));
        let at = stamp.map(time::stamp).transpose()?;
        let session = ["session_id", "session", "user"].iter().find_map(|name| field(name)?.as_str());
        let session = session.map(str::to_owned);
        let output = ["output_tokens", "max_tokens", "max_completion_tokens", "max_output_tokens"];
        let used = || field("usage")?.get("completion_tokens")?.as_u64();
        let output = used().or_else(|| output.iter().find_map(|name| field(name)?.as_u64()));
        let output_tokens = output.map_or(self.output_tokens, |n| n.min(u64::from(u32::MAX)) as u32);
        let text = render::prompt(api, &body);
        if text.is_empty() {
            return Err("no prompt".to_owned());
        }
        let call = Call {
            session: 0,
            start: Start::At(0),
            input_tokens: text::tokens(&text),
            output_tokens,
            runs: self.blocks.runs(&text),
            key: self.extractor.extract(api, &bytes, b"").key,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Trace {
        Trace::of_text(log, &ReadOptions { rate: 2.0, output_tokens: 9, ..ReadOptions::default() })
    }

    fn body(text: &str) -> String {
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{}"}}]}}"#, text.repeat(100))
    }

    #[test]
    fn bare_bodies_come_at_the_rate_that_was_asked_for() {
        let log = format!("{}\n{}\nnope\n[]\n{{\"model\":\"m\"}}\n", body("abc"), body("abc"));
        let trace = read(&log);
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
        let trace = read(&log.join("\n"));
        assert_eq!(trace.rejected.count, 0, "{}", trace.rejected);
        let starts: Vec<_> = trace.calls.iter().map(|c| c.start).collect();
        assert_eq!(starts, [Start::At(0), Start::At(1_500_000), Start::At(2_000_000)]);
        let sessions: Vec<_> = trace.calls.iter().map(|c| c.session).collect();
        assert_eq!(sessions, [0, 1, 1]);
        assert_eq!(trace.calls[0].output_tokens, 5);
    }

    #[test]
    fn bodies_come_under_two_names_and_as_text() {
        let as_text = serde_json::to_string(&body("abc")).unwrap();
        let log = [
            format!(
                r#"{{"ts":"2025-10-14T07:53:58Z","request":{},"usage":{{"completion_tokens":7}}}}"#,
                body("abc")
            ),
            format!(r#"{{"created_at":1760428436,"path":"/v1/chat/completions","body":{as_text}}}"#),
            format!(r#"{{"time":1760428437000,"body":{}}}"#, body("abc")),
            r#"{"time":1760428437000,"body":7}"#.to_owned(),
        ];
        let trace = read(&log.join("\n"));
        assert_eq!((trace.calls.len(), trace.rejected.count), (3, 1), "{}", trace.rejected);
        assert!(trace.calls.iter().all(|call| call.key == trace.calls[0].key));
        assert_eq!([0, 1, 2].map(|i| trace.calls[i].start), [0, 1_000_000, 2_000_000].map(Start::At));
        assert_eq!([0, 1, 2].map(|i| trace.calls[i].output_tokens), [9, 9, 7]);
    }
}
