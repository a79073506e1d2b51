//! Keys of a secret (HKDF-SHA256), and what is sealed with them (AES-256-GCM).

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes that sealing adds.
pub(crate) const TAG_BYTES: usize = 16;

/// Bytes that tell secrets apart.
pub(crate) const KEY_ID_BYTES: usize = 4;

/// What a key is for, and in which fleet.
type Info<'a> = [&'a [u8]; 2];

/// A number that is used once with a key.
pub(crate) type Once = [u8; NONCE_LEN];

/// The key of a secret for a salt.
pub(crate) fn derive(secret: &[u8], salt: &[u8], info: Info) -> LessSafeKey {
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let okm = prk.expand(&info, &AES_256_GCM).expect("32 bytes are far below HKDF's limit");
    LessSafeKey::new(UnboundKey::from(okm))
}

struct KeyIdLen;

impl hkdf::KeyType for KeyIdLen {
    fn len(&self) -> usize {
        KEY_ID_BYTES
    }
}

/// What a secret is called.
pub(crate) fn key_id(secret: &[u8], salt: &[u8], info: Info) -> [u8; KEY_ID_BYTES] {
    let mut id = [0; KEY_ID_BYTES];
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    prk.expand(&info, KeyIdLen)
        .and_then(|okm| okm.fill(&mut id))
        .expect("4 bytes are far below HKDF's limit");
    id
}

/// A head, which is readable and cannot be changed, and the sealed body.
pub(crate) fn seal(key: &LessSafeKey, once: Once, head: Vec<u8>, body: &[u8]) -> Vec<u8> {
    let mut sealed = body.to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(once), Aad::from(&head), &mut sealed)
        .expect("what is sealed is far below AES-GCM's limit of 64 GiB");
    let mut bytes = head;
    bytes.extend(sealed);
    bytes
}

/// The body behind a head of `head_len` bytes; none if anything was changed.
pub(crate) fn open(key: &LessSafeKey, once: Once, bytes: &[u8], head_len: usize) -> Option<Vec<u8>> {
    let (head, body) = bytes.split_at_checked(head_len)?;
    let mut body = body.to_vec();
    let nonce = Nonce::assume_unique_for_key(once);
    let len = key.open_in_place(nonce, Aad::from(head), &mut body).ok()?.len();
    body.truncate(len);
    Some(body)
}

/// Fills in what nobody can guess.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the system has a random source, or nothing is safe");
}
