//! Inputs that resemble given ones: enough to find what is near, without counting coverage.

/// Longest input that is made, in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Changes to one input, at most.
const MAX_CHANGES: u64 = 6;

/// Bytes at which parsers take another turn.
const TOKENS: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\xff\xff\xff\xff",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud800",
    b"{",
    b"}",
    b"[",
    b"]",
    b"{}",
    b":",
    b",",
    b"\n",
    b"\r\n",
    b"\n\n",
    b"=",
    b"null",
    b"-1",
    b"1e308",
    b"18446744073709551615",
    b"data:",
    b"NaN",
];

/// A seeded source of inputs (xorshift).
#[derive(Clone, Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// One seed, one sequence of inputs.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// An input made from those of `corpus`.
    pub fn input(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.one_of(corpus).cloned().unwrap_or_default();
        for _ in 0..=self.below(MAX_CHANGES) {
            self.change(&mut bytes, corpus);
        }
        bytes.truncate(MAX_BYTES);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(bytes.len() as u64 + 1) as usize;
        match self.below(7) {
            0 => self.flip(bytes, at),
            1 => _ = bytes.drain(at..self.end(bytes, at)),
            2 => _ = bytes.splice(at..at, bytes.get(at..self.end(bytes, at)).unwrap_or_default().to_vec()),
            3 | 4 => {
                let token = self.one_of(&TOKENS).copied().unwrap_or_default();
                let until = if self.below(2) == 0 { at } else { (at + token.len()).min(bytes.len()) };
                bytes.splice(at..until, token.iter().copied());
            }
            5 => self.random(bytes, at),
            _ => {
                let other = self.one_of(corpus).map_or(&[][..], Vec::as_slice);
                let from = self.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(other.get(from..).unwrap_or_default());
            }
        }
    }

    fn flip(&mut self, bytes: &mut [u8], at: usize) {
        let bit = self.below(8);
        bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
    }

    fn random(&mut self, bytes: &mut [u8], at: usize) {
        let value = self.next() as u8;
        bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
    }

    /// Where a piece that begins at `at` may end.
    fn end(&mut self, bytes: &[u8], at: usize) -> usize {
        at + self.below((bytes.len() - at).min(64) as u64 + 1) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
