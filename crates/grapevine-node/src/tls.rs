//! TLS: the public listener's certificate, read again when its files change; and what clients are given to
//! trust and to show.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring::{default_provider, sign};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

use crate::watch::FileChanges;

/// Time between two looks at the files. Certificates are renewed days before they end.
const LOOK: Duration = Duration::from_secs(10);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read or holds no PEM of its kind.
    #[error("{path} holds no readable PEM {what}: {problem}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Certificate and key that do not go together, or a key of an unknown type.
    #[error("certificate {cert} and key {key} do not go together")]
    Unusable {
        /// File of the certificate.
        cert: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}

/// The certificate that is served, and where it comes from.
#[derive(Clone, Debug)]
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
}

#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Certificate {
    /// The certificate of these files.
    pub fn open(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let current = Arc::new(Current(ArcSwap::from_pointee(load(cert, key)?)));
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), current })
    }

    /// Takes connections with it: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
    pub fn acceptor(&self) -> TlsAcceptor {
        let resolver: Arc<dyn ResolvesServerCert> = self.current.clone();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring speaks both versions")
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    /// Follows the files for ever. What cannot be used leaves the old certificate in place.
    pub async fn watch(self) {
        let mut changes = FileChanges::of(&[&self.cert, &self.key], LOOK).await;
        loop {
            changes.next().await;
            self.reload();
        }
    }

    fn reload(&self) {
        match load(&self.cert, &self.key) {
            Ok(key) => {
                self.current.0.store(Arc::new(key));
                tracing::info!(path = %self.cert.display(), "certificate read again");
            }
            // Half-way through a renewal the two do not fit; the next look finds both.
            Err(error) => tracing::error!(%error, "certificate not taken over: the old one stays"),
        }
    }
}

fn load(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(cert)?;
    let der =
        PrivateKeyDer::from_pem_file(key).map_err(|error| bad(key, "private key", error.to_string()))?;
    let unusable = |source| TlsError::Unusable { cert: cert.to_owned(), key: key.to_owned(), source };
    let certified = CertifiedKey::new(chain, sign::any_supported_type(&der).map_err(unusable)?);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
        Err(source) => Err(unusable(source)),
    }
}

/// A file's certificates: at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| bad(path, "certificate", error.to_string()))?;
    if chain.is_empty() {
        return Err(bad(path, "certificate", "none in it".to_owned()));
    }
    Ok(chain)
}

fn bad(path: &Path, what: &'static str, problem: String) -> TlsError {
    TlsError::Pem { path: path.to_owned(), what, problem }
}

/// PEM of the authorities in a file. A file without any is refused: to trust nobody, or everybody, is not what
/// its name was written down for.
pub(crate) fn authorities(path: &Path) -> Result<Vec<u8>, TlsError> {
    certificates(path)?;
    read(path, "certificate")
}

/// PEM of a certificate and of its key, for a client to show.
pub(crate) fn identity(cert: &Path, key: &Path) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    load(cert, key)?;
    Ok((read(cert, "certificate")?, read(key, "private key")?))
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| bad(path, what, error.to_string()))
}
