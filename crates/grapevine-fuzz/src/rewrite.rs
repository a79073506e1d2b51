//! JSON as another client might have written it: members in another order, other white space, escapes where
//! none are needed.

use grapevine_tree::json::{Kind, Value};
use xxhash_rust::xxh3::xxh3_64;

/// Below these names the order of members counts: templates print what is there as it stands.
const PRINTED: [&[u8]; 10] = [
    b"name",
    b"description",
    b"parameters",
    b"input_schema",
    b"arguments",
    b"input",
    b"reasoning",
    b"reasoning_content",
    b"thinking",
    b"tools",
];

/// Writes one body; the same one always in the same way.
pub(crate) struct Rewriter {
    state: u64,
    out: Vec<u8>,
}

impl Rewriter {
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { state: xxh3_64(body), out: Vec::new() }
    }

    pub(crate) fn write(mut self, root: Value<'_>) -> Vec<u8> {
        self.value(root, false);
        self.space();
        self.out
    }

    fn value(&mut self, value: Value<'_>, keep_order: bool) {
        self.space();
        match value.kind() {
            Kind::Scalar => self.out.extend_from_slice(value.raw()),
            Kind::String => self.string(&value.text()),
            Kind::Array => {
                self.out.push(b'[');
                for (i, item) in value.items().enumerate() {
                    self.comma(i);
                    self.value(item, keep_order);
                }
                self.space();
                self.out.push(b']');
            }
            Kind::Object => self.object(value, keep_order),
        }
    }

    fn object(&mut self, value: Value<'_>, keep_order: bool) {
        let mut members: Vec<_> = value.members().collect();
        let mut names: Vec<_> = members.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        // Of equal names the last one counts.
        if !keep_order && names.is_sorted_by(|a, b| a < b) {
            (1..members.len()).for_each(|i| members.swap(i, self.below(i as u64 + 1) as usize));
        }
        self.out.push(b'{');
        for (i, (name, value)) in members.into_iter().enumerate() {
            self.comma(i);
            self.space();
            self.string(&name);
            self.space();
            self.out.push(b':');
            self.value(value, keep_order || PRINTED.contains(&&*name));
        }
        self.space();
        self.out.push(b'}');
    }

    fn comma(&mut self, before: usize) {
        if before > 0 {
            self.space();
            self.out.push(b',');
        }
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for &byte in text {
            match byte {
                b' '..=b'~' if self.below(6) == 0 => self.out.extend(format!("\\u{byte:04X}").into_bytes()),
                b'"' | b'\\' => self.out.extend([b'\\', byte]),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                0..b' ' => self.out.extend(format!("\\u{byte:04x}").into_bytes()),
                byte => self.out.push(byte),
            }
        }
        self.out.push(b'"');
    }

    fn space(&mut self) {
        for _ in 0..self.below(3) {
            let at = self.below(4) as usize;
            self.out.push(b" \n\t\r"[at]);
        }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % n
    }
}
