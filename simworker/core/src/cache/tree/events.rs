//! What is told of blocks that come and go. Nothing is computed or kept unless somebody wants to know.

use super::{NodeId, Tree};
use crate::namespace::{BlockNaming, CacheNames};
use protocol::kv_events::{
    BlockHash, Digest, KvEvent, Medium, NamespaceSeed, Removed, Stored, append, chain,
};
use protocol::tokenizer::Token;
use std::sync::Arc;

/// Collects events.
#[derive(Debug)]
pub(super) struct Recorder {
    naming: BlockNaming,
    events: Vec<KvEvent>,
}

/// The names of a node's blocks. Eight bytes per page; the whole digest is kept for the last one only, and a split
/// computes those of the upper part anew.
#[derive(Debug)]
pub(super) struct Print {
    /// As they are published.
    hashes: Vec<BlockHash>,
    /// Of the last block, for those that follow.
    last: Digest,
    names: Option<Arc<CacheNames>>,
    seed: Option<NamespaceSeed>,
}

impl Print {
    fn new(
        names: Option<Arc<CacheNames>>,
        seed: Option<NamespaceSeed>,
        before: Option<Digest>,
        pages: std::slice::Chunks<'_, Token>,
    ) -> Option<Self> {
        let (mut last, mut hashes) = (before, Vec::with_capacity(pages.len()));
        for page in pages {
            let digest = chain(last, page);
            hashes.push(seed.map_or(digest.hash(), |seed| seed.apply(digest.hash())));
            last = Some(digest);
        }
        Some(Self { hashes, last: last?, names, seed })
    }
}

impl Tree {
    /// Records events from now on.
    pub(in crate::cache) fn record(&mut self, naming: BlockNaming) {
        self.recorder = Some(Recorder { naming, events: Vec::new() });
        self.record_cleared();
    }

    /// What has been recorded since the last call.
    pub(in crate::cache) fn take_events(&mut self) -> Vec<KvEvent> {
        self.recorder.as_mut().map(|recorder| std::mem::take(&mut recorder.events)).unwrap_or_default()
    }

    /// Names the blocks of a new leaf. `names` are those of the request that made it.
    pub(super) fn name_leaf(&mut self, leaf: NodeId, names: Option<&Arc<CacheNames>>) {
        let Some(Recorder { naming, .. }) = &self.recorder else { return };
        let node = &self.nodes[leaf];
        let pages = node.edge.chunks(self.page);
        let print = match &self.nodes[node.parent].print {
            Some(above) => Print::new(above.names.clone(), above.seed, Some(above.last), pages),
            None => {
                let seed = names.and_then(|names| names.seed(*naming));
                let before = names.and_then(|names| names.chain_seed());
                Print::new(names.cloned(), seed, before, pages)
            }
        };
        self.nodes[leaf].print = print.map(Box::new);
    }

    /// Divides the names of a node that has been split.
    pub(super) fn split_names(&mut self, upper: NodeId, lower: NodeId) {
        let Some(mut print) = self.nodes[lower].print.take() else { return };
        let node = &self.nodes[upper];
        let before = match &self.nodes[node.parent].print {
            Some(above) => Some(above.last),
            None => print.names.as_ref().and_then(|names| names.chain_seed()),
        };
        let above = Print::new(print.names.clone(), print.seed, before, node.edge.chunks(self.page));
        print.hashes.drain(..node.edge.len() / self.page);
        self.nodes[lower].print = Some(print);
        self.nodes[upper].print = above.map(Box::new);
    }

    pub(super) fn record_stored(&mut self, id: NodeId, medium: Medium) {
        let node = &self.nodes[id];
        let (Some(recorder), Some(print)) = (&mut self.recorder, &node.print) else { return };
        let names = print.names.as_deref();
        let stored = Stored {
            hashes: print.hashes.clone(),
            parent: self.nodes[node.parent].print.as_ref().and_then(|above| above.hashes.last().copied()),
            tokens: node.edge.to_vec(),
            block_size: self.page as u32,
            lora_id: None,
            medium: Some(medium),
            cache_salt: names.and_then(|names| names.cache_salt.clone()),
            session_id: None,
            lora_name: names.and_then(|names| names.lora.clone()),
        };
        append(&mut recorder.events, KvEvent::Stored(stored));
    }

    pub(super) fn record_removed(&mut self, id: NodeId, medium: Medium) {
        let (Some(recorder), Some(print)) = (&mut self.recorder, &self.nodes[id].print) else { return };
        let removed = Removed { hashes: print.hashes.clone(), medium: Some(medium) };
        append(&mut recorder.events, KvEvent::Removed(removed));
    }

    pub(super) fn record_cleared(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            append(&mut recorder.events, KvEvent::Cleared);
        }
    }
}
