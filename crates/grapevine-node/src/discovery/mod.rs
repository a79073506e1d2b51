//! Which replicas there are.
//!
//! ```text
//! static list ----------------+
//! file, watched --- Finding --+--> replica actor: Roster (merge) -> reconcile -> ReplicaSet
//! DNS ------------- Finding --+            ^
//! Kubernetes ------ Finding --+            +--- Order (add, remove, drain) --- admin API
//! ```
//!
//! Each source tells the replica actor the whole set that it wants, or why it cannot say. The roster
//! merges the sets by URL; reconciling compares that with what is there: the same URL stays the same
//! replica with all that was learnt of it, a new one is added, and one that nobody wants any more drains:
//! no new requests, and it leaves when those in flight have ended.
//!
//! **Invariant:** a source that fails keeps what it last found. Only a source that says so takes a
//! replica away.

mod dns;
pub(crate) mod entry;
mod file;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod parts;
mod reconcile;
pub(crate) mod roster;

use std::path::PathBuf;

use tokio::task::JoinSet;

use crate::actors::replica::ReplicaHandle;
use crate::config::{Config, ReplicaSpec};

pub use file::parse as parse_replicas;
pub(crate) use reconcile::{Change, reconcile};
pub(crate) use roster::{Order, OrderError, Roster};

/// Who says that a replica exists. Where several list one URL, the first in this order says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Operators, by the admin API.
    Admin,
    /// `GRAPEVINE_REPLICAS`.
    Static,
    /// `GRAPEVINE_REPLICAS_FILE`.
    File,
    /// `GRAPEVINE_REPLICAS_KUBERNETES`.
    Kubernetes,
    /// `GRAPEVINE_REPLICAS_DNS`.
    Dns,
}

impl Source {
    /// The name in status and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Static => "static",
            Self::File => "file",
            Self::Kubernetes => "kubernetes",
            Self::Dns => "dns",
        }
    }
}

/// What a source found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Finding {
    /// All its replicas; `None`: those of before.
    pub(crate) replicas: Option<Vec<ReplicaSpec>>,
    /// Why it cannot say, or not all.
    pub(crate) problem: Option<String>,
}

impl From<Result<Vec<ReplicaSpec>, String>> for Finding {
    fn from(found: Result<Vec<ReplicaSpec>, String>) -> Self {
        match found {
            Ok(replicas) => Self { replicas: Some(replicas), problem: None },
            Err(problem) => Self { replicas: None, problem: Some(problem) },
        }
    }
}

/// A source as status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceView {
    /// Which.
    pub source: Source,
    /// Replicas that it lists.
    pub replicas: usize,
    /// Why its last look failed, so that these are of an earlier one.
    pub problem: Option<String>,
}

/// Why a source cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// The file is bad from the start, and there are no old replicas to stay with.
    #[error("GRAPEVINE_REPLICAS_FILE {path}: {problem}")]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// This build cannot ask Kubernetes.
    #[cfg(not(feature = "kubernetes"))]
    #[error("GRAPEVINE_REPLICAS_KUBERNETES needs a build with the cargo feature `kubernetes`")]
    NoKubernetes,
}

/// Starts the sources that `config` names; they end with `tasks`.
pub(crate) async fn start(
    config: &Config,
    replicas: &ReplicaHandle,
    tasks: &mut JoinSet<()>,
) -> Result<(), DiscoveryError> {
    let feed = |source| Feed { source, replicas: replicas.clone() };
    if let Some(path) = config.replicas_file.clone() {
        let unusable = |problem| DiscoveryError::File { path: path.clone(), problem };
        let listed = file::read(&path).map_err(unusable)?;
        // Before the first request is taken: it would find no replica.
        let feed = feed(Source::File);
        feed.found(Ok(listed).into()).await;
        replicas.settled().await;
        tasks.spawn(file::follow(path, feed));
    }
    if !config.replicas_dns.is_empty() {
        let (names, servers) = (config.replicas_dns.clone(), config.dns_servers.clone());
        tasks.spawn(dns::follow(names, servers, feed(Source::Dns)));
    }
    #[cfg(feature = "kubernetes")]
    if !config.replicas_kubernetes.is_empty() {
        let endpoints = config.replicas_kubernetes.clone();
        tasks.spawn(kubernetes::follow(endpoints, feed(Source::Kubernetes)));
    }
    #[cfg(not(feature = "kubernetes"))]
    if !config.replicas_kubernetes.is_empty() {
        return Err(DiscoveryError::NoKubernetes);
    }
    Ok(())
}

/// A source's way to the replica actor.
#[derive(Clone, Debug)]
pub(crate) struct Feed {
    pub(crate) source: Source,
    pub(crate) replicas: ReplicaHandle,
}

impl Feed {
    /// Must: what the source found now.
    pub(crate) async fn found(&self, finding: Finding) {
        self.replicas.found(self.source, finding).await;
    }
}
