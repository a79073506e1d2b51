//! Dependencies' licences against deny.toml, without cargo-deny: it takes long to build.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::root;

/// Licences that deny.toml allows.
fn allowed() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("deny.toml")).unwrap();
    let list = text.split("[licenses]").nth(1).unwrap().split("allow = [").nth(1).unwrap();
    let list = list.split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with `allowed`. An old form writes `/` for OR.
fn met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = expression.split_whitespace().collect();
    any_of(&mut words.iter().copied().peekable(), allowed)
}

type Words<'a> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'a, &'a str>>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        met |= all_of(words, allowed);
    }
    met
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed);
    }
    met
}

fn one(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => {
            let met = any_of(words, allowed);
            assert_eq!(words.next(), Some(")"));
            met
        }
        Some(name) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().unwrap();
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        Some(name) => allowed.contains(name),
        None => false,
    }
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    let metadata = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--all-features", "--format-version", "1", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .current_dir(root())
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let used: BTreeSet<&str> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].as_str().unwrap())
        .collect();
    let (allowed, mut problems) = (allowed(), Vec::new());
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("none");
        if used.contains(package["id"].as_str().unwrap()) && !met(licence, &allowed) {
            problems.push(format!("{} {}: {licence}", package["name"], package["version"]));
        }
    }
    assert!(used.len() > 100, "the graph is read");
    assert!(problems.is_empty(), "not in deny.toml:\n{}", problems.join("\n"));
}

#[test]
fn expressions_are_met_by_their_parts() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0"].map(str::to_owned));
    for good in ["MIT", "MIT/GPL-3.0", "(MIT OR GPL-3.0) AND ISC", "Apache-2.0 WITH LLVM-exception OR MIT"] {
        assert!(met(good, &allowed), "{good}");
    }
    for bad in
        ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH LLVM-exception", "(GPL-3.0) OR (X AND MIT)", ""]
    {
        assert!(!met(bad, &allowed), "{bad}");
    }
}
