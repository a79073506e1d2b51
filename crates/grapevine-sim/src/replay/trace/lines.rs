//! From files to numbered lines, one at a time: a log may be larger than memory.
//!
//! Plain and gzip files are read as a stream. Archives, and xz, whose decoder keeps what it has
//! unpacked, are held in memory, up to [`MAX_UNPACKED_BYTES`] for a tar.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::TraceError;

const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";

/// Where a tar header says that it is one.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Enough of a file to tell a tar from lines.
const HEAD_BYTES: usize = 512;

/// Longest line: four times what any API accepts. Longer ones are skipped, not held.
const MAX_LINE_BYTES: usize = 64 << 20;

/// Largest tar, unpacked; larger ones can be replayed as a directory.
const MAX_UNPACKED_BYTES: usize = 1 << 30;

/// Bad lines that are remembered; all are counted.
const REMEMBERED: usize = 5;

/// Longest reason that is remembered.
const REASON_CHARS: usize = 160;

/// Where a line stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The file, if it is one of several.
    file: Option<&'a str>,
    line: usize,
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
    pub(super) fn note(&mut self, place: Place<'_>, reason: impl fmt::Display) {
        self.count += 1;
        if self.examples.len() < REMEMBERED {
            let file = place.file.map(|name| format!("{name}, ")).unwrap_or_default();
            let reason: String = reason.to_string().chars().take(REASON_CHARS).collect();
            self.examples.push(format!("{file}line {}: {reason}", place.line));
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

/// A line was longer than [`MAX_LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "longer than {} MiB", MAX_LINE_BYTES >> 20)
    }
}

/// Takes lines that are not blank, until it breaks.
pub(super) type Take<'a> = dyn FnMut(Place<'_>, Result<&[u8], TooLong>) -> ControlFlow<()> + 'a;

/// Gives `take` the lines of the file at `path`; of a directory, those of its files, by name.
pub(super) fn feed(path: &Path, take: &mut Take<'_>) -> Result<(), TraceError> {
    let read = |source| TraceError::Read { path: path.display().to_string(), source };
    let files = files(path).map_err(read)?;
    for (file, name) in &files {
        let mut splitter = Splitter::new(name.clone(), take);
        let fed = feed_file(file, &mut splitter);
        if splitter.enough {
            return Ok(());
        }
        fed.map_err(|failure| failure.of(file))?;
    }
    Ok(())
}

/// Gives `take` the lines of a text.
#[cfg(test)]
pub(super) fn each(text: &str, take: &mut Take<'_>) {
    let mut splitter = Splitter::new(None, take);
    let fed = splitter.write_all(text.as_bytes()).and_then(|()| splitter.end_of_file());
    assert!(fed.is_ok() || splitter.enough);
}

/// The files to read, with a name where there may be several.
fn files(path: &Path) -> io::Result<Vec<(PathBuf, Option<String>)>> {
    if !path.is_dir() {
        return Ok(vec![(path.to_owned(), None)]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let (path, name) = entry.map(|e| (e.path(), e.file_name().to_string_lossy().into_owned()))?;
        if path.is_file() && !name.starts_with('.') {
            files.push((path, Some(name)));
        }
    }
    files.sort();
    Ok(files)
}

enum Failure {
    Read(io::Error),
    Unpack(String),
}

impl Failure {
    fn of(self, path: &Path) -> TraceError {
        let path = path.display().to_string();
        match self {
            Self::Read(source) => TraceError::Read { path, source },
            Self::Unpack(reason) => TraceError::Unpack { path, reason },
        }
    }
}

fn feed_file(path: &Path, splitter: &mut Splitter<'_>) -> Result<(), Failure> {
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(Failure::Read)?);
    let head = file.fill_buf().map_err(Failure::Read)?;
    let (xz, gzip) = (head.starts_with(XZ_MAGIC), head.starts_with(GZIP_MAGIC));
    let mut unpacked = Unpacked { splitter, held: Vec::new(), form: Form::Unknown };
    if xz {
        let unpack = lzma_rs::xz_decompress(&mut file, &mut unpacked);
        unpack.map_err(|e| Failure::Unpack(format!("{e:?}")))?;
    } else if gzip {
        let unpack = io::copy(&mut flate2::bufread::MultiGzDecoder::new(file), &mut unpacked);
        unpack.map_err(|e| Failure::Unpack(e.to_string()))?;
    } else {
        io::copy(&mut file, &mut unpacked).map_err(Failure::Read)?;
    }
    unpacked.end().map_err(|e| Failure::Unpack(e.to_string()))
}

enum Form {
    Unknown,
    Lines,
    Tar,
}

/// What comes out of a file: lines, or a tar with files of lines.
struct Unpacked<'a, 'b> {
    splitter: &'a mut Splitter<'b>,
    held: Vec<u8>,
    form: Form,
}

