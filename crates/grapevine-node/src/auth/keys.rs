//! The file of client keys: names and hashes, never keys.
//!
//! One key a line; `#` begins a comment:
//!
//! ```text
//! team-a  sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  rate=50 burst=100
//! ```

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// Most keys in a file: a few hundred bytes each in memory, and what is more belongs into a gateway.
const MAX_KEYS: usize = 100_000;

/// Longest key that is hashed, bytes. Longer ones are nobody's.
const MAX_KEY_BYTES: usize = 4_096;

const HASH_BYTES: usize = 32;

/// A SHA-256.
pub(crate) type Hash = [u8; HASH_BYTES];

/// Who may send requests.
#[derive(Debug, Default)]
pub struct KeyRing {
    /// By the hash's first bytes; the rest is compared in constant time.
    by_start: HashMap<[u8; 8], Vec<Arc<Client>>>,
    count: usize,
}

/// The holder of a key.
#[derive(Debug)]
pub struct Client {
    /// Its name in the file.
    pub name: String,
    hash: Hash,
    quota: Option<Quota>,
    limiter: Option<DefaultDirectRateLimiter>,
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct KeyFileError {
    /// Its number, from 1.
    pub line: usize,
    /// What is wrong, and what to write instead.
    pub problem: &'static str,
}

impl KeyRing {
    /// Reads a file's text. Clients that `before` knew with the same quota keep what they have used of it.
    pub fn parse(text: &str, before: &Self) -> Result<Self, KeyFileError> {
        let mut ring = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            if text.trim().is_empty() {
                continue;
            }
            let client = Client::parse(text).map_err(|problem| KeyFileError { line, problem })?;
            ring.add(client, before).map_err(|problem| KeyFileError { line, problem })?;
        }
        Ok(ring)
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nobody has a key.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The holder of `key`.
    pub fn holder(&self, key: &[u8]) -> Option<&Arc<Client>> {
        if key.len() > MAX_KEY_BYTES {
            return None;
        }
        self.find(&hash_of(key))
    }

    fn find(&self, hash: &Hash) -> Option<&Arc<Client>> {
        let same = |client: &&Arc<Client>| bool::from(client.hash.ct_eq(hash));
        self.by_start.get(&start(hash))?.iter().find(same)
    }

    fn add(&mut self, client: Client, before: &Self) -> Result<(), &'static str> {
        if self.find(&client.hash).is_some() {
            return Err("this key is already in the file: give each client its own");
        }
        if self.count >= MAX_KEYS {
            return Err("more than 100000 keys: put a gateway in front that authenticates");
        }
        let known = before.find(&client.hash);
        let same = known.filter(|k| k.name == client.name && k.quota == client.quota);
        let client = same.cloned().unwrap_or_else(|| Arc::new(client));
        self.by_start.entry(start(&client.hash)).or_default().push(client);
        self.count += 1;
        Ok(())
    }
}

impl Client {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_whitespace();
        let name = words.next().ok_or("write `name sha256:hash`")?.to_owned();
        let hash = words.next().and_then(|word| word.strip_prefix("sha256:"));
        let hash = hash.and_then(from_hex).ok_or(
            "after the name write `sha256:` and 64 hex digits; `grapevine key NAME` makes a key and its line",
        )?;
        let (mut rate, mut burst) = (None, None);
        for word in words {
            match word.split_once('=') {
                Some(("rate", number)) => rate = Some(positive(number)?),
                Some(("burst", number)) => burst = Some(positive(number)?),
                _ => return Err("after the hash only `rate=` and `burst=` may follow"),
            }
        }
        let quota = match (rate, burst) {
            (None, None) => None,
            (None, Some(_)) => return Err("`burst=` needs a `rate=`, in requests per second"),
            (Some(rate), burst) => Some(Quota::per_second(rate).allow_burst(burst.unwrap_or(rate))),
        };
        Ok(Self { name, hash, quota, limiter: quota.map(RateLimiter::direct) })
    }

    /// Whether it may send one more request now.
    pub fn may_send(&self) -> bool {
        self.limiter.as_ref().is_none_or(|limiter| limiter.check().is_ok())
    }
}

/// The line of the file for `key`.
pub fn line_for(name: &str, key: &[u8]) -> String {
    let hex: String = hash_of(key).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name} sha256:{hex}")
}

/// The SHA-256 of `key`.
pub(crate) fn hash_of(key: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, key).as_ref());
    hash
}

fn start(hash: &Hash) -> [u8; 8] {
    hash.first_chunk().copied().unwrap_or_default()
}

fn from_hex(text: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if text.len() != 2 * HASH_BYTES || !text.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

fn positive(number: &str) -> Result<NonZeroU32, &'static str> {
    number.parse().map_err(|_| "a rate or burst is a whole number of requests, at least 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(text: &str) -> Result<KeyRing, KeyFileError> {
        KeyRing::parse(text, &KeyRing::default())
    }

    #[test]
    fn a_key_opens_for_its_holder_alone() {
        let text = format!("# clients\n\n{} # ours\n{}\n", line_for("a", b"key-a"), line_for("b", b"key-b"));
        let ring = ring(&text).unwrap();
        assert_eq!(ring.len(), 2);
        assert_eq!(ring.holder(b"key-a").unwrap().name, "a");
        assert_eq!(ring.holder(b"key-b").unwrap().name, "b");
        for wrong in [&b"key-c"[..], b"", b"key-", &[b'k'; MAX_KEY_BYTES + 1]] {
            assert!(ring.holder(wrong).is_none());
        }
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let hash = line_for("a", b"k");
        for (bad, part) in [
            ("a", "64 hex digits"),
            ("a sha256:abc", "64 hex digits"),
            ("a plain-text-key", "64 hex digits"),
            (&*format!("{hash} rate=0"), "at least 1"),
            (&*format!("{hash} burst=5"), "needs a `rate=`"),
            (&*format!("{hash} quota=5"), "only `rate=` and `burst=`"),
            (&*format!("{hash}\n{hash}"), "already in the file"),
        ] {
            let error = ring(&format!("# head\n{bad}")).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert!(error.line >= 2);
        }
    }

    #[test]
    fn a_rate_holds_over_a_reload_and_a_new_one_begins_anew() {
        let with = |options: &str| format!("{} {options}", line_for("a", b"k"));
        let first = ring(&with("rate=1 burst=3")).unwrap();
        let sends = |ring: &KeyRing| (0..10).filter(|_| ring.holder(b"k").unwrap().may_send()).count();
        assert_eq!(sends(&first), 3);
        let same = KeyRing::parse(&with("rate=1 burst=3"), &first).unwrap();
        assert_eq!(sends(&same), 0);
        let larger = KeyRing::parse(&with("rate=1 burst=5"), &first).unwrap();
        assert_eq!(sends(&larger), 5);
        assert_eq!(sends(&ring(&with("")).unwrap()), 10);
    }
}
