//! The seal of what routers ask each other directly, over whatever carries bytes.
//!
//! **Keys.** The asker draws a 16-byte salt; the question's key is HKDF-SHA256(secret, salt, `grapevine
//! exchange v1` + cluster id), used once, so its nonce is zero. The answerer draws a second salt; the
//! answer's key is derived from both, so an answer fits only the question that it was made for: a
//! recorded or swapped one does not open. A question that is asked again is refused by who remembers
//! its salt, and harmless otherwise: questions change nothing, and the answer is for who asked first.
//! While a secret is being replaced, the answerer uses the one that it was asked with.
//!
//! Without a secret the bytes are plain and carry the fleet's tag: for the loopback interface only.
//!
//! ```text
//! question  0xB1 | 0 | key id 4 | salt 16 | AES-256-GCM(body) + tag 16       0xB0 | 0 | fleet 8 | salt 16 | body
//! answer    0xB1 | 1 | salt 16  | AES-256-GCM(body) + tag 16                 0xB0 | 1 | salt 16 | body
//! ```

use ring::aead::LessSafeKey;

use crate::config::MeshConfig;
use crate::crypt::{self, KEY_ID_BYTES, TAG_BYTES, fill_random};

const SEALED: u8 = 0xB1;
const PLAIN: u8 = 0xB0;
const QUESTION: u8 = 0;
const ANSWER: u8 = 1;

const QUESTION_INFO: &[u8] = b"grapevine exchange v1";
const ANSWER_INFO: &[u8] = b"grapevine exchange answer v1";
const KEY_ID_SALT: &[u8] = b"grapevine exchange key id v1";

const SALT_BYTES: usize = 16;

/// Each key seals one message.
const ONCE: crypt::Once = [0; 12];

/// Bytes that sealing adds to an answer, at most.
pub(crate) const ANSWER_OVERHEAD: usize = 2 + SALT_BYTES + TAG_BYTES;

/// Names a question.
pub(crate) type Salt = [u8; SALT_BYTES];

/// The bytes are not from this fleet, or were changed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sealed by this fleet")]
pub(crate) struct NotOurs;

struct Secret {
    id: [u8; KEY_ID_BYTES],
    bytes: Vec<u8>,
}

/// Seals and opens for one fleet.
pub(crate) struct Exchange {
    /// The current one first; none means plain.
    secrets: Vec<Secret>,
    cluster_id: String,
    cluster: [u8; 8],
}

/// A question that was opened, and how its answer is to be sealed.
pub(crate) struct Opened {
    pub(crate) body: Vec<u8>,
    pub(crate) salt: Salt,
    secret: Option<usize>,
}

/// A question that was sealed, and how its answer will open.
pub(crate) struct Asked {
    pub(crate) bytes: Vec<u8>,
    salt: Salt,
    secret: Option<usize>,
}

impl Exchange {
    pub(crate) fn new(config: &MeshConfig) -> Self {
        let cluster_id = config.cluster_id.clone();
        let digest = ring::digest::digest(&ring::digest::SHA256, cluster_id.as_bytes());
        let cluster = *digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let previous = config.secret.as_ref().and(config.previous_secret.as_ref());
        let secret = |bytes: &Vec<u8>| Secret { id: key_id(bytes, &cluster_id), bytes: bytes.clone() };
        let secrets = config.secret.iter().chain(previous).map(secret).collect();
        Self { secrets, cluster_id, cluster }
    }

    /// How many ways there are to seal a question: which one the peer knows is found by trying.
    pub(crate) fn ways(&self) -> usize {
        self.secrets.len().max(1)
    }

    /// Seals a question, in the given one of its [`Self::ways`].
    pub(crate) fn ask(&self, body: &[u8], way: usize) -> Asked {
        let salt = random_salt();
        let Some(secret) = self.secrets.get(way) else {
            let bytes = [&[PLAIN, QUESTION], &self.cluster[..], &salt, body].concat();
            return Asked { bytes, salt, secret: None };
        };
        let head = [&[SEALED, QUESTION], &secret.id[..], &salt].concat();
        let bytes = seal(&self.key(secret, &salt, QUESTION_INFO), head, body);
        Asked { bytes, salt, secret: Some(way) }
    }

