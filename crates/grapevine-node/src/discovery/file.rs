//! Replicas from a file: YAML or JSON, told apart by their content, and watched.
//!
//! ```yaml
//! replicas:
//!   - http://10.0.0.1:8000
//!   - url: http://10.0.0.2:8000
//!     name: gpu-2
//!     weight: 2
//!     models: [llama-3-70b, llama-3-70b-sql]
//!     kind: vllm
//!     key: sk-engine-2
//! ```
//!
//! A list alone is as good. Replaced by a good file, that counts at once; replaced by a bad one, the old
//! set stays and the log says why and where.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::Feed;
use super::entry::Entry;
use crate::config::ReplicaSpec;
use crate::watch::FileChanges;

/// Time between two looks at the file.
const LOOK: Duration = Duration::from_secs(1);

/// Largest file that is read, bytes: a thousand replicas with a hundred adapters each.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Longest part of a reader's own words that is shown, bytes: they may repeat what the file holds.
const MAX_WORDS: usize = 200;

type Found = Result<Vec<ReplicaSpec>, String>;

/// Follows the file for ever.
pub(crate) async fn follow(path: PathBuf, feed: Feed) {
    let mut changes = FileChanges::of(&[&path], LOOK).await;
    // What changed between the first reading and now is no change to the watch.
    let mut last = look(&path).await;
    feed.found(last.clone().into()).await;
    loop {
        changes.next().await;
        let finding = look(&path).await;
        report(&path, &finding, &last);
        last.clone_from(&finding);
        feed.found(finding.into()).await;
    }
}

fn report(path: &Path, finding: &Found, last: &Found) {
    let path = path.display();
    match finding {
        Ok(replicas) => tracing::info!(%path, replicas = replicas.len(), "replicas read again"),
        Err(_) if finding == last => {}
        Err(problem) => tracing::error!(%path, problem, "replicas not taken over: the old ones stay"),
    }
}

async fn look(path: &Path) -> Found {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read(&path)).await;
    read.unwrap_or_else(|_| Err("cannot be read".to_owned()))
}

/// Reads the replicas of a file; the problem does not name it.
pub(crate) fn read(path: &Path) -> Found {
    let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
    if std::fs::metadata(path).map_err(unreadable)?.len() > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes"));
    }
    parse(&std::fs::read_to_string(path).map_err(unreadable)?)
}

/// The replicas in the text of a file, each URL once, or what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<ReplicaSpec>, String> {
    let entries = match document(text)? {
        Value::Array(entries) => entries,
        Value::Object(mut fields) => match (fields.remove("replicas"), fields.keys().next()) {
            (Some(Value::Array(entries)), None) => entries,
            (_, Some(other)) => return Err(format!("`{other}` is not known: only `replicas` is")),
            _ => return Err(SHAPE.to_owned()),
        },
        _ => return Err(SHAPE.to_owned()),
    };
    let mut specs: Vec<ReplicaSpec> = Vec::with_capacity(entries.len());
    let mut urls = HashSet::with_capacity(entries.len());
    for (i, entry) in entries.into_iter().enumerate() {
        let wrong = |problem: String| format!("{}: {problem}", place_of(text, i, &entry));
        let read = Entry::deserialize(&entry).map_err(|_| wrong(ENTRY.to_owned()))?;
        let spec = read.spec().map_err(wrong)?;
        if !urls.insert(spec.url.clone()) {
            return Err(wrong(format!("{} is listed twice", spec.url)));
        }
        specs.push(spec);
    }
    Ok(specs)
}

const SHAPE: &str = "is not a list of replicas, nor `replicas:` with one; `[]` is none";
const ENTRY: &str = "is not a URL, nor a `url` with `name`, `weight`, `models`, `kind` or `key`";

/// Reads JSON or YAML. JSON is told by how it begins; YAML would take most of it too, with worse errors.
fn document(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|error| brief(&format!("is not JSON: {error}")));
    }
    serde_saphyr::from_str(text).map_err(|error| {
        let line = error.location().map_or_else(String::new, |at| format!(" (line {})", at.line()));
        brief(&format!("is not YAML{line}: {}", error.without_snippet()))
    })
}

/// One line, not too long.
fn brief(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default();
    line.chars().take(MAX_WORDS).collect()
}

/// Where an entry is, for people: its number, and its line if its URL tells.
fn place_of(text: &str, index: usize, entry: &Value) -> String {
    let url = entry.as_str().or_else(|| entry.get("url")?.as_str()).filter(|url| !url.is_empty());
    let before = url.and_then(|url| Some(text.split_once(url)?.0));
    match before {
        Some(before) => format!("line {}, replica {}", before.matches('\n').count() + 1, index + 1),
        None => format!("replica {}", index + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(text: &str) -> Result<Vec<String>, String> {
        Ok(parse(text)?.into_iter().map(|spec| spec.url).collect())
    }

    #[test]
    fn yaml_and_json_say_the_same() {
        let expected = Ok(vec!["http://10.0.0.1:8000".to_owned(), "http://10.0.0.2:8000".to_owned()]);
        for text in [
            "replicas:\n  - http://10.0.0.1:8000\n  - url: http://10.0.0.2:8000 # the other\n    weight: 2\n",
            "- http://10.0.0.1:8000\n- http://10.0.0.2:8000\n",
            "---\nreplicas: [\"http://10.0.0.1:8000\", {url: \"http://10.0.0.2:8000\"}]\n",
            r#"{"replicas":["http://10.0.0.1:8000",{"url":"http://10.0.0.2:8000","kind":"vllm"}]}"#,
            "\n\t[\n\t\"http://10.0.0.1:8000\",\n\t\"http://10.0.0.2:8000\"]",
        ] {
            assert_eq!(urls(text), expected, "{text}");
        }
        for none in ["[]", "replicas: []", r#"{"replicas":[]}"#] {
            assert_eq!(urls(none), Ok(Vec::new()), "{none}");
        }
    }

    #[test]
    fn a_bad_file_says_what_and_where() {
        for (text, problem) in [
            ("", "is not"),
            ("replicas:", SHAPE),
            ("replicas: 7", SHAPE),
            ("hosts: []\nreplicas: []", "`hosts` is not known"),
            ("{\"replicas\": [\n\"http://a:1\",\n]}", "line 3"),
            ("replicas:\n  - http://a:1\n  - ]\n", "line 3"),
            (
                "- http://a:1\n- url: http://b:1\n  weigth: 2\n",
                "line 2, replica 2: is not a URL, nor a `url`",
            ),
            ("- http://a:1\n- http://a:1/\n", "replica 2: http://a:1 is listed twice"),
            ("- http://a:1\n- a:8000\n", "line 2, replica 2: `a:8000` has no scheme"),
            ("- {weight: 1}", "replica 1: is not a URL"),
        ] {
            let error = urls(text).expect_err(text);
            assert!(error.contains(problem), "{text}: {error}");
            assert!(error.len() <= 2 * MAX_WORDS && !error.contains('\n'), "{error}");
        }
    }
}
