//! From a file to numbered lines.

use std::fmt;
use std::io::{Cursor, Read};
use std::path::Path;

use serde_json::{Map, Value};

use super::TraceError;

const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

/// Where a tar header says that it is one.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Bad lines that are remembered word for word; all are counted.
const REMEMBERED: usize = 5;

/// One text file.
#[derive(Debug)]
pub(super) struct Source {
    /// Its name, if it is one of several.
    pub(super) name: Option<String>,
    bytes: Vec<u8>,
}

impl Source {
    #[cfg(test)]
    pub(super) fn of(text: &str) -> Self {
        Self { name: None, bytes: text.as_bytes().to_vec() }
    }

    /// Lines that are not blank, with their numbers from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.bytes.split(|&byte| byte == b'\n').zip(1..);
        lines.filter(|(line, _)| !line.trim_ascii().is_empty()).map(|(line, number)| (number, line))
    }
}

/// Lines that could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rejected {
    /// How many.
    pub count: u64,
    /// What was wrong with the first few, with file and line number.
    pub examples: Vec<String>,
}

impl Rejected {
    pub(super) fn note(&mut self, source: &Source, line: usize, reason: impl fmt::Display) {
        self.count += 1;
        if self.examples.len() < REMEMBERED {
            let file = source.name.as_ref().map(|name| format!("{name}, ")).unwrap_or_default();
            self.examples.push(format!("{file}line {line}: {reason}"));
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bad lines", self.count)?;
        for example in &self.examples {
            write!(f, "; {example}")?;
        }
        Ok(())
    }
}

/// The text files in the file at `path`, unpacked.
pub(super) fn sources(path: &Path) -> Result<Vec<Source>, TraceError> {
    let name = path.display().to_string();
    let read = std::fs::read(path).map_err(|source| TraceError::Read { path: name.clone(), source })?;
    let unpack = |reason: String| TraceError::Unpack { path: name.clone(), reason };
    let bytes = match read.starts_with(XZ_MAGIC) {
        true => unxz(&read).map_err(unpack)?,
        false => read,
    };
    let (at, magic) = TAR_MAGIC;
    if bytes.get(at..).is_some_and(|rest| rest.starts_with(magic)) {
        return untar(&bytes).map_err(|e| unpack(e.to_string()));
    }
    Ok(vec![Source { name: None, bytes }])
}

fn unxz(packed: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    lzma_rs::xz_decompress(&mut Cursor::new(packed), &mut bytes).map_err(|e| format!("{e:?}"))?;
    Ok(bytes)
}

/// The files of a tar, in the order of their names: archives of the same files replay alike.
fn untar(bytes: &[u8]) -> std::io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = Some(entry.path()?.display().to_string());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        sources.push(Source { name, bytes });
    }
    sources.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sources)
}

/// A line as a JSON object.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(e) => Err(format!("not JSON: {e}")),
    }
}