    /// Opens a question of a peer's.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Opened, NotOurs> {
        match bytes.split_first_chunk() {
            Some((&[SEALED, QUESTION], rest)) => self.open_sealed(bytes, rest),
            Some((&[PLAIN, QUESTION], rest)) if self.secrets.is_empty() => self.open_plain(rest),
            _ => Err(NotOurs),
        }
    }

    fn open_sealed(&self, bytes: &[u8], rest: &[u8]) -> Result<Opened, NotOurs> {
        let (id, rest) = rest.split_first_chunk().ok_or(NotOurs)?;
        let (salt, _) = rest.split_first_chunk().ok_or(NotOurs)?;
        let at = self.secrets.iter().position(|secret| secret.id == *id).ok_or(NotOurs)?;
        let secret = self.secrets.get(at).ok_or(NotOurs)?;
        let key = self.key(secret, salt, QUESTION_INFO);
        let body = open(&key, bytes, 2 + KEY_ID_BYTES + SALT_BYTES)?;
        Ok(Opened { body, salt: *salt, secret: Some(at) })
    }

    fn open_plain(&self, rest: &[u8]) -> Result<Opened, NotOurs> {
        let (cluster, rest) = rest.split_first_chunk().ok_or(NotOurs)?;
        let (salt, body) = rest.split_first_chunk().ok_or(NotOurs)?;
        if *cluster != self.cluster {
            return Err(NotOurs);
        }
        Ok(Opened { body: body.to_vec(), salt: *salt, secret: None })
    }

    /// Seals the answer to a question.
    pub(crate) fn answer(&self, to: &Opened, body: &[u8]) -> Vec<u8> {
        let Some(secret) = to.secret.and_then(|at| self.secrets.get(at)) else {
            return [&[PLAIN, ANSWER], &to.salt[..], body].concat();
        };
        let own = random_salt();
        let key = self.key(secret, &[to.salt, own].concat(), ANSWER_INFO);
        seal(&key, [&[SEALED, ANSWER], &own[..]].concat(), body)
    }

    /// Opens the answer to a question of ours.
    pub(crate) fn open_answer(&self, asked: &Asked, bytes: &[u8]) -> Result<Vec<u8>, NotOurs> {
        let (head, rest) = bytes.split_first_chunk().ok_or(NotOurs)?;
        let (salt, body) = rest.split_first_chunk::<SALT_BYTES>().ok_or(NotOurs)?;
        match (head, asked.secret.and_then(|at| self.secrets.get(at))) {
            (&[PLAIN, ANSWER], None) if *salt == asked.salt => Ok(body.to_vec()),
            (&[SEALED, ANSWER], Some(secret)) => {
                let key = self.key(secret, &[asked.salt, *salt].concat(), ANSWER_INFO);
                open(&key, bytes, 2 + SALT_BYTES)
            }
            _ => Err(NotOurs),
        }
    }

    fn key(&self, secret: &Secret, salt: &[u8], label: &[u8]) -> LessSafeKey {
        crypt::derive(&secret.bytes, salt, [label, self.cluster_id.as_bytes()])
    }
}

fn key_id(secret: &[u8], cluster_id: &str) -> [u8; KEY_ID_BYTES] {
    crypt::key_id(secret, KEY_ID_SALT, [QUESTION_INFO, cluster_id.as_bytes()])
}

fn seal(key: &LessSafeKey, head: Vec<u8>, body: &[u8]) -> Vec<u8> {
    crypt::seal(key, ONCE, head, body)
}

fn open(key: &LessSafeKey, bytes: &[u8], head_len: usize) -> Result<Vec<u8>, NotOurs> {
    crypt::open(key, ONCE, bytes, head_len).ok_or(NotOurs)
}

