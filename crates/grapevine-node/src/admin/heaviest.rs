//! The JSON of `/api/v1/tree`: the heaviest prefixes of this router's tree, by hash and size, never text.

use std::sync::Arc;
use std::time::Duration;

use grapevine_tree::HeavyPrefix;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::decisions::hash8;
use super::survey::Observatory;

/// Prefixes shown, at most.
pub const MAX_PREFIXES: usize = 1_024;

/// Prefixes shown unless asked.
pub const PREFIXES: usize = 256;

/// Replicas named with a prefix.
const HOLDERS: usize = 4;

/// How long one weighing is good for all who look.
const FRESH: Duration = Duration::from_secs(2);

/// The heaviest prefixes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TreeView {
    /// Radix nodes of the tree.
    pub nodes_total: usize,
    /// Boundaries stored.
    pub boundaries_total: usize,
    /// Tokens of all labels below.
    pub tokens_shown: u64,
    /// Parents before children.
    pub nodes: Vec<PrefixView>,
}

/// A prefix.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PrefixView {
    /// Eight hexadecimal digits of its hash.
    pub hash: String,
    /// Where in the list the prefix above it is.
    pub parent: Option<usize>,
    /// Bytes from the prompt's beginning.
    pub depth_bytes: u64,
    /// The same in tokens, estimated.
    pub depth_tokens: u64,
    /// Tokens that it adds to the prefix above.
    pub tokens: u64,
    /// Its tokens and those of all prefixes below it that are shown.
    pub weight_tokens: u64,
    /// Picks of it lately.
    pub count: f32,
    /// Who holds it, the most picked first.
    pub replicas: Vec<Holder>,
}

/// A replica that is believed to hold a prefix.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub name: String,
    /// Picks lately.
    pub count: f32,
}

/// The last weighing, whole.
#[derive(Debug, Default)]
pub struct Weighed(Mutex<Option<(Instant, Arc<Vec<HeavyPrefix>>)>>);

impl Observatory {
    /// The `limit` heaviest prefixes.
    pub async fn heaviest(&self, limit: usize) -> TreeView {
        let found = self.weighed().await;
        // Parents come first, and the heaviest paths do: a beginning of the list is a list.
        let shown = found.get(..limit.min(found.len())).unwrap_or_default();
        let mut nodes: Vec<PrefixView> = shown.iter().map(|prefix| self.prefix(prefix)).collect();
        for at in (0..nodes.len()).rev() {
            let Some((weight, Some(parent))) = nodes.get(at).map(|n| (n.weight_tokens, n.parent)) else {
                continue;
            };
            if let Some(parent) = nodes.get_mut(parent) {
                parent.weight_tokens += weight;
            }
        }
        let stats = self.tree.stats();
        TreeView {
            nodes_total: stats.nodes,
            boundaries_total: stats.boundaries,
            tokens_shown: nodes.iter().map(|node| node.tokens).sum(),
            nodes,
        }
    }

    async fn weighed(&self) -> Arc<Vec<HeavyPrefix>> {
        let mut last = self.weighed.0.lock().await;
        if let Some((_, found)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(found);
        }
        let found = Arc::new(self.tree.heaviest(MAX_PREFIXES).await);
        *last = Some((Instant::now(), Arc::clone(&found)));
        found
    }

    fn prefix(&self, prefix: &HeavyPrefix) -> PrefixView {
        let set = self.replicas.replicas().load();
        let tokens = |bytes: usize| (bytes as f32 / self.bytes_per_token) as u64;
        let holder = |(id, count): &(_, f32)| {
            let name = set.get(*id).map_or_else(|| format!("{id:?}"), |replica| replica.name.clone());
            Holder { name, count: *count }
        };
        PrefixView {
            hash: hash8(prefix.hash),
            parent: prefix.parent,
            depth_bytes: prefix.depth_bytes as u64,
            depth_tokens: tokens(prefix.depth_bytes),
            tokens: tokens(prefix.own_bytes),
            weight_tokens: tokens(prefix.own_bytes),
            count: prefix.count,
            replicas: prefix.holders.iter().take(HOLDERS).map(holder).collect(),
        }
    }
}
