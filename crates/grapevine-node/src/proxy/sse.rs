//! Watching an event stream from a copy: the first event, usage, errors, the end.
//!
//! It reads lines, never buffers more than one and that capped, and never touches what is relayed.

use memchr::memchr_iter;

use super::finish::Finish;
use super::usage::{Usage, find_last};

/// Longest line that is put together when chunks split it. A longer one is passed over: it is
/// relayed all the same.
const LINE_BYTES: usize = 16 * 1_024;

/// What the stream has shown so far.
#[derive(Debug, Default)]
pub struct Watcher {
    line: Vec<u8>,
    overlong: bool,
    event: Event,
    open: bool,
    /// A `data:` line has come: the engine is at work.
    pub started: bool,
    /// One has come that may hold a token.
    pub generates: bool,
    /// The engine said that it failed.
    pub failed: bool,
    /// The stream said that it is complete.
    pub complete: bool,
    /// What it said of the prompt.
    pub usage: Usage,
    /// Why it ended, where a span wants to know.
    pub(super) finish: Option<Finish>,
}

/// What the current event's `event:` line says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Event {
    #[default]
    Plain,
    /// Comes before the first token.
    Opening,
    Error,
    End,
}

impl Watcher {
    /// One that also reads why the stream ends, if a span wants to know.
    pub(super) fn traced(traced: bool) -> Self {
        Self { finish: traced.then(Finish::default), ..Self::default() }
    }

    /// A chunk passed.
    pub fn push(&mut self, chunk: &[u8]) {
        let mut from = 0;
        for at in memchr_iter(b'\n', chunk) {
            let piece = chunk.get(from..at).unwrap_or_default();
            from = at + 1;
            self.end_line(piece);
        }
        let rest = chunk.get(from..).unwrap_or_default();
        if !rest.is_empty() {
            self.open = true;
            self.keep(rest);
        }
    }

    /// Whether an event could begin here without running into an unfinished one.
    pub fn between_events(&self) -> bool {
        !self.open
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.line.len() + piece.len() > LINE_BYTES {
            self.overlong = true;
            // The head still says which field it is.
            self.started |= self.line.starts_with(b"data:") || piece.starts_with(b"data:");
            self.generates |= self.started && self.event == Event::Plain;
            self.line.clear();
        }
        if !self.overlong {
            self.line.extend_from_slice(piece);
        }
    }

    fn end_line(&mut self, piece: &[u8]) {
        if self.overlong {
            self.overlong = false;
            self.open = true;
        } else if self.line.is_empty() {
            self.read_line(piece);
        } else {
            self.keep(piece);
            let mut line = std::mem::take(&mut self.line);
            if !std::mem::take(&mut self.overlong) {
                self.read_line(&line);
            }
            line.clear();
            self.line = line;
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            self.open = false;
            self.event = Event::Plain;
            return;
        }
        self.open = true;
        if let Some(data) = line.strip_prefix(b"data:") {
            self.read_data(data.trim_ascii_start());
        } else if let Some(name) = line.strip_prefix(b"event:") {
            self.event = match name.trim_ascii() {
                b"error" | b"response.failed" => Event::Error,
                b"message_stop" | b"response.completed" | b"response.incomplete" => Event::End,
                b"message_start" | b"content_block_start" | b"ping" => Event::Opening,
                b"response.created" | b"response.queued" | b"response.in_progress" => Event::Opening,
                name if name.ends_with(b".added") => Event::Opening,
                _ => Event::Plain,
            };
        }
    }

    fn read_data(&mut self, data: &[u8]) {
        self.started = true;
        self.failed |= self.event == Event::Error || is_error(data);
        self.complete |= self.event == Event::End || data == b"[DONE]";
        self.generates |= self.event == Event::Plain && !self.failed && !self.complete;
        if let Some(usage) = find_last(data) {
            self.usage.update(usage);
        }
        if let Some(finish) = &mut self.finish {
            finish.read(data);
        }
    }
}