fn random_salt() -> Salt {
    let mut salt = Salt::default();
    fill_random(&mut salt);
    salt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange(cluster: &str, secrets: &[&str]) -> Exchange {
        let secret = |at: usize| secrets.get(at).map(|it| it.as_bytes().to_vec());
        Exchange::new(&MeshConfig {
            cluster_id: cluster.to_owned(),
            secret: secret(0),
            previous_secret: secret(1),
            ..MeshConfig::new("a", "127.0.0.1:0".parse().unwrap())
        })
    }

    const OLD: &str = "an old secret of enough bytes";
    const NEW: &str = "a new secret of enough bytes.";

    #[test]
    fn a_question_and_its_answer_survive_the_trip() {
        for secrets in [&[][..], &[NEW], &[NEW, OLD]] {
            let (a, b) = (exchange("x", secrets), exchange("x", secrets));
            let asked = a.ask(b"question", 0);
            let opened = b.open(&asked.bytes).unwrap();
            assert_eq!(opened.body, b"question");
            let answer = b.answer(&opened, b"answer");
            assert_eq!(a.open_answer(&asked, &answer).unwrap(), b"answer");
            assert!(answer.len() <= b"answer".len() + ANSWER_OVERHEAD);
        }
    }

    #[test]
    fn strangers_are_refused() {
        let b = exchange("x", &[NEW]);
        for other in [exchange("x", &[OLD]), exchange("y", &[NEW]), exchange("x", &[])] {
            assert!(b.open(&other.ask(b"q", 0).bytes).is_err());
            assert!(other.open(&b.ask(b"q", 0).bytes).is_err());
        }
        assert!(exchange("x", &[]).open(&exchange("y", &[]).ask(b"q", 0).bytes).is_err());
    }

    #[test]
    fn an_answer_fits_only_its_own_question() {
        for secrets in [&[][..], &[NEW]] {
            let (a, b) = (exchange("x", secrets), exchange("x", secrets));
            let (first, second) = (a.ask(b"q", 0), a.ask(b"q", 0));
            let recorded = b.answer(&b.open(&first.bytes).unwrap(), b"answer");
            assert!(a.open_answer(&second, &recorded).is_err(), "swapped");
            assert!(a.open_answer(&first, &first.bytes).is_err(), "reflected");
            let again = b.answer(&b.open(&first.bytes).unwrap(), b"another");
            assert_eq!(secrets.is_empty(), recorded[2..18] == again[2..18], "a key is used once");
        }
    }

    #[test]
    fn secrets_are_replaced_one_router_after_the_other() {
        let (before, during, after) =
            (exchange("x", &[OLD]), exchange("x", &[NEW, OLD]), exchange("x", &[NEW]));
        assert_eq!((before.ways(), during.ways(), exchange("x", &[]).ways()), (1, 2, 1));
        assert!(before.open(&during.ask(b"q", 0).bytes).is_err());
        let asked = during.ask(b"q", 1);
        let answer = before.answer(&before.open(&asked.bytes).unwrap(), b"a");
        assert_eq!(during.open_answer(&asked, &answer).unwrap(), b"a");
        for asker in [&before, &after] {
            let asked = asker.ask(b"q", 0);
            let answer = during.answer(&during.open(&asked.bytes).unwrap(), b"a");
            assert_eq!(asker.open_answer(&asked, &answer).unwrap(), b"a");
        }
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_noticed(at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (a, b) = (exchange("x", &[NEW]), exchange("x", &[NEW]));
            let mut asked = a.ask(b"question", 0);
            let answer = b.answer(&b.open(&asked.bytes).unwrap(), b"answer");
            let mut changed = answer.clone();
            changed[at.index(answer.len())] ^= 1 << bit;
            prop_assert!(a.open_answer(&asked, &changed).is_err());
            let at = at.index(asked.bytes.len());
            asked.bytes[at] ^= 1 << bit;
            prop_assert!(b.open(&asked.bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), first in 0xB0u8..=0xB1) {
            for secrets in [&[][..], &[NEW]] {
                let exchange = exchange("x", secrets);
                let headed = [&[first, 0], bytes.as_slice()].concat();
                let _ = exchange.open(&bytes);
                prop_assert!(exchange.open(&headed).is_err());
                let asked = exchange.ask(b"q", 0);
                prop_assert!(exchange.open_answer(&asked, &headed).is_err());
            }
        }
    }
}
