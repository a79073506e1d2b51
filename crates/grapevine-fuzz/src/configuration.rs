//! Settings, the file of replicas and the file of clients' keys: a good one or a list of mistakes, and secrets
//! in neither.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use grapevine_node::auth::keys::KeyRing;
use grapevine_node::config::{Config, NotUnicode, Setting, Strings, effective, sections};
use grapevine_node::discovery::parse_replicas;

use crate::input::Input;

/// What a secret looks like that must not show: long enough not to be part of other words.
const SECRET_BYTES: usize = 16;

/// The first byte chooses what the rest is.
pub fn configuration(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => replicas(&String::from_utf8_lossy(input.rest())),
        1 => keys(&String::from_utf8_lossy(input.rest())),
        _ => environment(&mut input),
    }
}

fn replicas(text: &str) {
    match parse_replicas(text) {
        Ok(replicas) => {
            let urls: BTreeSet<&str> = replicas.iter().map(|replica| replica.url.as_str()).collect();
            assert_eq!(urls.len(), replicas.len(), "each replica once");
        }
        Err(problem) => assert!(!problem.is_empty() && problem.len() < 4_096, "{problem}"),
    }
}

fn keys(text: &str) {
    let Ok(keys) = KeyRing::parse(text, &KeyRing::default()) else { return };
    assert!(keys.len() <= text.lines().count());
    let again = KeyRing::parse(text, &keys).expect("the same file can be read again");
    assert_eq!(keys.len(), again.len());
}

/// An environment without a process.
struct Env(BTreeMap<String, String>);

impl Strings for Env {
    fn get(&self, name: &str) -> Result<Option<String>, NotUnicode> {
        Ok(self.0.get(name).cloned())
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn read(&self, path: &str) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn host_name(&self) -> String {
        "a-host".to_owned()
    }
}

fn environment(input: &mut Input<'_>) {
    let settings: Vec<&Setting> = sections().iter().flat_map(|section| &section.settings).collect();
    let mut env = Env(BTreeMap::new());
    let mut secrets = Vec::new();
    for line in input.rest().split(|&c| c == b'\n') {
        let Some((name, value, secret)) = variable(line, &settings) else { continue };
        if secret && value.trim().len() >= SECRET_BYTES {
            secrets.push(value.trim().to_owned());
        }
        env.0.insert(name, value);
    }
    let shown = match Config::from_env(&env) {
        Ok(config) => {
            let rows = effective(&config, &env);
            rows.iter().map(|row| row.value.as_str()).collect::<Vec<_>>().join("\n")
        }
        Err(mistakes) => {
            assert!(!mistakes.0.is_empty() && mistakes.0.iter().all(|it| !it.problem.is_empty()));
            mistakes.to_string()
        }
    };
    let given_openly = |secret: &String| env.0.values().filter(|value| value.contains(secret)).count() > 1;
    secrets.retain(|secret| !given_openly(secret));
    assert!(!secrets.iter().any(|secret| shown.contains(secret)), "a secret shows in: {shown}");
}

/// `NAME=value`, or a byte that stands for one of the settings, and its value.
fn variable(line: &[u8], settings: &[&Setting]) -> Option<(String, String, bool)> {
    let text = String::from_utf8_lossy(line);
    if let Some((name, value)) = text.split_once('=') {
        let secret = settings.iter().any(|setting| setting.secret && setting.name == name);
        return Some((name.to_owned(), value.to_owned(), secret));
    }
    let (&at, value) = line.split_first()?;
    let setting = settings.get(usize::from(at) % settings.len())?;
    Some((setting.name.to_owned(), String::from_utf8_lossy(value).into_owned(), setting.secret))
}
