//! Where a prompt is cut, and the chained hash at every cut.
//!
//! Scheme 2: every 128 B up to 2 KiB, then eight cuts for each doubling (a step is at most 1/8 of
//! the depth) up to 4 MiB. 104 boundaries in all; a 16 KiB prompt has 40, one of 128 KiB has 64.
//! The hash at a boundary is XXH3-64 of the bytes since the boundary before, seeded with the hash
//! there, so equal hashes mean equal everything before. The first seed is the fleet's key mixed
//! with the request's namespace (model, salt). Same bytes, same hash, on every machine and version
//! that speaks the scheme; golden vectors in the tests hold it.

use twox_hash::XxHash3_64;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of this way of cutting and hashing. Travels with every gossiped segment; a router
/// ignores what was made by another scheme.
pub const SCHEME: u16 = 2;

/// Finest cut, in bytes: about 32 tokens. On real agent traffic 64-256 B cost at most 1.2 points of
/// hit rate, 1 KiB costs 4.
pub const STEP: usize = 128;

const FINE: usize = 16;
const PER_DOUBLING: usize = 8;
const DOUBLINGS: usize = 11;

/// Boundaries of the longest prompt.
pub const MAX_BOUNDARIES: usize = FINE + PER_DOUBLING * DOUBLINGS;

/// Bytes of a prompt that are looked at: 4 MiB, about a million tokens. Where the limit was 512 KiB, a
/// quarter of the prompts of real coding sessions were longer, and 8 points of hit rate were lost.
pub const MAX_BYTES: usize = depth(MAX_BOUNDARIES - 1);

/// Bytes before boundary `index` (0-based).
pub const fn depth(index: usize) -> usize {
    if index < FINE {
        return (index + 1) * STEP;
    }
    let doubling = (index - FINE) / PER_DOUBLING;
    let within = (index - FINE) % PER_DOUBLING + 1;
    let base = (FINE * STEP) << doubling;
    base + within * (base / PER_DOUBLING)
}

/// Boundaries within the first `bytes` of a prompt.
pub const fn count(bytes: usize) -> usize {
    let mut index = 0;
    while index < MAX_BOUNDARIES && depth(index) <= bytes {
        index += 1;
    }
    index
}

/// Appends the hash of each boundary within `text` to `out`.
pub fn hash_into(seed: u64, text: &[u8], out: &mut Vec<u64>) {
    let mut chain = Chain::default();
    chain.begin(seed);
    chain.take(text);
    out.extend_from_slice(chain.hashes());
}

/// The hashes of a text of which a part is there at a time. Keeps its memory between texts.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    seed: u64,
    hashes: Vec<u64>,
}

impl Chain {
    /// Forgets the text before; the next one's first hash is seeded with `seed`.
    pub fn begin(&mut self, seed: u64) {
        self.seed = seed;
        self.hashes.clear();
    }

    /// Hashes what of `text` reaches a boundary, where `text` is what comes next. Gives how many bytes of it
    /// are done; the rest must be there again when more has come. Past the last boundary nothing matters, and
    /// all of it is done.
    pub fn take(&mut self, text: &[u8]) -> usize {
        let mut done = 0;
        while let Some(length) = self.chunk() {
            let Some(chunk) = text.get(done..done + length) else { return done };
            self.hashes.push(hash(chunk, self.hashes.last().copied().unwrap_or(self.seed)));
            done += length;
        }
        text.len()
    }

    /// Bytes up to the next boundary; none past the last.
    pub fn chunk(&self) -> Option<usize> {
        let index = self.hashes.len();
        let before = index.checked_sub(1).map_or(0, depth);
        (index < MAX_BOUNDARIES).then(|| depth(index) - before)
    }

    /// The hash at each boundary so far.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// Bytes up to the last of them.
    pub fn bytes(&self) -> usize {
        self.hashes.len().checked_sub(1).map_or(0, depth)
    }
}

/// From this chunk length on the library counts that looks for AVX2 when it runs: half the time. The
/// other one, which would have to be compiled for AVX2, is as fast or faster on short chunks.
const LONG_CHUNK: usize = 1_024;

fn hash(chunk: &[u8], seed: u64) -> u64 {
    if chunk.len() < LONG_CHUNK {
        return xxh3_64_with_seed(chunk, seed);
    }
    XxHash3_64::oneshot_with_seed(seed, chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schedule_is_as_documented() {
        assert_eq!(depth(0), 128);
        assert_eq!(depth(15), 2048);
        assert_eq!(depth(16), 2048 + 256);
        assert_eq!(depth(39), 16 * 1024);
        assert_eq!(depth(63), 128 * 1024);
        assert_eq!(MAX_BOUNDARIES, 104);
        assert_eq!(MAX_BYTES, 4 << 20);
        assert_eq!([0, 127, 128, 16 * 1024, 1 << 20].map(count), [0, 0, 1, 40, 88]);
        for i in 1..MAX_BOUNDARIES {
            let step = depth(i) - depth(i - 1);
            assert!(step >= STEP && step <= (depth(i - 1) / 8).max(STEP), "step {step} at {i}");
        }
    }

    #[test]
    fn golden_vectors_of_scheme_2() {
        let text: Vec<u8> = (0..4096u32).map(|i| (i * 31 % 251) as u8).collect();
        let mut hashes = Vec::new();
        hash_into(0x0123_4567_89ab_cdef, &text, &mut hashes);
        assert_eq!(hashes.len(), 24);
        let golden = [hashes[0], hashes[15], hashes[23]];
        assert_eq!(golden, GOLDEN, "the hash scheme changed: that needs a new SCHEME number");
    }

    #[test]
    fn both_libraries_hash_alike() {
        let text: Vec<u8> = (0..70_000u32).map(|i| (i * 31 % 251) as u8).collect();
        for length in [0, 1, 127, 128, 240, 241, 1_023, 1_024, 1_025, 4_096, 70_000] {
            let chunk = &text[..length];
            let ours = xxh3_64_with_seed(chunk, 7 + length as u64);
            assert_eq!(ours, XxHash3_64::oneshot_with_seed(7 + length as u64, chunk), "{length} bytes");
            assert_eq!(ours, hash(chunk, 7 + length as u64));
        }
    }

    #[test]
    fn a_text_that_comes_in_parts_has_the_same_hashes() {
        let text: Vec<u8> = (0..70_000u32).map(|i| (i * 31 % 251) as u8).collect();
        let mut whole = Vec::new();
        hash_into(7, &text, &mut whole);
        let mut chain = Chain::default();
        for part in [1, 100, 128, 5_000, 70_000] {
            chain.begin(7);
            let (mut from, mut to) = (0, 0);
            while to < text.len() {
                to = text.len().min(to + part);
                from += chain.take(&text[from..to]);
                assert_eq!(from, chain.bytes());
            }
            assert_eq!(chain.hashes(), whole, "{part} at a time");
        }
    }

    const GOLDEN: [u64; 3] = [15514740262706352216, 12379572548605533239, 7336905585070734585];

    #[test]
    fn a_chain_tells_prefixes_apart_and_never_matches_a_middle() {
        let mut long = Vec::new();
        hash_into(7, &[b'x'; 1024], &mut long);
        let mut short = Vec::new();
        hash_into(7, &[b'x'; 512], &mut short);
        assert_eq!(long[..4], short[..], "a prefix has the same chain");
        long.sort_unstable();
        long.dedup();
        assert_eq!(long.len(), 8, "equal blocks at different depths differ");
    }
}
