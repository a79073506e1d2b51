//! Who may use this router: clients by the keys of a file, operators by the admin token.
//!
//! The file is watched; replaced by a good one it counts at once, replaced by a bad one the old keys stay
//! and the log says why. Keys are never kept: only their hashes.

pub mod keys;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::config::Secret;
use crate::error::RouterError;
use crate::watch::FileChanges;
use keys::{KeyFileError, KeyRing};

/// Where Anthropic's clients put their key.
pub const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Time between two looks at the file.
const LOOK: Duration = Duration::from_secs(2);

/// Largest file that is read, bytes: 100,000 keys with names.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Why a file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too large.
    #[error("{path} is larger than {MAX_FILE_BYTES} bytes")]
    TooLarge {
        /// Which.
        path: PathBuf,
    },
    /// It says what makes no sense.
    #[error("{path}: {error}")]
    Content {
        /// Which.
        path: PathBuf,
        /// What.
        error: KeyFileError,
    },
}

/// Lets in who has a key. Cloned freely.
#[derive(Clone, Debug)]
pub struct Gate {
    ring: Arc<ArcSwap<KeyRing>>,
    path: PathBuf,
}

impl Gate {
    /// A gate for the keys of `path`.
    pub fn open(path: &Path) -> Result<Self, KeysError> {
        let ring = load(path, &KeyRing::default())?;
        if ring.is_empty() {
            tracing::warn!(path = %path.display(), "no client has a key: every request will be refused");
        }
        Ok(Self { ring: Arc::new(ArcSwap::from_pointee(ring)), path: path.to_owned() })
    }

    /// Whether a request with these fields may pass.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), RouterError> {
        let ring = self.ring.load();
        let client = presented(headers).and_then(|key| ring.holder(key));
        let client = client.ok_or(RouterError::Unauthorized)?;
        if client.may_send() { Ok(()) } else { Err(RouterError::RateLimited) }
    }

    /// Keys known now.
    pub fn keys(&self) -> usize {
        self.ring.load().len()
    }

    /// Follows the file for ever.
    pub async fn watch(self) {
        let mut changes = FileChanges::of(&[&self.path], LOOK).await;
        loop {
            changes.next().await;
            self.reload().await;
        }
    }

    async fn reload(&self) {
        let (path, before) = (self.path.clone(), self.ring.load_full());
        let loaded = tokio::task::spawn_blocking(move || load(&path, &before)).await;
        match loaded {
            Ok(Ok(ring)) => {
                tracing::info!(path = %self.path.display(), keys = ring.len(), "client keys read again");
                self.ring.store(Arc::new(ring));
            }
            Ok(Err(error)) => tracing::error!(%error, "client keys not taken over: the old ones stay"),
            Err(error) => tracing::error!(%error, "client keys not read"),
        }
    }
}

fn load(path: &Path, before: &KeyRing) -> Result<KeyRing, KeysError> {
    let read = |source| KeysError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(read)?.len() > MAX_FILE_BYTES {
        return Err(KeysError::TooLarge { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    KeyRing::parse(&text, before).map_err(|error| KeysError::Content { path: path.to_owned(), error })
}

/// The key that a request carries: `Authorization: Bearer` as OpenAI's clients send it, or `x-api-key`.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(bearer_of);
    bearer.or_else(|| headers.get(X_API_KEY).map(HeaderValue::as_bytes))
}

/// A key as the value of `Authorization`.
pub(crate) fn bearer(key: &Secret) -> Result<HeaderValue, header::InvalidHeaderValue> {
    let mut value = HeaderValue::from_bytes(&[b"Bearer ", key.expose()].concat())?;
    value.set_sensitive(true);
    Ok(value)
}

/// The token of `Bearer <token>`.
pub fn bearer_of(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse::<HeaderName>().unwrap(), value.parse().unwrap())])
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("grapevine-keys-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn both_ways_to_send_a_key_work_and_nothing_else_does() {
        let path = file("ways", &keys::line_for("a", b"secret"));
        let gate = Gate::open(&path).unwrap();
        for (name, value) in
            [("authorization", "Bearer secret"), ("authorization", "bearer  secret"), ("x-api-key", "secret")]
        {
            assert_eq!(gate.check(&headers(name, value)), Ok(()), "{name}: {value}");
        }
        for (name, value) in [
            ("authorization", "Basic secret"),
            ("authorization", "secret"),
            ("authorization", "Bearer"),
            ("x-api-key", "Bearer secret"),
            ("x-key", "secret"),
        ] {
            let refused = gate.check(&headers(name, value));
            assert_eq!(refused, Err(RouterError::Unauthorized), "{name}: {value}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[tokio::test]
    async fn a_bad_file_leaves_the_old_keys_and_a_good_one_replaces_them() {
        let path = file("reload", &keys::line_for("a", b"old"));
        let gate = Gate::open(&path).unwrap();
        std::fs::write(&path, "a not-a-hash").unwrap();
        gate.reload().await;
        assert_eq!(gate.check(&headers("x-api-key", "old")), Ok(()));
        std::fs::write(&path, keys::line_for("a", b"new")).unwrap();
        gate.reload().await;
        assert_eq!(gate.check(&headers("x-api-key", "old")), Err(RouterError::Unauthorized));
        assert_eq!(gate.check(&headers("x-api-key", "new")), Ok(()));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Gate::open(Path::new("/nowhere/keys")).unwrap_err();
        assert_eq!(error.to_string(), "/nowhere/keys cannot be read");
    }
}
