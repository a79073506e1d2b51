//! grapevine's tree and the public crates for the same work, behind one trait: remember that a prompt went
//! to a replica; say who has how much of a prompt.
//!
//! Each takes what it is made for. grapevine takes the request's body; beside it stands the same without
//! the search for the prompt in the JSON, which the others must have done before. kv-index has a tree of text (what
//! its HTTP router uses), a tree of tokens (its gRPC router) and an index of block hashes that engines
//! report; dynamo-kv-router has an index of block hashes. Tokenizing is not counted: tokens are given.
//! Where block hashes are needed, making them from tokens is counted, as it happens on every request.

use dynamo_kv_router::RadixTree;
use dynamo_kv_router::protocols::{
    BlockHashOptions, ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData,
    KvCacheStoredBlockData, RouterEvent, compute_block_hash_for_seq, compute_seq_hash_for_block,
};
use grapevine_tree::{
    Api, Extractor, KeySeed, Matches, PrefixKey, PrefixTree, ReplicaId, TreeConfig, boundary,
};
use kv_index::{
    ChainBlockMap, ChainIndex, StoredBlock, StringTree, TokenTree, compute_request_content_hashes,
    request_prefix_hashes,
};

use grapevine_bench::text::{chat_body, text, tokens};

/// Tokens in a block: what vLLM caches by, and kv-index's page.
pub const BLOCK_TOKENS: usize = 16;

/// Replicas in the comparison.
pub const REPLICAS: u32 = 16;

/// One prompt in every form that somebody takes.
pub struct Prompt {
    /// The request's body.
    pub body: Vec<u8>,
    /// The prompt's text.
    pub text: String,
    /// The prompt's tokens.
    pub tokens: Vec<u32>,
}

impl Prompt {
    /// Prompt `n` of `bytes`, the first quarter of which it shares with every 64th other.
    pub fn sharing(n: u64, bytes: usize) -> Self {
        Self::of(&text(n % 64, bytes / 4), &text(1 << 32 | n, bytes - bytes / 4))
    }

    /// Prompt `n` of `bytes`, which shares nothing.
    pub fn unique(n: u64, bytes: usize) -> Self {
        Self::of(&text(2 << 32 | n, bytes / 2), &text(3 << 32 | n, bytes - bytes / 2))
    }

    fn of(system: &str, question: &str) -> Self {
        let text = format!("{system}{question}");
        Self { body: chat_body(system, question), tokens: tokens(&text), text }
    }
}

/// Something that knows who was sent which prompt.
pub trait Subject {
    /// Remembers that `prompt` went to `replica`.
    fn insert(&mut self, prompt: &Prompt, replica: u32);

    /// How much of `prompt` somebody has, in its own unit.
    fn lookup(&mut self, prompt: &Prompt) -> usize;
}

/// Makes an empty one.
pub type Make = fn() -> Box<dyn Subject>;

/// Name and maker of everything that is compared.
pub const SUBJECTS: [(&str, Make); 6] = [
    ("grapevine", || Box::new(Grapevine::new())),
    ("grapevine, text given", || Box::new(Grapevine { text_given: true, ..Grapevine::new() })),
    ("kv-index StringTree", || Box::new(Text(StringTree::new()))),
    ("kv-index TokenTree", || Box::new(Tokens(TokenTree::new()))),
    ("kv-index ChainIndex", || Box::new(Chain::new())),
    ("dynamo RadixTree", || Box::new(Dynamo::default())),
];

/// URLs, which kv-index's trees name replicas by.
fn url(replica: u32) -> String {
    format!("http://10.0.0.{replica}:8000")
}

/// Key and tree.
pub struct Grapevine {
    extractor: Extractor,
    tree: PrefixTree,
    matches: Matches,
    text_given: bool,
}

impl Grapevine {
    /// Room for everything that the comparison stores, as the others have.
    pub fn new() -> Self {
        Self::limited(16_000_000)
    }

    /// With the limit of a router as configured by default.
    pub fn by_default() -> Self {
        Self::limited(TreeConfig::default().max_boundaries)
    }

    fn limited(max_boundaries: usize) -> Self {
        let config = TreeConfig { max_boundaries, default_capacity_tokens: 1 << 40, ..TreeConfig::default() };
        Self {
            extractor: Extractor::new(KeySeed(1)),
            tree: PrefixTree::new(config),
            matches: Matches::new(),
            text_given: false,
        }
    }

