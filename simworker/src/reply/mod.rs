//! What an engine answers with, which is known before it runs: a function of the prompt, or a text that the request
//! forces, cut where a stop ends it.

mod stops;

use std::sync::Arc;

use protocol::sglang;
use protocol::tokenizer::{Token, block_token, decode, mix, reply_block};

pub(crate) use stops::Stops;

/// The token that `matched` names when a reply ends by itself.
pub(crate) const END_OF_TEXT: Token = 2;

/// How long a reply is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// So many tokens.
    Tokens(u32),
    /// Nothing was asked for: to the end of the context, or to the end of the text if that may come first.
    Open,
}

/// What is asked about one reply.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) output: Output,
    pub(crate) ignore_eos: bool,
    pub(crate) stops: Arc<Stops>,
    /// The reply, where the request forces it.
    pub(crate) script: Option<Arc<[Token]>>,
}

impl Wish {
    /// The most tokens that the reply can have where the context has room for so many.
    pub(crate) fn most(&self, room: u32) -> u32 {
        let asked = match self.output {
            Output::Tokens(tokens) => tokens,
            Output::Open if self.ignore_eos || self.script.is_some() => room,
            Output::Open => LONGEST_TEXT.max(self.stops.min_tokens),
        };
        let scripted = self.script.as_ref().map_or(u32::MAX, |script| script.len() as u32);
        asked.min(scripted).max(1).min(room.max(1))
    }

    /// So many tokens, come what may.
    pub(crate) fn exactly(tokens: u32) -> Self {
        Self { output: Output::Tokens(tokens), ignore_eos: true, stops: Arc::default(), script: None }
    }
}

/// The reply to one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    tokens: Source,
    stops: Arc<Stops>,
    /// Where it ends before its budget is used up, or with the last token of it.
    end: Option<End>,
    /// The most tokens that it may have.
    pub(crate) budget: u32,
}

/// Where the tokens come from.
#[derive(Debug, Clone)]
enum Source {
    /// A generated block of text.
    Block(u64),
    /// Given ones; there are no others.
    Script(Arc<[Token]>),
}

/// The end of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    /// Tokens of the reply, with those of what ended it.
    pub(crate) tokens: u32,
    pub(crate) matched: Matched,
    /// Bytes at the end of the text that the client does not see.
    hidden: usize,
}

/// What ended a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Matched {
    Token(Token),
    Text(Arc<str>),
}

impl Matched {
    /// As it is told.
    pub(crate) fn told(&self) -> sglang::Matched<'_> {
        match self {
            Self::Token(token) => sglang::Matched::Token(*token),
            Self::Text(text) => sglang::Matched::Text(text),
        }
    }
}

impl Reply {
    /// The reply to `prompt`, where the context has room for so many tokens more.
    pub(crate) fn new(prompt: &[Token], wish: &Wish, room: u32) -> Self {
        let tokens = match &wish.script {
            Some(script) => Source::Script(Arc::clone(script)),
            None => Source::Block(reply_block(prompt)),
        };
        let budget = match wish.output {
            Output::Tokens(budget) => budget,
            Output::Open => room.max(1),
        };
        // An engine makes one token at least, whatever was asked for.
        let natural = tokens.natural_end(wish).filter(|end| end.tokens <= budget.max(1));
        let most = natural.as_ref().map_or(budget, |end| end.tokens).max(1).min(room.max(1));
        let end = wish.stops.first_end(&tokens, most, wish.ignore_eos).or(natural);
        Self { tokens, stops: Arc::clone(&wish.stops), end, budget }
    }

    /// Tokens after which it ends though more are allowed.
    pub(crate) fn ends_after(&self) -> Option<u32> {
        self.end.as_ref().map(|end| end.tokens).filter(|tokens| *tokens < self.budget)
    }

    /// What ended it, if it was not its budget that ended it after so many tokens.
    pub(crate) fn matched(&self, tokens: u32) -> Option<&Matched> {
        self.end.as_ref().filter(|end| end.tokens == tokens).map(|end| &end.matched)
    }

    /// Whether it was forced, and so many tokens are all of it.
    pub(crate) fn is_script_of(&self, tokens: u32) -> bool {
        matches!(&self.tokens, Source::Script(script) if script.len() == tokens as usize)
    }

    /// The ids of the tokens `from..to`.
    pub(crate) fn ids(&self, from: u32, to: u32) -> Vec<Token> {
        self.tokens.ids(from, to)
    }

    /// Their text, without that of the stop which ended it.
    pub(crate) fn text(&self, from: u32, to: u32) -> String {
        let mut text = decode(&self.ids(from, to));
        if let Some(end) = self.end.as_ref().filter(|end| end.tokens == to) {
            text.truncate(text.len().saturating_sub(end.hidden));
        }
        text
    }

    /// Whether the text of the first so many tokens lacks that of the stop which ended it.
    pub(crate) fn is_cut_at(&self, tokens: u32) -> bool {
        self.end.as_ref().is_some_and(|end| end.tokens == tokens && end.hidden > 0)
    }

    /// Whether the text of the first so many tokens may be the beginning of a stop string, so that a stream does not
    /// show the last ones yet.
    pub(crate) fn is_held_back(&self, tokens: u32) -> bool {
        let longest = self.stops.longest();
        // A token has at least one byte.
        longest > 0 && self.stops.may_begin(&decode(&self.ids(tokens.saturating_sub(longest), tokens)))
    }
}

impl Source {
    fn ids(&self, from: u32, to: u32) -> Vec<Token> {
        match self {
            Self::Block(block) => (from..to).map(|index| block_token(*block, index)).collect(),
            Self::Script(script) => {
                let place = |index: u32| (index as usize).min(script.len());
                script[place(from)..place(to).max(place(from))].to_vec()
            }
        }
    }

    /// The end that it has by itself.
    fn natural_end(&self, wish: &Wish) -> Option<End> {
        let end = |tokens, token| Some(End { tokens, matched: Matched::Token(token), hidden: 0 });
        match self {
            Self::Script(script) => end(script.len() as u32, *script.last()?),
            Self::Block(block) if wish.output == Output::Open && !wish.ignore_eos => {
                end(length_of_text(*block).max(wish.stops.min_tokens), END_OF_TEXT)
            }
            Self::Block(_) => None,
        }
    }
}

/// How long a reply is at most when nobody says.
const LONGEST_TEXT: u32 = 511;

/// How long a reply is when nobody says: from 64 tokens to [`LONGEST_TEXT`], a function of the prompt.
fn length_of_text(block: u64) -> u32 {
    64 + (mix(block) % u64::from(LONGEST_TEXT - 63)) as u32
}

#[cfg(test)]
mod tests;
