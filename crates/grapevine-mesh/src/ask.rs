//! Asks peers directly, over whatever the host fetches with.

use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::{ReplicaHistory, RouterId, SnapshotNode};
use tokio::time::timeout;
use tracing::debug;

use crate::codec::{
    Ask, CodecError, MAX_EXCHANGE_BYTES, MAX_HEAD_BYTES, SeenOrigin, Segments, decode_head, decode_page,
    decode_segments, encode_ask,
};
use crate::exchange::{ANSWER_OVERHEAD, Exchange};
use crate::handle::Refused;
use crate::pull::Candidate;
use crate::{FetchError, Host, ReplicaEpoch};

/// Longest wait for an answer. A page takes a few ms to make and to send.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for a whole snapshot.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

/// Longest snapshot, in bytes: 16 million boundaries.
const MAX_SNAPSHOT_BYTES: usize = 512 << 20;

/// Most pages of a snapshot: also a peer whose pages are empty comes to an end.
const MAX_PAGES: usize = 16_384;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("no answer in time")]
    Late,
    #[error("the answer is not sealed by this fleet for this question")]
    NotOurs,
    #[error("the answer is malformed")]
    Codec(#[from] CodecError),
    #[error("the snapshot does not end")]
    Endless,
}

/// Everything that a peer knows, as it came.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whose it is.
    pub teacher: RouterId,
    /// Cache epochs of replicas. To be merged before anything else: credits are of these epochs.
    pub epochs: Vec<ReplicaEpoch>,
    /// The dates that the nodes refer to.
    pub histories: Vec<ReplicaHistory>,
    pages: Vec<Vec<u8>>,
}

impl Snapshot {
    /// The nodes, page by page; in a page those higher up the tree come first.
    pub fn pages(&self) -> impl Iterator<Item = Vec<SnapshotNode>> {
        self.pages.iter().filter_map(|bytes| {
            let mut nodes = decode_page(bytes).ok()?.nodes;
            nodes.sort_by_key(|node| node.marks.first().map(|mark| mark.index));
            Some(nodes)
        })
    }
}

/// A snapshot, and up to where it contains each origin's segments.
pub(crate) struct Lesson {
    pub(crate) snapshot: Snapshot,
    pub(crate) origins: Vec<SeenOrigin>,
}

/// Asks on behalf of one router.
pub(crate) struct Asker<H> {
    pub(crate) host: Arc<H>,
    pub(crate) exchange: Arc<Exchange>,
}

impl<H> Clone for Asker<H> {
    fn clone(&self) -> Self {
        Self { host: self.host.clone(), exchange: self.exchange.clone() }
    }
}

impl<H: Host> Asker<H> {
    pub(crate) async fn segments(&self, peer: &Candidate, ask: &Ask) -> Result<Segments, AskError> {
        let answer = self.ask(peer, ask, MAX_EXCHANGE_BYTES).await?;
        Ok(decode_segments(&answer)?)
    }

    /// All or nothing.
    pub(crate) async fn snapshot(&self, peer: &Candidate) -> Result<Lesson, AskError> {
        timeout(SNAPSHOT_TIMEOUT, self.collect_pages(peer)).await.map_err(|_| AskError::Late)?
    }

    async fn collect_pages(&self, peer: &Candidate) -> Result<Lesson, AskError> {
        let to = peer.id;
        let head = decode_head(&self.ask(peer, &Ask::Head { to }, MAX_HEAD_BYTES).await?)?;
        let (mut pages, mut bytes, mut next) = (Vec::new(), 0, Some(0));
        while let Some(cursor) = next {
            let page = self.ask(peer, &Ask::Page { to, cursor }, MAX_EXCHANGE_BYTES).await?;
            next = decode_page(&page)?.next;
            bytes += page.len();
            pages.push(page);
            let moves_on = next.is_none_or(|next| next > cursor);
            if !moves_on || bytes > MAX_SNAPSHOT_BYTES || pages.len() > MAX_PAGES {
                return Err(AskError::Endless);
            }
        }
        debug!(peer = %peer.name, pages = pages.len(), bytes, "snapshot fetched");
        let snapshot = Snapshot { teacher: to, epochs: head.epochs, histories: head.histories, pages };
        Ok(Lesson { snapshot, origins: head.origins })
    }

    /// The answer's body. With two secrets, the previous one is tried when the current one is not known.
    async fn ask(&self, peer: &Candidate, ask: &Ask, limit: usize) -> Result<Vec<u8>, AskError> {
        let body = encode_ask(ask);
        let mut result = Err(AskError::NotOurs);
        for way in 0..self.exchange.ways() {
            let asked = self.exchange.ask(&body, way);
            let fetch = self.host.fetch(&peer.url, asked.bytes.clone(), limit + ANSWER_OVERHEAD);
            let fetched = timeout(ANSWER_TIMEOUT, fetch).await.map_err(|_| AskError::Late)?;
            result = match fetched {
                Ok(bytes) if bytes.len() > limit + ANSWER_OVERHEAD => Err(FetchError::TooLong.into()),
                Ok(bytes) => self.exchange.open_answer(&asked, &bytes).map_err(|_| AskError::NotOurs),
                Err(error) => Err(error.into()),
            };
            if result != Err(AskError::Fetch(FetchError::Refused(Refused::Foreign.status()))) {
                break;
            }
        }
        result
    }
}

impl AskError {
    /// Whether the peer said that it knows nothing yet.
    pub(crate) fn is_joining(&self) -> bool {
        *self == Self::Fetch(FetchError::Refused(Refused::Joining.status()))
    }
}