/// `{"error": ...}` as the first field, or Anthropic's `{"type":"error", ...}`.
fn is_error(data: &[u8]) -> bool {
    let Some(object) = data.strip_prefix(b"{") else { return false };
    let object = object.trim_ascii_start();
    if object.starts_with(b"\"type\":\"error\"") {
        return true;
    }
    let Some(value) = object.strip_prefix(b"\"error\"") else { return false };
    let value = value.trim_ascii_start().strip_prefix(b":").unwrap_or_default().trim_ascii_start();
    value.starts_with(b"{") || value.starts_with(b"\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(stream: &str, size: usize) -> Watcher {
        let mut watcher = Watcher::default();
        for chunk in stream.as_bytes().chunks(size) {
            watcher.push(chunk);
        }
        watcher
    }

    const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}],\"usage\":null}\n\n\
        : keep-alive\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn usage_and_end_are_read_however_the_stream_is_cut() {
        for text in [CHAT.to_owned(), CHAT.replace('\n', "\r\n")] {
            for size in [1, 2, 3, 5, 17, 64, 4_096] {
                let seen = watch(&text, size);
                let usage = Usage { prompt_tokens: Some(8), cached_tokens: Some(3), output_tokens: None };
                assert_eq!(seen.usage, usage, "chunks of {size}");
                assert!(seen.complete && seen.started && !seen.failed && seen.between_events());
            }
        }
    }

    #[test]
    fn a_comment_is_not_the_first_event() {
        assert!(!watch(": keep-alive\n\n", 4).started);
        assert!(watch(": keep-alive\n\ndata: null\n\n", 4).started);
    }

    #[test]
    fn events_that_come_before_the_first_token_are_passed_over() {
        for opening in [
            "event: message_start\ndata: {}\n\nevent: content_block_start\ndata: {}\n\nevent: ping\ndata: {}\n\n",
            "event: response.created\ndata: {}\n\nevent: response.in_progress\ndata: {}\n\n\
             event: response.output_item.added\ndata: {}\n\nevent: response.content_part.added\ndata: {}\n\n",
            "data: {\"error\":{}}\n\ndata: [DONE]\n\n",
            "data: [DONE]\n\n",
        ] {
            let seen = watch(opening, 5);
            assert!(seen.started && !seen.generates, "{opening}");
        }
        for token in [
            "event: message_start\ndata: {}\n\nevent: content_block_delta\ndata: {}\n\n",
            "event: response.created\ndata: {}\n\nevent: response.output_text.delta\ndata: {}\n\n",
            "data: {\"choices\":[]}\n\n",
        ] {
            assert!(watch(token, 5).generates, "{token}");
        }
    }

    #[test]
    fn an_engines_error_event_is_seen_in_every_api() {
        for text in [
            "data: {\"error\":{\"message\":\"x\"}}\n\ndata: [DONE]\n\n",
            "data: {\"error\": {\"message\":\"x\"}}\n\n",
            "event: error\ndata: {\"a\":1}\n\n",
            "data: {\"type\":\"error\",\"error\":{}}\n\n",
            "event: response.failed\ndata: {\"response\":{}}\n\n",
        ] {
            assert!(watch(text, 3).failed, "{text}");
        }
        assert!(!watch("data: {\"error\":null,\"choices\":[]}\n\n", 3).failed);
        assert!(!watch("event: error\n\ndata: {}\n\n", 3).failed, "the name ends with its event");
    }

    #[test]
    fn named_ends_count() {
        assert!(watch("event: message_stop\ndata: {}\n\n", 9).complete);
        assert!(watch("event: response.completed\ndata: {}\n\n", 9).complete);
        assert!(!watch("event: message_delta\ndata: {}\n\n", 9).complete);
    }

    #[test]
    fn an_overlong_line_is_passed_over_and_bounded() {
        let long = format!("data: {{\"x\":\"{}\"}}\n\n{CHAT}", "y".repeat(100_000));
        let mut watcher = Watcher::default();
        for chunk in long.as_bytes().chunks(1_000) {
            watcher.push(chunk);
            assert!(watcher.line.capacity() <= 2 * LINE_BYTES);
        }
        assert_eq!(watcher.usage.prompt_tokens, Some(8));
        assert!(watch(&long, 1_000_000).complete, "in one chunk nothing is overlong");
    }

    #[test]
    fn the_middle_of_an_event_is_no_place_for_another() {
        assert!(watch("", 1).between_events());
        assert!(!watch("data: {\"a\"", 100).between_events());
        assert!(!watch("data: {}\n", 100).between_events());
        assert!(watch("data: {}\n\n", 100).between_events());
        assert!(!watch("data: {}\n\nda", 100).between_events());
    }
}
