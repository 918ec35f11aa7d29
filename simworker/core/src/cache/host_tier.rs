//! What a cache's second tier is made of.

/// When KV is copied from the device to the host (`--hicache-write-policy`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// As soon as it is in the tree.
    #[default]
    Through,
    /// When a second request has used it.
    ThroughSelective,
    /// When the device gives it up.
    Back,
}

impl WritePolicy {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Through, Self::ThroughSelective, Self::Back];

    /// SGLang's word for it.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Through => "write_through",
            Self::ThroughSelective => "write_through_selective",
            Self::Back => "write_back",
        }
    }

    /// The one with that [label](Self::label).
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.label() == label)
    }

    /// Hits after which a node is copied; none if hits do not matter.
    pub(super) fn hits(self) -> Option<u32> {
        match self {
            Self::Through => Some(1),
            Self::ThroughSelective => Some(2),
            Self::Back => None,
        }
    }
}

/// A second tier of the cache, in memory of the host (SGLang's HiCache).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTier {
    /// Tokens that it holds; rounded down to whole pages.
    pub capacity_tokens: u64,
    /// When KV is copied there.
    pub write: WritePolicy,
    /// Fewer tokens than this are computed again rather than loaded back.
    pub load_back_threshold: u64,
}
