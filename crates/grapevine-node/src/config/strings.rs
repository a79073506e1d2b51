//! Where settings come from: the process environment, or a map in tests.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// Largest file that a `_FILE` setting may name, bytes. A secret has at most 4 KiB.
const MAX_FILE: u64 = 64 * 1024;

/// The variable is set, but not to valid UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUnicode;

/// Named strings, as a process is started with.
pub trait Strings {
    /// The value of `name`, `None` when it is not set.
    fn get(&self, name: &str) -> Result<Option<String>, NotUnicode>;

    /// All names that are set.
    fn names(&self) -> Vec<String>;

    /// The text of the file at `path`.
    fn read(&self, path: &str) -> io::Result<String> {
        let mut text = String::new();
        let size = std::fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
        if size as u64 > MAX_FILE {
            return Err(io::Error::other("larger than 64KiB"));
        }
        Ok(text)
    }

    /// The name of this machine; in a container or pod, its own.
    fn host_name(&self) -> String {
        hostname::get().map_or_else(|_| "localhost".to_owned(), |name| name.to_string_lossy().into_owned())
    }
}

/// The environment of this process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessEnv;

impl Strings for ProcessEnv {
    fn get(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        std::env::var_os(name).map(|value| value.into_string().map_err(|_| NotUnicode)).transpose()
    }

    fn names(&self) -> Vec<String> {
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
    }
}

impl Strings for BTreeMap<String, String> {
    fn get(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        Ok(BTreeMap::get(self, name).cloned())
    }

    fn names(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}
