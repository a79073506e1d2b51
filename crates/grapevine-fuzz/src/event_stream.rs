//! The side reader of event streams sees the same however a stream is cut, and what a simple reading sees.

use grapevine_node::proxy::sse::Watcher;
use grapevine_node::proxy::usage::{Tail, Usage};

use crate::input::Input;

/// Longer lines are passed over when chunks split them: a documented limit of the reader.
const SHORT_LINE: usize = 16 * 1024;

/// What a reader has seen.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    started: bool,
    failed: bool,
    complete: bool,
    between_events: bool,
    usage: Usage,
}

/// The first four bytes choose how the stream is cut; the rest is the stream.
pub fn event_stream(data: &[u8]) {
    let mut input = Input::new(data);
    let sizes: Vec<usize> = (0..4).map(|_| 1 + input.below(96)).collect();
    let stream = input.rest();
    let mut cut = Watcher::default();
    let mut tail = Tail::default();
    let mut from = 0;
    for size in sizes.iter().cycle() {
        let Some(chunk) = stream.get(from..stream.len().min(from + size)).filter(|chunk| !chunk.is_empty())
        else {
            break;
        };
        cut.push(chunk);
        tail.push(chunk);
        from += size;
    }
    let mut whole_tail = Tail::default();
    whole_tail.push(stream);
    assert_eq!(tail.usage(), whole_tail.usage(), "the end of a body, however it is cut");
    let mut whole = Watcher::default();
    whole.push(stream);
    let longest = stream.split(|&c| c == b'\n').map(<[u8]>::len).max();
    if longest.is_none_or(|longest| longest <= SHORT_LINE) {
        assert_eq!(seen(&cut), seen(&whole), "a stream, however it is cut");
        assert_eq!(ends(&whole), naive(stream));
    }
}

fn seen(watcher: &Watcher) -> Seen {
    Seen {
        started: watcher.started,
        failed: watcher.failed,
        complete: watcher.complete,
        between_events: watcher.between_events(),
        usage: watcher.usage,
    }
}

fn ends(watcher: &Watcher) -> (bool, bool, bool) {
    (watcher.started, watcher.complete, watcher.between_events())
}

/// Started, complete, between two events: line by line, with everything at hand.
fn naive(stream: &[u8]) -> (bool, bool, bool) {
    let (mut started, mut complete, mut ending) = (false, false, false);
    let mut lines: Vec<&[u8]> = stream.split(|&c| c == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    let mut open = false;
    for line in lines {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        open = !line.is_empty();
        if line.is_empty() {
            ending = false;
        } else if let Some(data) = line.strip_prefix(b"data:") {
            started = true;
            complete |= ending || data.trim_ascii_start() == b"[DONE]";
        } else if let Some(name) = line.strip_prefix(b"event:") {
            let ends: [&[u8]; 3] = [b"message_stop", b"response.completed", b"response.incomplete"];
            ending = ends.contains(&name.trim_ascii());
        }
    }
    (started, complete, rest.is_empty() && !open)
}