impl Unpacked<'_, '_> {
    fn end(mut self) -> io::Result<()> {
        self.tell_form()?;
        match self.form {
            Form::Tar => untar(&self.held, self.splitter),
            _ => self.splitter.end_of_file(),
        }
    }

    fn tell_form(&mut self) -> io::Result<()> {
        if let Form::Unknown = self.form {
            let (at, magic) = TAR_MAGIC;
            let tar = self.held.get(at..).is_some_and(|rest| rest.starts_with(magic));
            self.form = if tar { Form::Tar } else { Form::Lines };
            if !tar {
                return self.splitter.write_all(&std::mem::take(&mut self.held));
            }
        }
        Ok(())
    }
}

impl Write for Unpacked<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Form::Lines = self.form {
            return self.splitter.write(bytes);
        }
        if self.held.len() + bytes.len() > MAX_UNPACKED_BYTES {
            let limit = MAX_UNPACKED_BYTES >> 20;
            return Err(io::Error::other(format!("more than {limit} MiB: unpack it into a directory")));
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() >= HEAD_BYTES {
            self.tell_form()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives the files of a tar in the order of their names: archives of the same files replay alike.
fn untar(bytes: &[u8], splitter: &mut Splitter<'_>) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(bytes).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            files.push((entry.path()?.display().to_string(), bytes));
        }
    }
    files.sort();
    for (name, bytes) in files {
        splitter.begin_file(Some(name));
        splitter.write_all(&bytes)?;
        splitter.end_of_file()?;
    }
    Ok(())
}

/// Cuts bytes into lines. Fails once its taker has had enough.
struct Splitter<'a> {
    file: Option<String>,
    line: usize,
    held: Vec<u8>,
    too_long: bool,
    enough: bool,
    take: &'a mut Take<'a>,
}

impl<'a> Splitter<'a> {
    fn new<'b: 'a>(file: Option<String>, take: &'a mut Take<'b>) -> Self {
        Self { file, line: 0, held: Vec::new(), too_long: false, enough: false, take }
    }

    fn begin_file(&mut self, name: Option<String>) {
        self.file = name;
        self.line = 0;
    }

    fn end_of_file(&mut self) -> io::Result<()> {
        let ended = self.held.is_empty() && !self.too_long;
        if ended { Ok(()) } else { self.end_of_line() }
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.too_long |= self.held.len() + bytes.len() > MAX_LINE_BYTES;
        if self.too_long {
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn end_of_line(&mut self) -> io::Result<()> {
        self.line += 1;
        let place = Place { file: self.file.as_deref(), line: self.line };
        let text = if self.too_long { Err(TooLong) } else { Ok(self.held.trim_ascii()) };
        let blank = text.is_ok_and(<[u8]>::is_empty);
        self.enough = !blank && (self.take)(place, text).is_break();
        self.held.clear();
        self.too_long = false;
        if self.enough { Err(io::Error::other("enough")) } else { Ok(()) }
    }
}

impl Write for Splitter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = bytes.split(|&byte| byte == b'\n');
        self.hold(parts.next().unwrap_or_default());
        for part in parts {
            self.end_of_line()?;
            self.hold(part);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line as a JSON object.
pub(super) fn object(line: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(line) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("not a JSON object".to_owned()),
        Err(e) => Err(format!("not JSON: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]], most: usize) -> Vec<(usize, Result<usize, TooLong>)> {
        let mut lines = Vec::new();
        let mut take = |place: Place<'_>, text: Result<&[u8], TooLong>| {
            lines.push((place.line, text.map(<[u8]>::len)));
            if lines.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let mut splitter = Splitter::new(None, &mut take);
        let fed = chunks.iter().try_for_each(|chunk| splitter.write_all(chunk));
        assert_eq!(fed.and_then(|()| splitter.end_of_file()).is_err(), splitter.enough);
        lines
    }

    #[test]
    fn lines_are_numbered_blank_ones_too_and_may_come_in_pieces() {
        let lines = split(&[b"a", b"b\n\n  \ncd", b"e\r\nf"], 9);
        assert_eq!(lines, [(1, Ok(2)), (4, Ok(3)), (5, Ok(1))]);
        assert_eq!(split(&[b"a\nb\nc\n"], 2).len(), 2);
        assert_eq!(split(&[b"", b"\n"], 2), []);
    }

    #[test]
    fn a_line_without_end_is_not_held() {
        let chunk = vec![b'x'; 1 << 20];
        let mut chunks: Vec<&[u8]> = vec![&chunk; 65];
        chunks.push(b"\nshort");
        assert_eq!(split(&chunks, 9), [(1, Err(TooLong)), (2, Ok(5))]);
    }
}
