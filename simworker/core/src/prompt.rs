//! What a request asks with, and how it is spelled for the cache.
//!
//! A world that makes its own prompts knows them as runs of named blocks of generated text. Where the cache's pages are long
//! enough, it need not see a single token: a page is as well told by the name of the block that it is cut from and by the place.
//! That is what makes a million long prompts affordable.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use protocol::tokenizer::{REPLY_DEPENDS_ON, Token, extend_with_block, mix, reply_block, reply_block_after};

use crate::cache::{NAME_SYMBOLS, Sequence, Spelling};

/// The first tokens of a named block of generated text: token `i` is `block_token(block, i)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The block's name.
    pub block: u64,
    /// How many of its tokens.
    pub tokens: u32,
}

/// A prompt. Those that one engine is given must all be tokens or all be runs.
#[derive(Debug, Clone)]
pub struct Prompt(Content);

#[derive(Debug, Clone)]
enum Content {
    Tokens(Arc<[Token]>),
    Runs {
        runs: Arc<[Run]>,
        len: usize,
        /// Its pages by name, once they were asked for: a cache asks several times.
        names: OnceLock<Names>,
    },
}

impl From<Arc<[Token]>> for Prompt {
    fn from(tokens: Arc<[Token]>) -> Self {
        Self(Content::Tokens(tokens))
    }
}

impl From<Arc<[Run]>> for Prompt {
    fn from(runs: Arc<[Run]>) -> Self {
        let len = runs.iter().map(|run| run.tokens as usize).sum();
        Self(Content::Runs { runs, len, names: OnceLock::new() })
    }
}

impl Prompt {
    /// Its length in tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Content::Tokens(tokens) => tokens.len(),
            Content::Runs { len, .. } => *len,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its tokens.
    #[must_use]
    pub fn tokens(&self) -> Cow<'_, [Token]> {
        self.part(0, self.len())
    }

    /// The block that its reply is cut from.
    #[must_use]
    pub fn reply_block(&self) -> u64 {
        match &self.0 {
            Content::Tokens(tokens) => reply_block(tokens),
            Content::Runs { len, .. } => {
                let begin = len.saturating_sub(REPLY_DEPENDS_ON);
                reply_block_after(*len, &self.part(begin, *len))
            }
        }
    }

    /// The tokens from `begin` to `end`.
    fn part(&self, begin: usize, end: usize) -> Cow<'_, [Token]> {
        let runs = match &self.0 {
            Content::Tokens(tokens) => return Cow::Borrowed(&tokens[begin..end]),
            Content::Runs { runs, .. } => runs,
        };
        let (mut tokens, mut at) = (Vec::with_capacity(end - begin), 0);
        for run in runs.iter() {
            let run_end = at + run.tokens as usize;
            if run_end > begin && at < end {
                let places = begin.saturating_sub(at) as u32..(end.min(run_end) - at) as u32;
                extend_with_block(&mut tokens, run.block, places);
            }
            at = run_end;
        }
        Cow::Owned(tokens)
    }

    /// The first `count` tokens of prompt and reply, if there are so many before the reply's token `replied`.
    pub(crate) fn head(&self, count: usize, replied: u32) -> Option<Vec<Token>> {
        let of_reply = count.saturating_sub(self.len()) as u32;
        let mut head = self.part(0, count.min(self.len())).into_owned();
        if of_reply > replied {
            return None;
        }
        if of_reply > 0 {
            extend_with_block(&mut head, self.reply_block(), 0..of_reply);
        }
        Some(head)
    }

    /// The prompt and the first `replied` tokens of its reply, as the cache looks at them.
    pub(crate) fn spelled(&self, replied: u32, spelling: Spelling) -> Spelled<'_> {
        let len = self.len() + replied as usize;
        let symbols = match (&self.0, spelling) {
            (Content::Runs { runs, names, .. }, Spelling::PageNames { page }) => {
                let names = names.get_or_init(|| Names::of(runs, page));
                debug_assert_eq!(names.page, page, "a prompt is one engine's");
                match replied {
                    0 => Cow::Borrowed(&names.symbols[..]),
                    _ => Cow::Owned(names.followed_by(Run { block: self.reply_block(), tokens: replied })),
                }
            }
            (Content::Tokens(_), Spelling::PageNames { page }) => {
                Cow::Owned(names_of(&self.with_reply(replied), page as usize))
            }
            (_, Spelling::Tokens) => self.with_reply(replied),
        };
        Spelled { symbols, len }
    }

    fn with_reply(&self, replied: u32) -> Cow<'_, [Token]> {
        let prompt = self.tokens();
        if replied == 0 {
            return prompt;
        }
        let mut tokens = Vec::with_capacity(prompt.len() + replied as usize);
        tokens.extend_from_slice(&prompt);
        extend_with_block(&mut tokens, self.reply_block(), 0..replied);
        Cow::Owned(tokens)
    }
}

/// A sequence spelled for the cache.
pub(crate) struct Spelled<'a> {
    symbols: Cow<'a, [u32]>,
    len: usize,
}

impl Spelled<'_> {
    /// No more than its first `most` tokens.
    pub(crate) fn first(&self, most: usize) -> Sequence<'_> {
        Sequence::new(&self.symbols, self.len.min(most))
    }

    /// All of it.
    pub(crate) fn all(&self) -> Sequence<'_> {
        self.first(self.len)
    }
}

// === names of pages ===

/// The names of the whole pages of a sequence, and what there is of the next one.
#[derive(Debug, Clone)]
struct Names {
    page: u32,
    symbols: Vec<u32>,
    /// The name so far of the page that is begun, and the tokens that it lacks.
    begun: u64,
    lacks: u32,
}

impl Names {
    fn of(runs: &[Run], page: u32) -> Self {
        let tokens: usize = runs.iter().map(|run| run.tokens as usize).sum();
        let symbols = Vec::with_capacity(tokens / page as usize * NAME_SYMBOLS);
        let mut names = Self { page, symbols, begun: 0, lacks: page };
        runs.iter().for_each(|run| names.add(*run));
        names
    }

    /// The symbols with those of one more run.
    fn followed_by(&self, run: Run) -> Vec<u32> {
        let more = (run.tokens / self.page + 1) as usize * NAME_SYMBOLS;
        let mut symbols = Vec::with_capacity(self.symbols.len() + more);
        symbols.extend_from_slice(&self.symbols);
        let mut names = Self { symbols, ..*self };
        names.add(run);
        names.symbols
    }

    fn add(&mut self, run: Run) {
        let (block, mut at) = (mix(run.block), 0);
        while at < run.tokens {
            let part = self.lacks.min(run.tokens - at);
            // A run begins at the start of its block, so different parts are different tokens.
            self.begun = mix(self.begun ^ mix(block ^ (u64::from(at) << 32 | u64::from(part))));
            (at, self.lacks) = (at + part, self.lacks - part);
            if self.lacks == 0 {
                self.symbols.extend(symbols(self.begun));
                (self.begun, self.lacks) = (0, self.page);
            }
        }
    }
}

/// The names of the whole pages of tokens.
fn names_of(tokens: &[Token], page: usize) -> Vec<u32> {
    let name = |page: &[Token]| page.iter().fold(0, |name, token| mix(name ^ u64::from(*token)));
    tokens.chunks_exact(page).flat_map(|page| symbols(name(page))).collect()
}

fn symbols(name: u64) -> [u32; NAME_SYMBOLS] {
    [(name >> 32) as u32, name as u32]
}
