//! How the cache tells contents apart.

use protocol::tokenizer::Token;

/// Symbols that make up the name of a page: two halves of 64 bits, so that among all pages that are ever compared no two of
/// different content have one name.
pub(crate) const NAME_SYMBOLS: usize = 2;

/// What sequences are spelled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// Token by token.
    Tokens,
    /// By the names of whole pages of so many tokens.
    PageNames {
        /// Tokens per page.
        page: u32,
    },
}

impl Spelling {
    /// Tokens that a symbol stands for.
    pub(super) fn grain(self) -> usize {
        match self {
            Self::Tokens => 1,
            Self::PageNames { page } => page as usize / NAME_SYMBOLS,
        }
    }
}

/// A sequence of tokens as it is spelled for a cache.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    symbols: &'a [u32],
    /// Its tokens. Where pages are named, the rest after the last whole one has no symbols.
    pub(super) len: usize,
}

impl<'a, T: AsRef<[Token]> + ?Sized> From<&'a T> for Sequence<'a> {
    fn from(tokens: &'a T) -> Self {
        let symbols = tokens.as_ref();
        Self { symbols, len: symbols.len() }
    }
}

impl<'a> Sequence<'a> {
    pub(crate) fn new(symbols: &'a [u32], len: usize) -> Self {
        Self { symbols, len }
    }

    /// The symbols of the first `tokens`, which are whole pages.
    pub(super) fn cut(self, tokens: usize, spelling: Spelling) -> &'a [u32] {
        &self.symbols[..tokens / spelling.grain()]
    }
}
