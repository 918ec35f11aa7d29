//! What a trace is played on: the cache itself, or the model of it.

use protocol::tokenizer::Token;
use simworker_core::BlockNaming;
use simworker_core::cache::{CacheConfig, Hold, HostTier, KvCache};

/// The operations of the cache, for the one driver of both arms. Their meaning is that of [`KvCache`].
pub(crate) trait Subject {
    type Hold;
    fn new(config: CacheConfig, tier: Option<HostTier>) -> Self;
    fn probe(&mut self, tokens: &[Token], namespace: u64) -> usize;
    fn acquire(&mut self, tokens: &[Token], namespace: u64) -> Self::Hold;
    fn load_back(&mut self, hold: &mut Self::Hold) -> u64;
    fn refuse(&mut self, hold: Self::Hold);
    fn evict_to_free(&mut self, tokens: u64) -> u64;
    fn extend(&mut self, hold: &mut Self::Hold, n: usize) -> Result<(), String>;
    fn checkpoint(&mut self, hold: &mut Self::Hold, tokens: &[Token], up_to: usize, of: Insertion);
    fn finish(&mut self, hold: Self::Hold, tokens: &[Token], of: Insertion);
    fn drop_private(&mut self, hold: Self::Hold);
    fn flush(&mut self) -> bool;
    fn kv_len(hold: &Self::Hold) -> usize;
    fn counts(&self) -> Counts;
}

/// As whose tokens are inserted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Insertion {
    pub(crate) prompt_len: usize,
    pub(crate) namespace: u64,
    pub(crate) priority: i64,
}

/// The counters that a trace tells after each operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) free: u64,
    pub(crate) evictable: u64,
    pub(crate) protected: u64,
    pub(crate) nodes: usize,
    /// Tokens on the host.
    pub(crate) host: u64,
}

impl Subject for KvCache {
    type Hold = Hold;

    fn new(config: CacheConfig, tier: Option<HostTier>) -> Self {
        let cache = KvCache::new(config).recording(BlockNaming::Default);
        match tier {
            Some(tier) => cache.with_host(tier),
            None => cache,
        }
    }

    fn probe(&mut self, tokens: &[Token], namespace: u64) -> usize {
        self.probe(tokens, namespace)
    }

    fn acquire(&mut self, tokens: &[Token], namespace: u64) -> Hold {
        self.acquire(tokens, namespace)
    }

    fn load_back(&mut self, hold: &mut Hold) -> u64 {
        self.load_back(hold)
    }

    fn refuse(&mut self, hold: Hold) {
        self.refuse(hold);
    }

    fn evict_to_free(&mut self, tokens: u64) -> u64 {
        let before = self.evicted_total();
        let evicted = self.evict_to_free(tokens);
        assert_eq!(self.evicted_total() - before, evicted);
        evicted
    }

    fn extend(&mut self, hold: &mut Hold, n: usize) -> Result<(), String> {
        self.extend(hold, n).map_err(|full| full.to_string())
    }

    fn checkpoint(&mut self, hold: &mut Hold, tokens: &[Token], up_to: usize, of: Insertion) {
        self.checkpoint(hold, tokens, up_to, of.prompt_len, of.namespace, of.priority);
    }

    fn finish(&mut self, hold: Hold, tokens: &[Token], of: Insertion) {
        self.finish(hold, tokens, of.prompt_len, of.namespace, of.priority);
    }

    fn drop_private(&mut self, hold: Hold) {
        self.drop_private(hold);
    }

    fn flush(&mut self) -> bool {
        self.flush()
    }

    fn kv_len(hold: &Hold) -> usize {
        hold.kv_len()
    }

    fn counts(&self) -> Counts {
        Counts {
            free: self.free(),
            evictable: self.evictable(),
            protected: self.protected(),
            nodes: self.node_count(),
            host: self.host_usage().map_or(0, |(used, _)| used),
        }
    }
}