    fn key(&mut self, prompt: &Prompt) -> PrefixKey {
        if !self.text_given {
            return self.extractor.extract(Api::Chat, &prompt.body, b"").key;
        }
        let text = prompt.text.as_bytes();
        let mut hashes = Vec::with_capacity(boundary::count(text.len()));
        boundary::hash_into(1, text, &mut hashes);
        PrefixKey { hashes, bytes: text.len() as u64 }
    }
}

impl Default for Grapevine {
    fn default() -> Self {
        Self::new()
    }
}

impl Subject for Grapevine {
    fn insert(&mut self, prompt: &Prompt, replica: u32) {
        let key = self.key(prompt);
        self.tree.observe(&key, ReplicaId(replica), (prompt.text.len() / 4) as u32, 0);
    }

    fn lookup(&mut self, prompt: &Prompt) -> usize {
        let key = self.key(prompt);
        self.tree.lookup(&key, 0, &mut self.matches);
        self.matches.first().map_or(0, |m| m.bytes as usize)
    }
}

struct Text(StringTree);

impl Subject for Text {
    fn insert(&mut self, prompt: &Prompt, replica: u32) {
        self.0.insert_text(&prompt.text, &url(replica));
    }

    fn lookup(&mut self, prompt: &Prompt) -> usize {
        self.0.match_prefix_with_counts(&prompt.text).matched_char_count
    }
}

struct Tokens(TokenTree);

impl Subject for Tokens {
    fn insert(&mut self, prompt: &Prompt, replica: u32) {
        self.0.insert_tokens(&prompt.tokens, &url(replica));
    }

    fn lookup(&mut self, prompt: &Prompt) -> usize {
        self.0.match_prefix_with_counts(&prompt.tokens).matched_token_count
    }
}

/// An index, and per replica the map of its blocks that the index needs for its events.
struct Chain {
    index: ChainIndex,
    maps: Vec<ChainBlockMap>,
}

impl Chain {
    fn new() -> Self {
        let index = ChainIndex::new();
        for replica in 0..REPLICAS {
            index.intern_worker(&url(replica)).expect("room for 16 workers");
        }
        Self { index, maps: (0..REPLICAS).map(|_| ChainBlockMap::new()).collect() }
    }
}

impl Subject for Chain {
    fn insert(&mut self, prompt: &Prompt, replica: u32) {
        let contents = compute_request_content_hashes(&prompt.tokens, BLOCK_TOKENS);
        let chain = request_prefix_hashes(&contents);
        let block = |(seq_hash, content_hash)| StoredBlock { seq_hash, content_hash };
        let blocks: Vec<_> = chain.into_iter().zip(contents).map(block).collect();
        let map = &mut self.maps[replica as usize];
        self.index.apply_stored(replica, &blocks, None, map).expect("a chain from its start");
    }

    fn lookup(&mut self, prompt: &Prompt) -> usize {
        let contents = compute_request_content_hashes(&prompt.tokens, BLOCK_TOKENS);
        let scores = self.index.find_matches(&contents, false).scores;
        scores.values().max().map_or(0, |&blocks| blocks as usize)
    }
}

#[derive(Default)]
struct Dynamo(Option<RadixTree>);

impl Dynamo {
    fn tree(&mut self) -> &mut RadixTree {
        self.0.get_or_insert_with(RadixTree::new)
    }
}

impl Subject for Dynamo {
    fn insert(&mut self, prompt: &Prompt, replica: u32) {
        let hashes =
            compute_block_hash_for_seq(&prompt.tokens, BLOCK_TOKENS as u32, BlockHashOptions::default());
        let chain = compute_seq_hash_for_block(&hashes);
        let block = |(&tokens_hash, sequence)| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(sequence),
            tokens_hash,
            mm_extra_info: None,
        };
        let blocks = hashes.iter().zip(chain).map(block).collect();
        let stored = KvCacheStoreData { parent_hash: None, start_position: None, blocks };
        let event = KvCacheEvent { event_id: 0, data: KvCacheEventData::Stored(stored), dp_rank: 0 };
        let event = RouterEvent::new(u64::from(replica), event);
        self.tree().apply_event(event).expect("a chain from its start");
    }

    fn lookup(&mut self, prompt: &Prompt) -> usize {
        let hashes =
            compute_block_hash_for_seq(&prompt.tokens, BLOCK_TOKENS as u32, BlockHashOptions::default());
        let scores = self.tree().find_matches(hashes, false).scores;
        scores.values().max().map_or(0, |&blocks| blocks as usize)
    }
}
