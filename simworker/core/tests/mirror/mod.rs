//! A mirror of a cache, built from nothing but its events.

use protocol::kv_events::{BlockHash, Digest, KvEvent, Medium, chain};
use protocol::tokenizer::Token;
use simworker_core::cache::Cached;
use std::collections::BTreeMap;

/// What an observer knows: how often each block is there. Namespaces without salt share names, so a block may be there
/// more than once.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    blocks: BTreeMap<(Medium, BlockHash), i64>,
    /// Which tokens and which parent a block has been stored with.
    known: BTreeMap<BlockHash, (Option<BlockHash>, Vec<Token>)>,
    /// Names made from tokens, by the name before and the tokens, as making them takes long.
    made: BTreeMap<(Option<BlockHash>, Vec<Token>), Digest>,
}

impl Mirror {
    /// Takes in what has happened since the last time.
    pub(crate) fn apply(
        &mut self,
        events: impl IntoIterator<Item = KvEvent>,
        page: usize,
    ) -> Result<(), String> {
        events.into_iter().try_for_each(|event| self.take(event, page))
    }

    fn take(&mut self, event: KvEvent, page: usize) -> Result<(), String> {
        match event {
            KvEvent::Cleared => self.blocks.clear(),
            KvEvent::Stored(stored) => {
                let medium = stored.medium.ok_or("stored, but where?")?;
                if stored.hashes.len() * page != stored.tokens.len() || stored.block_size as usize != page {
                    return Err(format!("tokens and blocks do not fit: {stored:?}"));
                }
                let mut parent = stored.parent;
                for (hash, tokens) in stored.hashes.iter().zip(stored.tokens.chunks(page)) {
                    let place = (parent, tokens.to_vec());
                    if *self.known.entry(*hash).or_insert_with(|| place.clone()) != place {
                        return Err(format!("{hash:?} means two things"));
                    }
                    if parent.is_some_and(|parent| !self.has_anywhere(parent)) {
                        return Err(format!("{hash:?} is stored after {parent:?}, which is nowhere"));
                    }
                    *self.blocks.entry((medium, *hash)).or_default() += 1;
                    parent = Some(*hash);
                }
            }
            KvEvent::Removed(removed) => {
                let medium = removed.medium.ok_or("removed, but from where?")?;
                for hash in removed.hashes {
                    let count = self.blocks.entry((medium, hash)).or_default();
                    *count -= 1;
                    match *count {
                        0 => drop(self.blocks.remove(&(medium, hash))),
                        1.. => {}
                        _ => return Err(format!("{hash:?} is removed from {medium:?}, where it is not")),
                    }
                }
            }
        }
        Ok(())
    }

    fn has_anywhere(&self, hash: BlockHash) -> bool {
        Medium::ALL.iter().any(|medium| self.blocks.contains_key(&(*medium, hash)))
    }

    /// Compares all with what a cache has. The names are made anew from its tokens.
    pub(crate) fn compare(
        &mut self,
        contents: impl Iterator<Item = Cached>,
        page: usize,
    ) -> Result<(), String> {
        let mut expected: BTreeMap<(Medium, BlockHash), i64> = BTreeMap::new();
        for cached in contents {
            let mut parent: Option<Digest> = None;
            for (at, tokens) in cached.path.chunks(page).enumerate() {
                let key = (parent.map(Digest::hash), tokens.to_vec());
                let digest = *self.made.entry(key).or_insert_with(|| chain(parent, tokens));
                parent = Some(digest);
                if at * page < cached.start {
                    continue;
                }
                for (medium, there) in [(Medium::Gpu, cached.on_device), (Medium::CpuPinned, cached.on_host)]
                {
                    if there {
                        *expected.entry((medium, digest.hash())).or_default() += 1;
                    }
                }
            }
        }
        if self.blocks == expected {
            return Ok(());
        }
        let missing = expected.iter().find(|(block, count)| self.blocks.get(block) != Some(count));
        let surplus = self.blocks.iter().find(|(block, count)| expected.get(block) != Some(count));
        Err(format!("the mirror differs: the cache has {missing:?}, the mirror {surplus:?}"))
    }
}
