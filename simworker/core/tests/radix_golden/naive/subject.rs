//! The operations of the model, as a trace plays them.

use super::{Naive, NaiveHold, State};
use crate::subject::{Counts, Insertion, Subject};
use protocol::tokenizer::Token;
use simworker_core::cache::{CacheConfig, HostTier};
use std::collections::BTreeMap;

impl Subject for Naive {
    type Hold = NaiveHold;

    fn new(config: CacheConfig, tier: Option<HostTier>) -> Self {
        Self {
            tier,
            copies: 0,
            page: config.page_size as usize,
            capacity: config.capacity_tokens,
            eviction: config.eviction,
            clock: 0,
            nodes: Vec::new(),
            holds: BTreeMap::new(),
            holds_made: 0,
        }
    }

    fn probe(&mut self, tokens: &[Token], namespace: u64) -> usize {
        self.find(tokens, namespace)
    }

    fn acquire(&mut self, tokens: &[Token], namespace: u64) -> NaiveHold {
        let found = tokens[..self.find(tokens, namespace)].to_vec();
        let len = self.device_len(&found, namespace);
        self.holds_made += 1;
        let state = State { namespace, path: found[..len].to_vec(), kv_len: len, inserted_len: 0, found };
        self.holds.insert(self.holds_made, state);
        NaiveHold(self.holds_made, len)
    }

    fn load_back(&mut self, hold: &mut NaiveHold) -> u64 {
        let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
        let (before, all, namespace) = (state.path.clone(), state.found.clone(), state.namespace);
        let tokens = (all.len() - before.len()) as u64;
        if tokens < self.tier.map_or(0, |tier| tier.load_back_threshold) || tokens == 0 {
            return 0;
        }
        // The whole path is locked, yet nothing more is private.
        state.path.clone_from(&all);
        state.kv_len = all.len();
        self.evict_to_free(tokens);
        let fits = self.free() >= tokens;
        if fits {
            for at in self.path(&all, namespace) {
                self.nodes[at].device = true;
                self.note_copy(at);
            }
            hold.1 = all.len();
        } else {
            let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
            state.kv_len = before.len();
            state.path = before;
        }
        if fits { tokens } else { 0 }
    }

    fn refuse(&mut self, hold: NaiveHold) {
        self.drop_private(hold);
    }

    fn evict_to_free(&mut self, tokens: u64) -> u64 {
        let before = self.free();
        let mut free = before;
        while free < tokens {
            let Some(at) = self.victim() else { break };
            self.give_up(at);
            free = self.free();
        }
        free - before
    }

    fn extend(&mut self, hold: &mut NaiveHold, n: usize) -> Result<(), String> {
        let pages = (hold.1 + n).div_ceil(self.page) - hold.1.div_ceil(self.page);
        if ((pages * self.page) as u64) > self.free() {
            return Err("full".into());
        }
        hold.1 += n;
        self.holds.get_mut(&hold.0).expect("holds are given back once").kv_len = hold.1;
        Ok(())
    }

    fn checkpoint(&mut self, hold: &mut NaiveHold, tokens: &[Token], up_to: usize, of: Insertion) {
        let (end, prompt_end) = (self.floor(up_to), self.floor(of.prompt_len));
        let inserted_len = self.holds[&hold.0].inserted_len;
        self.insert(&tokens[..end], of.namespace, of.priority, inserted_len);
        if prompt_end < end {
            self.insert(&tokens[..prompt_end], of.namespace, of.priority + 1, end);
        }
        self.walk(&tokens[..end], of.namespace, |_| ());
        let state = self.holds.get_mut(&hold.0).expect("holds are given back once");
        state.path = tokens[..end].to_vec();
        state.inserted_len = end;
    }

    fn finish(&mut self, mut hold: NaiveHold, tokens: &[Token], of: Insertion) {
        let up_to = hold.1;
        self.checkpoint(&mut hold, tokens, up_to, of);
        self.drop_private(hold);
    }

    fn drop_private(&mut self, hold: NaiveHold) {
        self.holds.remove(&hold.0).expect("holds are given back once");
    }

    fn flush(&mut self) -> bool {
        let idle = self.holds.is_empty();
        if idle {
            self.nodes.clear();
        }
        idle
    }

    fn kv_len(hold: &NaiveHold) -> usize {
        hold.1
    }

    fn counts(&self) -> Counts {
        Counts {
            free: self.free(),
            evictable: self.tokens_in(false),
            protected: self.tokens_in(true),
            nodes: self.nodes.len(),
            host: self.host_used(),
        }
    }
}
