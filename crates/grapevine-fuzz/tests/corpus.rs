//! Every target over its corpus, and over inputs made from it: the same ones each time.
//!
//! `FUZZ_INPUTS` makes more of them, `FUZZ_SEED` others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::{env, fs};

use grapevine_fuzz::TARGETS;
use grapevine_fuzz::mutate::Mutator;

/// Inputs made for each target, unless told otherwise: some seconds without optimisation.
const INPUTS: u64 = 3_000;

/// Largest file of a corpus: it is committed.
const MAX_FILE_BYTES: usize = 16 * 1024;

/// Files of a corpus, at most.
const MAX_FILES: usize = 100;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus").join(target)
}

/// In the order of their names.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder(target)).unwrap().map(|file| file.unwrap().path());
    let mut corpus: Vec<_> = files
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    corpus.sort_unstable();
    corpus
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Says which input it was when a target panics, and keeps it.
struct Running<'a> {
    target: &'a str,
    input: &'a [u8],
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = env::temp_dir().join(format!("grapevine-fuzz-{}", self.target));
            let kept = fs::write(&path, self.input);
            eprintln!("{} failed on {:?}\nkept in {}: {kept:?}", self.target, self.input, path.display());
        }
    }
}

fn run(name: &str) {
    let (_, target) = TARGETS.into_iter().find(|(other, _)| *other == name).unwrap();
    let corpus = corpus(name);
    assert!((1..=MAX_FILES).contains(&corpus.len()), "{name} has {} files", corpus.len());
    for (file, input) in &corpus {
        assert!(input.len() <= MAX_FILE_BYTES, "{name}/{file} is too large");
        let _running = Running { target: name, input };
        target(input);
    }
    let inputs: Vec<_> = corpus.into_iter().map(|(_, input)| input).collect();
    let mut mutator = Mutator::new(number("FUZZ_SEED", 1));
    for _ in 0..number("FUZZ_INPUTS", INPUTS) {
        let input = mutator.input(&inputs);
        let _running = Running { target: name, input: &input };
        target(&input);
    }
}

#[test]
fn prefix_key() {
    run("prefix_key");
}

#[test]
fn event_stream() {
    run("event_stream");
}

#[test]
fn mesh_codec() {
    run("mesh_codec");
}

#[test]
fn tree() {
    run("tree");
}

#[test]
fn configuration() {
    run("configuration");
}

#[test]
fn engine_metrics() {
    run("engine_metrics");
}

#[test]
fn gossip_datagrams() {
    run("gossip_datagrams");
}

#[test]
fn every_target_has_a_wrapper_and_a_corpus() {
    let fuzz = folder("").join("..");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    let mut wrappers: Vec<_> = fs::read_dir(fuzz.join("fuzz_targets")).unwrap().collect();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
        let wrapper = fs::read_to_string(fuzz.join("fuzz_targets").join(format!("{name}.rs"))).unwrap();
        assert!(wrapper.contains(&format!("grapevine_fuzz::{name}(data)")), "{name}");
        wrappers.pop();
    }
    assert!(wrappers.is_empty());
}
