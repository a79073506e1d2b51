//! What happened, in order, as a digest: two runs are the same run if and only if theirs are equal.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::sync::Mutex;

use xxhash_rust::xxh3::Xxh3;

use crate::replay::engine::Micros;

/// A log of events that is hashed, and written only if somebody wants to read it.
pub(super) struct Journal {
    inner: Mutex<Inner>,
}

struct Inner {
    digest: Xxh3,
    events: u64,
    line: String,
    file: Option<BufWriter<File>>,
}

impl Journal {
    /// An empty journal; its lines also go to `file`.
    pub(super) fn new(file: Option<&Path>) -> std::io::Result<Self> {
        let file = file.map(File::create).transpose()?.map(BufWriter::new);
        let inner = Inner { digest: Xxh3::new(), events: 0, line: String::new(), file };
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Notes one event.
    pub(super) fn note(&self, at: Micros, what: fmt::Arguments<'_>) {
        let Ok(mut inner) = self.inner.lock() else { return };
        let Inner { digest, events, line, file } = &mut *inner;
        line.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{at} {what}");
        digest.update(line.as_bytes());
        *events += 1;
        if let Some(file) = file {
            // A log that cannot be written must not change the run.
            let _ = file.write_all(line.as_bytes());
        }
    }

    /// Digest of everything so far, and how many events that is.
    pub(super) fn digest(&self) -> (String, u64) {
        let Ok(mut inner) = self.inner.lock() else { return (String::new(), 0) };
        if let Some(file) = &mut inner.file {
            let _ = file.flush();
        }
        (format!("{:032x}", inner.digest.digest128()), inner.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(events: &[(Micros, u32)]) -> String {
        let journal = Journal::new(None).unwrap();
        events.iter().for_each(|(at, what)| journal.note(*at, format_args!("pick {what}")));
        journal.digest().0
    }

    #[test]
    fn order_time_and_content_count() {
        let base = digest(&[(1, 7), (2, 8)]);
        assert_eq!(base, digest(&[(1, 7), (2, 8)]));
        for other in [&[(2, 8), (1, 7)][..], &[(1, 7), (3, 8)], &[(1, 7), (2, 9)], &[(1, 7)]] {
            assert_ne!(base, digest(other));
        }
    }
}
