//! What routers publish and ask: decoded or refused, never misread, and harmless to a tree.

use std::fmt::Debug;

use grapevine_mesh::carrier::{Meta, from_text, reachable_url};
use grapevine_mesh::codec::{
    CodecError, WIRE_VERSION, decode_ask, decode_head, decode_page, decode_pointer, decode_seen,
    decode_segment, decode_segments, decode_vitals, decode_word, encode_ask, encode_head, encode_page,
    encode_pointer, encode_seen, encode_segment, encode_segments, encode_vitals, encode_word, is_valid,
};
use grapevine_tree::boundary::SCHEME;
use grapevine_tree::{PrefixTree, RouterId, TreeConfig};

use crate::input::Input;

/// Kinds of values, as they stand in a header.
const KINDS: [u8; 9] = [0, 1, 2, 3, 4, 5, 6, 7, 10];

/// Boundaries of the tree that takes what was decoded.
const LIMIT: usize = 64;

/// The first byte chooses a kind, the second whether its header is given or made; the rest is the value.
pub fn mesh_codec(data: &[u8]) {
    let mut input = Input::new(data);
    let (kind, raw) = (input.below(KINDS.len() + 1), input.byte() & 1 == 1);
    let body = input.rest();
    let [low, high] = SCHEME.to_le_bytes();
    let made = [&[WIRE_VERSION, KINDS.get(kind).copied().unwrap_or_default(), low, high], body].concat();
    let bytes = if raw { body } else { made.as_slice() };
    match kind {
        0 => segment(bytes),
        1 => survives(bytes, decode_vitals, encode_vitals),
        2 => survives(bytes, decode_pointer, encode_pointer),
        3 => survives(bytes, decode_seen, encode_seen),
        4 => survives(bytes, decode_ask, encode_ask),
        5 => survives(bytes, decode_segments, encode_segments),
        6 => snapshot(body),
        7 => survives(bytes, decode_page, encode_page),
        8 => survives(bytes, decode_word, encode_word),
        _ => texts(&String::from_utf8_lossy(body)),
    }
}

/// What was decoded says the same when it is encoded again, in no more bytes.
fn survives<T: Debug + PartialEq>(
    bytes: &[u8],
    decode: fn(&[u8]) -> Result<T, CodecError>,
    encode: fn(&T) -> Vec<u8>,
) {
    let Ok(value) = decode(bytes) else { return };
    let again = encode(&value);
    assert!(again.len() <= bytes.len(), "{} bytes became {}", bytes.len(), again.len());
    assert_eq!(decode(&again), Ok(value));
}

fn segment(bytes: &[u8]) {
    survives(bytes, decode_segment, encode_segment);
    let Ok(segment) = decode_segment(bytes) else { return };
    let mut tree = small_tree();
    for entry in &segment.entries {
        assert!(is_valid(entry));
        tree.apply(RouterId(1), entry, 0);
        assert!(tree.stats().boundaries <= LIMIT);
    }
    tree.check();
}

/// A head, and the pages that its first bytes say how long it is from.
fn snapshot(body: &[u8]) {
    let mut input = Input::new(body);
    let head_bytes = input.byte();
    let header = |kind: u8, body: &[u8]| [&[WIRE_VERSION, kind], &SCHEME.to_le_bytes()[..], body].concat();
    let head = header(6, input.take(usize::from(head_bytes)));
    survives(&head, decode_head, encode_head);
    let mut tree = small_tree();
    let dates = tree.adopt(&decode_head(&head).map(|head| head.histories).unwrap_or_default());
    let page = decode_page(&header(7, input.rest())).unwrap_or_default();
    for (now, node) in (0..).zip(&page.nodes) {
        tree.restore(RouterId(1), node, &dates, now);
        assert!(tree.stats().boundaries <= LIMIT);
    }
    tree.check();
    let told = tree.snapshot(0, usize::MAX, 1_000);
    let histories = tree.histories();
    let mut other = small_tree();
    let dates = other.adopt(&histories);
    told.nodes.iter().for_each(|node| other.restore(RouterId(2), node, &dates, 1_000));
    other.check();
}

/// What stands as text in chitchat: values, and what a router says of itself.
fn texts(text: &str) {
    if let Some(bytes) = from_text(text) {
        assert!(bytes.len() <= text.len());
    }
    if let Some(meta) = Meta::parse(text) {
        assert_eq!(Meta::parse(&meta.to_text()), Some(meta), "{text}");
    }
    let _ = reachable_url(text, [10, 0, 0, 1].into());
}

fn small_tree() -> PrefixTree {
    PrefixTree::new(TreeConfig { max_boundaries: LIMIT, ..TreeConfig::default() })
}
