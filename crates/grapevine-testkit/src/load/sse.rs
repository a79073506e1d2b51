//! Server-sent events: just enough to count and read `data:` lines.

/// Longest line that is waited for.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Cuts a stream of bytes into the data of its events.
#[derive(Debug, Default)]
pub(crate) struct Events {
    rest: Vec<u8>,
}

impl Events {
    /// The data lines that `chunk` completes. Comments and other fields are left out.
    pub(crate) fn push(&mut self, chunk: &[u8]) -> Result<Vec<String>, &'static str> {
        self.rest.extend_from_slice(chunk);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return if self.rest.len() > MAX_LINE_BYTES { Err("event too large") } else { Ok(Vec::new()) };
        };
        let tail = self.rest.split_off(end + 1);
        let lines = std::mem::replace(&mut self.rest, tail);
        Ok(lines.split(|byte| *byte == b'\n').filter_map(data_of).collect())
    }
}

fn data_of(line: &[u8]) -> Option<String> {
    let data = line.strip_prefix(b"data:")?;
    let data = data.strip_prefix(b" ").unwrap_or(data);
    let data = data.strip_suffix(b"\r").unwrap_or(data);
    Some(String::from_utf8_lossy(data).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_however_the_bytes_arrive() {
        let stream =
            ": keep-alive\n\ndata: {\"a\":1}\n\nevent: x\ndata:two\r\n\r\ndata: [DONE]\n\n".as_bytes();
        let expected = ["{\"a\":1}", "two", "[DONE]"];
        for size in 1..stream.len() {
            let mut events = Events::default();
            let got: Vec<String> = stream.chunks(size).flat_map(|c| events.push(c).unwrap()).collect();
            assert_eq!(got, expected, "in pieces of {size}");
        }
    }
}
