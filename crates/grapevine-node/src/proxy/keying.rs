//! From a request body to a prefix key, off the I/O path where that takes long.

use std::cell::RefCell;
use std::num::NonZero;
use std::sync::LazyLock;
use std::thread;

use bytes::Bytes;
use grapevine_tree::{Api, Extractor, KeySeed, Prompt};
use ring::hmac;
use tokio::sync::Semaphore;

use crate::config::Secret;

/// Bodies above this are read on a blocking thread: below, it takes less than what the hand-over
/// costs; above, it would hold up the streams of this thread for milliseconds.
const INLINE_BYTES: usize = 256 * 1_024;

/// Key of the hash chain in a fleet without a secret. Any constant does: it must only be the same
/// everywhere.
const OPEN_SEED: KeySeed = KeySeed(0x6772_6170_6576_696e);

/// Separates the key of the hashes from every other use of the secret.
const SEED_SALT: &[u8] = b"grapevine prefix hash v1";

thread_local! {
    /// Keeps its scratch memory between requests. With its seed: one process may run several
    /// routers.
    static EXTRACTOR: RefCell<Option<(KeySeed, Extractor)>> = const { RefCell::new(None) };
}

/// The key of the fleet's hash chains: the same on every router that has the secret. The hash is fast and no
/// MAC, so whoever sees many hashes may in time learn this key; from it nobody learns the secret.
pub fn seed_of(secret: Option<&Secret>) -> KeySeed {
    secret.map_or(OPEN_SEED, |secret| KeySeed(derived(secret)))
}

/// HKDF's extraction; one number needs no expansion.
fn derived(secret: &Secret) -> u64 {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SEED_SALT), secret.expose());
    let start = tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
    u64::from_le_bytes(*start)
}

/// What routing needs to know of `body`.
pub(super) async fn extract(seed: KeySeed, api: Api, body: &Bytes) -> Prompt {
    read(body, move |body| extract_here(seed, api, body)).await
}

/// Large bodies that are read at the same time: one for each core, since reading computes and does not wait.
static LARGE: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, NonZero::get)));

/// What `look` finds in `body`. Where that takes long, streams of this thread go on meanwhile.
pub(super) async fn read<T>(body: &Bytes, look: impl FnOnce(&[u8]) -> T + Send + 'static) -> T
where
    T: Default + Send + 'static,
{
    if body.len() <= INLINE_BYTES {
        return look(body);
    }
    let Ok(turn) = LARGE.acquire().await else { return T::default() };
    let body = body.clone();
    let looking = move || {
        // Held until it is read, also when nobody waits for that any more.
        let _turn = turn;
        look(&body)
    };
    tokio::task::spawn_blocking(looking).await.unwrap_or_default()
}

fn extract_here(seed: KeySeed, api: Api, body: &[u8]) -> Prompt {
    EXTRACTOR.with_borrow_mut(|slot| {
        let (made_for, extractor) = slot.get_or_insert_with(|| (seed, Extractor::new(seed)));
        if *made_for != seed {
            (*made_for, *extractor) = (seed, Extractor::new(seed));
        }
        extractor.extract(api, body, b"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_agree_on_the_seed_and_fleets_do_not() {
        let secret = |s: &str| Secret::new(s.to_owned());
        assert!(seed_of(Some(&secret("a"))) == seed_of(Some(&secret("a"))));
        assert!(seed_of(Some(&secret("a"))) != seed_of(Some(&secret("b"))));
        assert!(seed_of(None) == OPEN_SEED);
    }

    #[test]
    fn every_version_derives_the_same_seed() {
        let golden = seed_of(Some(&Secret::new("a secret of enough bytes".to_owned())));
        assert_eq!(golden.0, 10_918_265_891_790_008_433, "another derivation needs another hash scheme");
    }

    #[tokio::test]
    async fn a10_a_large_body_is_not_read_on_the_thread_that_relays_streams() {
        let relaying = std::thread::current().id();
        let reader = async |length| {
            read(&Bytes::from(vec![b' '; length]), |_| Some(std::thread::current().id())).await
        };
        assert_eq!(reader(INLINE_BYTES).await, Some(relaying));
        assert_ne!(reader(INLINE_BYTES + 1).await, Some(relaying));
    }

    #[tokio::test]
    async fn a_large_body_has_the_key_that_it_would_have_inline() {
        let body = |text: &str| Bytes::from(format!(r#"{{"model":"m","prompt":"{text}","stream":true}}"#));
        let text = "lorem ipsum ".repeat(40_000);
        let (large, small) = (body(&text), body(&text[..4_096]));
        assert!(large.len() > INLINE_BYTES);
        let large = extract(KeySeed(1), Api::Completions, &large).await;
        let small = extract(KeySeed(1), Api::Completions, &small).await;
        let shared = small.key.hashes.len() - 1;
        assert!(shared > 10);
        assert_eq!(small.key.hashes[..shared], large.key.hashes[..shared]);
        assert!(large.stream);
    }
}
