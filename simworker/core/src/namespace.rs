//! What sets requests apart that must not share KV, in words: KV events tell it.

use std::sync::Arc;

use protocol::kv_events::{Digest, NamespaceSeed, salt_seed};
use protocol::tokenizer::mix;

/// The names behind [`Submit::namespace`](crate::Submit::namespace), for events about the blocks of a request. Equal
/// namespaces have equal names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheNames {
    /// The client's extra key.
    pub extra_key: Option<Arc<str>>,
    /// The client's cache salt.
    pub cache_salt: Option<Arc<str>>,
    /// The LoRA adapter.
    pub lora: Option<Arc<str>>,
}

/// From what the names of blocks are made (`format` of `--kv-events-config`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockNaming {
    /// From tokens, cache salt and LoRA adapter; extra keys make no difference.
    #[default]
    Default,
    /// From the extra key too, as the Dynamo router wants it.
    Dynamo,
}

impl BlockNaming {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Default, Self::Dynamo];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Dynamo => "dynamo",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|naming| naming.label() == label)
    }
}

impl CacheNames {
    /// What stands before the first block of a sequence.
    pub(crate) fn chain_seed(&self) -> Option<Digest> {
        self.cache_salt.as_deref().map(salt_seed)
    }

    /// What blocks are renamed with.
    pub(crate) fn seed(&self, naming: BlockNaming) -> Option<NamespaceSeed> {
        match naming {
            BlockNaming::Default => {
                self.lora.as_ref().and_then(|_| NamespaceSeed::of(self.full_key().as_deref(), None))
            }
            BlockNaming::Dynamo => NamespaceSeed::of(self.full_key().as_deref(), self.cache_salt.as_deref()),
        }
    }

    /// SGLang appends an id of the adapter, 32 hexadecimal digits, to the extra key. Its ids are random; these are a
    /// function of the name, so that restarts of a mock name blocks alike.
    fn full_key(&self) -> Option<String> {
        let Some(lora) = &self.lora else { return self.extra_key.as_deref().map(str::to_owned) };
        let id = lora.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        Some(format!("{}{id:016x}{:016x}", self.extra_key.as_deref().unwrap_or_default(), mix(id)))
    }
}
